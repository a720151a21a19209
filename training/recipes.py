"""Recipes: settings of training that belong together, as data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """What a recipe sets where the user says nothing; None: by the kind of images.

    rate: peak learning rate for a batch of `rate_batch` images, scaled with the batch; with
        `rate_batch` None it is for any batch.
    resolution: side of the image over the weights' own (at most 224 pixels).
    """

    optimizer: str
    weight_decay: float
    layer_decay: float
    label_smoothing: float
    rate: float | None = None
    rate_batch: int | None = None
    batch_size: int | None = None
    images_shown: int | None = None
    fewest_epochs: int = 20
    most_epochs: int | None = None
    warmup: float = 0.1  # part of all epochs
    augment: str | None = None
    crop_scale: float | None = None
    resolution: float = 1.0


RECIPES = {
    # Defaults of training/defaults.py for each kind of image.
    "scratch": Recipe("adamw", weight_decay=0.05, layer_decay=1.0, label_smoothing=0.1),
    # BEiT and MAE fine-tune so: lower blocks, which know most already, move least.
    "small": Recipe(
        "adamw",
        weight_decay=0.05,
        layer_decay=0.75,
        label_smoothing=0.1,
        rate=1e-4,
        batch_size=32,
        images_shown=8_000,
        fewest_epochs=5,
        most_epochs=30,
        augment="light",
    ),
    # Dosovitskiy et al. 2021, table 4 and B.1.1; vit_jax configs/common.py: 500 warm-up steps of
    # 10000, base rate 0.03 at batch 512, 384 pixels after pre-training with 224, Inception crops.
    "paper-finetune": Recipe(
        "sgd",
        weight_decay=0.0,
        layer_decay=1.0,
        label_smoothing=0.0,
        rate=0.03,
        rate_batch=512,
        images_shown=256_000,  # AugReg's 500 steps of 512
        most_epochs=100,
        warmup=0.05,
        augment="light",
        crop_scale=0.05,
        resolution=384 / 224,
    ),
}
