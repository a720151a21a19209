"""The settings that follow from the data: one table, one function."""

from dataclasses import replace

from training.config import TrainConfig
from training.data.sources import Source

SMALL = 64  # pixels: up to here images are used as they are, by a small model
PHOTO_SIZE = (224, 224)


def resolve(config: TrainConfig, source: Source) -> TrainConfig:
    """`config` with every None that the data decide replaced; what the user set stays.

    | setting       | images of one size up to 64 px          | photos                      |
    |---------------|-----------------------------------------|-----------------------------|
    | image_size    | as they are                             | 224                         |
    | model         | vit_xs, about 8 x 8 patches             | vit_ti16                    |
    | batch_size    | 128, an eighth of the images if fewer   | 64, the same                |
    | epochs        | as many as show 250,000 images, 20..100 | 40,000 images, 20..100      |
    | learning_rate | AdamW 1e-3, SGD 0.03                    | AdamW 5e-4, SGD 0.03        |
    | warmup_epochs | a tenth of the epochs                   | the same                    |
    | augment       | light                                   | medium                      |
    """
    small = source.image_size is not None and max(source.image_size) <= SMALL
    count = source.splits["train"].num_examples
    image_size = config.image_size or (source.image_size if small else PHOTO_SIZE)
    epochs = config.epochs or min(100, max(20, (250_000 if small else 40_000) // count))
    rate = config.learning_rate or default_rate(config.optimizer, small)
    batch_size = config.batch_size or min(128 if small else 64, max(8, count // 8))
    return replace(
        config,
        image_size=image_size,
        model=config.model or (f"vit_xs{small_patch(image_size)}" if small else "vit_ti16"),
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=rate * (batch_size / 256 if config.scale_learning_rate else 1.0),
        scale_learning_rate=False,  # is now in the rate
        warmup_epochs=epochs / 10 if config.warmup_epochs is None else config.warmup_epochs,
        augment=config.augment or ("light" if small else "medium"),
        flip=config.flip if config.flip is not None or source.flip else False,
    )


def default_rate(optimizer: str, small: bool) -> float:
    if optimizer == "sgd":
        return 0.03
    return 1e-3 if small else 5e-4


def small_patch(image_size: tuple[int, int]) -> int:
    """The largest patch that divides both sides and leaves at least 8 rows and 8 columns."""
    least = min(image_size)
    fitting = (p for p in range(max(1, least // 8), 0, -1) if not any(s % p for s in image_size))
    return next(fitting)
