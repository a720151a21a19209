"""`keras-vit train --dry-run`: what a run will cost, told without running it."""

import numpy as np

import keras_vit
from keras_vit.config import MixerConfig, ViTConfig
from keras_vit.config_of import config_of
from training.config import TrainConfig
from training.data.sources import Source
from training.making import steps_per_epoch
from training.recipes import find_recipe
from training.resume import variables_of
from training.trainer import Trainer

MB = 1e6
# Arrays as large as (tokens, hidden), (tokens, mlp_dim) and (heads, tokens, tokens) that a block
# keeps for its backward pass, fitted to benchmarks/memory.py: within a tenth for Ti/16 and S/16.
KEPT_HIDDEN, KEPT_MLP, KEPT_SCORES = 8, 4, 2.5
SLICED_FROM = 1024  # tokens; attention then keeps the scores of no more queries at once


def plan(config: TrainConfig, source: Source, trainer: Trainer, devices: int) -> str:
    """The lines of a plan.

    Args:
        config: resolved.
        source: the images.
        trainer: built, not trained.
        devices: that share each batch.
    """
    model = config_of(trainer)
    images = source.splits["train"].num_examples
    steps = steps_per_epoch(config, source)
    total, seen = steps * config.epochs, steps * config.epochs * config.batch_size
    flops = keras_vit.count_flops(model)
    training_flops = 3 * keras_vit.count_flops(model, training=True)
    slice_size = config.batch_size // devices // config.accumulate
    fixed, activations = fixed_bytes(trainer), activation_bytes(config, model, slice_size)
    saved = count_checkpoints(config, steps)
    size = sum(variable_bytes(v) for v in variables_of(trainer).values())
    kept = min(config.keep_checkpoints, saved)
    recipe = find_recipe(config.recipe)
    lines = {
        "Parameters": f"{trainer.count_params():,}",
        "Compute": f"{flops / 1e9:.4g} GFLOPs an image; training {training_flops / 1e9:.4g} GFLOPs"
        f" an image shown, {training_flops * seen / 1e15:.4g} PFLOPs in all",
        "Memory": f"about {(fixed + activations) / MB:,.0f} MB on each device:"
        f" {fixed / MB:,.0f} weights, gradients and optimizer, {activations / MB:,.0f} activations"
        f" of {slice_size} images",
        "Steps": f"{total:,}: {config.epochs} epochs of {steps:,}, each {config.batch_size} images"
        f" = {devices} devices x {config.accumulate} slices x {slice_size}",
        "Examples": f"{images:,} training images, {seen:,} shown",
        "Checkpoints": f"{saved} will be saved, {kept} kept: {kept * size / MB:,.1f} MB;"
        f" model.keras {sum(variable_bytes(v) for v in trainer.variables) / MB:,.1f} MB",
        "Source": recipe.source,
        "Expected": recipe.expected,
    }
    return "\n".join(f"{name:<13}{text}" for name, text in lines.items())


def count_checkpoints(config: TrainConfig, steps: int) -> int:
    """How many a whole run writes: one an epoch, those between, and the first for a rollback."""
    between, every = 0, config.checkpoint_every
    if every:
        stride = config.steps_per_execution
        ends = np.arange(stride, steps * config.epochs + 1, stride)
        due = (ends // every > (ends - stride) // every) & (ends % steps != 0)
        between = int(np.count_nonzero(due))
    return config.epochs + between + (config.on_nan == "rollback")


def fixed_bytes(trainer: Trainer) -> int:
    """Weights, their gradients, and what the optimizer keeps."""
    gradients = sum(variable_bytes(v) for v in trainer.trainable_variables)
    return gradients + sum(variable_bytes(v) for v in variables_of(trainer).values())


def variable_bytes(variable) -> int:
    return int(np.prod(variable.shape)) * np.dtype(variable.dtype).itemsize


def activation_bytes(config: TrainConfig, model: ViTConfig | MixerConfig, images: int) -> float:
    """An estimate of what the backward pass needs of the forward pass."""
    rows, columns = model.grid_size
    tokens = rows * columns
    if isinstance(model, MixerConfig):
        block = KEPT_HIDDEN * tokens * model.hidden_size
        block += KEPT_MLP * model.hidden_size * model.tokens_mlp_dim
        block += KEPT_MLP * tokens * model.channels_mlp_dim
        elements = model.num_layers * block
    else:
        tokens = round(tokens * (1 - model.patch_dropout)) + model.num_prefix_tokens
        elements = block_elements(model, tokens) + stem_elements(model)
    return elements * images * (4 if config.precision == "float32" else 2)


def block_elements(model: ViTConfig, tokens: int) -> float:
    """Numbers kept of one image in all blocks."""
    hidden = tokens * model.hidden_size
    dense = KEPT_HIDDEN * hidden + KEPT_MLP * tokens * model.mlp_dim
    scores = KEPT_SCORES * model.num_heads * tokens * min(tokens, SLICED_FROM)
    if model.remat == "block":
        return model.num_layers * hidden + dense + scores
    if model.remat == "attention" or tokens > SLICED_FROM:  # slices are recomputed
        return model.num_layers * dense + scores
    return model.num_layers * (dense + scores)


def stem_elements(model: ViTConfig) -> float:
    """Numbers kept of one image in the ResNet stem: three for each output of a convolution."""
    if model.stem_layers is None:
        return 0.0
    width, (height, breadth) = int(64 * model.stem_width), model.image_size
    elements = height / 2 * breadth / 2 * width
    for stage, units in enumerate(model.stem_layers):
        side = 4 * 2**stage
        elements += units * height / side * breadth / side * 6 * width * 2**stage
    return 3 * elements
