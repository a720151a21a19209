"""The settings that follow from the data: one table, one function."""

from dataclasses import dataclass, replace

from keras_vit.config import UserError
from training.config import TrainConfig
from training.data.sources import Source

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
SGD_RATE = 0.03  # the original's base rate for fine-tuning (vit_jax configs/common.py)


def resolve(config: TrainConfig, source: Source) -> TrainConfig:
    """`config` with every None that the data decide replaced; what the user set stays.

    Images that all share one size of up to 64 pixels keep it, and get a small model with about
    8 x 8 patches (4 x 4 for tiny ones); others are photos, cut to PHOTO_SIZE. The batch
    is smaller where an epoch would have less than `least_steps`; epochs are as many as show
    `images_shown`, but at least 20.
    """
    side = max(source.image_size) if source.image_size else None
    kind = "photo" if side is None or side > SMALL else "tiny" if side <= TINY else "small"
    table = TABLE[kind]
    count = source.splits["train"].num_examples
    image_size = config.image_size or (PHOTO_SIZE if kind == "photo" else source.image_size)
    model = table.model
    if kind != "photo":
        model += str(small_patch(image_size, 4 if kind == "tiny" else 8))
    epochs = config.epochs or min(table.most_epochs, max(20, table.images_shown // count))
    batch_size = config.batch_size or min(table.batch_size, max(8, count // table.least_steps))
    chosen = config if config.augment else table  # a preset that the user names is taken whole
    warmup_epochs = epochs / 10 if config.warmup_epochs is None else config.warmup_epochs
    if warmup_epochs > epochs:
        raise UserError(f"warmup_epochs={warmup_epochs:g} must be at most the {epochs} epochs")
    rate = config.learning_rate or {"adamw": table.learning_rate, "sgd": SGD_RATE}[config.optimizer]
    return replace(
        config,
        image_size=image_size,
        model=config.model or model,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=rate * (batch_size / 256 if config.scale_learning_rate else 1.0),
        scale_learning_rate=False,  # is now in the rate
        warmup_epochs=warmup_epochs,
        augment=chosen.augment,
        crop_scale=chosen.crop_scale if config.crop_scale is None else config.crop_scale,
        mixup=chosen.mixup if config.mixup is None else config.mixup,
        flip=config.flip if config.flip is not None or source.flip else False,
    )


def small_patch(image_size: tuple[int, int], rows: int) -> int:
    """The largest patch that divides both sides and leaves at least so many rows and columns."""
    most = max(1, min(image_size) // rows)
    return next(patch for patch in range(most, 0, -1) if not any(s % patch for s in image_size))
