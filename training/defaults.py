"""The settings that follow from the data: one table, one function."""

from dataclasses import dataclass, replace

from keras_vit.config import MixerConfig, UserError
from keras_vit.variants import STEM_STRIDE
from keras_vit.weights import Weights
from training.config import TrainConfig
from training.data.sources import Source
from training.recipes import Recipe, find_recipe

TINY, SMALL = 16, 64  # pixels; images up to here are used as they are, by a small model
PHOTO_SIZE = (160, 160)


@dataclass(frozen=True)
class Defaults:
    """What one kind of image gets: size of the model, images shown in all, and so on."""

    model: str
    batch_size: int
    images_shown: int
    most_epochs: int
    learning_rate: float  # of AdamW
    augment: str
    least_steps: int  # of an epoch: few images get smaller batches
    crop_scale: float | None = None  # instead of the preset's
    mixup: float | None = None


TABLE = {
    # A crop of a few pixels cuts strokes off: 8x8 digits lost two points with the preset's.
    "tiny": Defaults("vit_xxs", 64, 100_000, 80, 2e-3, "light", 8, crop_scale=0.85, mixup=0.2),
    "small": Defaults("vit_xs", 64, 100_000, 100, 1e-3, "light", 8),
    "photo": Defaults("vit_xs16", 64, 50_000, 100, 1e-3, "light", 32),
}
AUGMENTATION = {
    "augment", "flip", "crop_scale", "randaugment", "randaugment_layers", "color_jitter",
    "erasing", "mixup", "cutmix",
}  # fmt: skip
SGD_RATE = 0.03  # the original's base rate for fine-tuning (vit_jax configs/common.py)
PRETRAINED_SIDE = 224  # pixels; larger pretrained models are fine-tuned here unless asked


def resolve(
    config: TrainConfig, source: Source, weights: Weights | None = None, slices: int = 1
) -> TrainConfig:
    """`config` with every None replaced that data, recipe and weights decide; the user's stays.

    Without weights, images that all share one size of up to 64 pixels keep it, and get a small
    model with about 8 x 8 patches (4 x 4 for tiny ones); others are photos, cut to PHOTO_SIZE. The
    batch is smaller where an epoch would have less than `least_steps`; epochs are as many as show
    `images_shown`. `slices` are the equal parts that a batch is dealt out in.
    """
    name = config.recipe or ("small" if weights else "scratch")
    recipe, kind = find_recipe(name), "photo" if weights else kind_of(source)
    if recipe.needs and getattr(config, recipe.needs) is None:
        raise UserError(f"recipe={name!r} needs {recipe.needs}")
    table, count = TABLE[kind], source.splits["train"].num_examples
    images_shown = recipe.images_shown or table.images_shown
    most_epochs = recipe.most_epochs or table.most_epochs
    batch_size = min(recipe.most_batch or table.batch_size, max(8, count // table.least_steps))
    batch_size = max(1, batch_size // slices) * slices
    image_size = pretrained_size(weights, recipe) if weights else small_size(source, kind)
    flip = None if source.flip else False
    augmentation = augmentation_defaults(config, recipe, table)
    config = fill(config, recipe=name, flip=flip, **recipe_settings(config, recipe, weights))
    config = fill(
        config,
        image_size=image_size,
        epochs=min(most_epochs, max(recipe.fewest_epochs, images_shown // count)),
        batch_size=batch_size,
        distillation="hard" if config.teacher else "none",
        **augmentation,
        **image_defaults(weights),
    )
    if config.batch_size % slices:
        raise UserError(
            f"batch_size={config.batch_size} must be a multiple of {slices}: devices x accumulate"
        )
    rate = config.learning_rate or default_rate(config, recipe, table)
    if not weights:
        config = fill(config, model=default_model(config.image_size, kind, recipe.stem))
    if config.warmup_steps is None:
        config = fill(config, warmup_epochs=config.epochs * recipe.warmup)
    if (config.warmup_epochs or 0) > config.epochs:
        raise UserError(
            f"warmup_epochs={config.warmup_epochs:g} must be at most the {config.epochs} epochs"
        )
    rate *= config.batch_size / 256 if config.scale_learning_rate else 1.0
    return replace(config, learning_rate=rate, scale_learning_rate=False)  # is now in the rate


def fill(config: TrainConfig, **values) -> TrainConfig:
    """`config` with these where it has None."""
    return replace(config, **{k: v for k, v in values.items() if getattr(config, k) is None})


def kind_of(source: Source) -> str:
    """Row of TABLE for these images."""
    side = max(source.image_size) if source.image_size else None
    return "photo" if side is None or side > SMALL else "tiny" if side <= TINY else "small"


def small_size(source: Source, kind: str) -> tuple[int, int]:
    return PHOTO_SIZE if kind == "photo" else source.image_size


def pretrained_size(weights: Weights, recipe: Recipe) -> tuple[int, int]:
    """The weights' own size, at most PRETRAINED_SIDE, times the recipe's factor, in whole patches.

    A Mixer cannot change its size.
    """
    size = weights.config.image_size
    if isinstance(weights.config, MixerConfig):
        return size
    steps = [side // count for side, count in zip(size, weights.config.grid_size, strict=True)]
    sides = [min(side, PRETRAINED_SIDE) * recipe.resolution for side in size]
    return tuple(round(side / step) * step for side, step in zip(sides, steps, strict=True))


def default_model(image_size: tuple[int, int], kind: str, stem: bool) -> str:
    model = TABLE[kind].model
    if kind == "photo":
        return f"r_{model}" if stem else model
    patch = small_patch(image_size, 4 if kind == "tiny" else 8)
    if stem and kind == "small" and not any(side % STEM_STRIDE for side in image_size):
        whole = small_patch([side // STEM_STRIDE for side in image_size], 8) * STEM_STRIDE
        return f"r_{model}{whole}"
    return model + str(patch)


def recipe_settings(config: TrainConfig, recipe: Recipe, weights: Weights | None) -> dict:
    """What the recipe sets, and scratch where it does not; not what goes with a user's choice."""
    settings = find_recipe("scratch").settings | recipe.settings
    left = set()
    if config.augment:  # a preset that the user names is taken whole
        left |= AUGMENTATION
    if weights:  # they bring their model
        left |= {"model", "pre_logits"}
    if config.warmup_epochs is not None or config.warmup_steps is not None:
        left |= {"warmup_epochs", "warmup_steps"}
    return {name: value for name, value in settings.items() if name not in left}


def default_rate(config: TrainConfig, recipe: Recipe, table: Defaults) -> float:
    """Peak learning rate where the user and the recipe's settings give none."""
    if config.optimizer != recipe.settings.get("optimizer") or recipe.rate is None:
        return {"adamw": table.learning_rate, "sgd": SGD_RATE}[config.optimizer]
    return recipe.rate * (config.batch_size / recipe.rate_batch if recipe.rate_batch else 1.0)


def augmentation_defaults(config: TrainConfig, recipe: Recipe, table: Defaults) -> dict:
    """Preset and what is changed of it, where neither the user nor the recipe names one."""
    if config.augment or "augment" in recipe.settings:
        return {}
    return {"augment": table.augment, "crop_scale": table.crop_scale, "mixup": table.mixup}


def image_defaults(weights: Weights | None) -> dict:
    """How images are resized: as the weights have it, else ours."""
    own = {"resize": "crop", "crop_fraction": 1.0, "interpolation": "bicubic"}
    known = weights.preprocessing if weights else {}
    return {name: known.get(name, value) for name, value in own.items()}


def small_patch(image_size: tuple[int, int], rows: int) -> int:
    """The largest patch that divides both sides and leaves at least so many rows and columns."""
    most = max(1, min(image_size) // rows)
    return next(patch for patch in range(most, 0, -1) if not any(s % patch for s in image_size))
