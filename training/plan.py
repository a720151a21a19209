"""`keras-vit train --dry-run`: what a run will cost, told without running it."""

import numpy as np

from keras_vit import config_of, count_flops
from keras_vit.config import MixerConfig, ViTConfig
from keras_vit.cost import kept_patches, stem_convolutions
from keras_vit.layers.attention import QUERIES_AT_ONCE
from training.config import TrainConfig
from training.data.sources import Source
from training.making import steps_per_epoch
from training.recipes import find_recipe
from training.resume import variables_of
from training.trainer import Trainer
from training.watching import training_flops

MB = 1e6
# Arrays as large as (tokens, hidden), (tokens, mlp_dim) and (heads, tokens, tokens) that a block
# keeps for its backward pass, fitted to benchmarks/memory.py: within a tenth for Ti/16 and S/16.
KEPT_HIDDEN, KEPT_MLP, KEPT_SCORES = 8, 4, 2.5
KEPT_STEM = 3  # of each convolution of the stem


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
    flops, of_epoch = count_flops(model), training_flops(config, trainer, steps)
    spent = sum(of_epoch(epoch) for epoch in range(config.epochs)) / config.epochs
    slice_size = config.batch_size // devices // config.accumulate
    state = bytes_of(variables_of(trainer).values())
    fixed = state + bytes_of(trainer.trainable_variables)  # their gradients
    activations = activation_bytes(config, model, slice_size)
    saved = count_checkpoints(config, steps)
    kept = min(config.keep_checkpoints, saved)
    recipe = find_recipe(config.recipe)
    lines = {
        "Parameters": f"{trainer.count_params():,}",
        "Compute": f"{flops / 1e9:.4g} GFLOPs an image; training {spent / 1e9:.4g} GFLOPs"
        f" an image shown, {spent * seen / 1e15:.4g} PFLOPs in all",
        "Memory": f"about {(fixed + activations) / MB:,.0f} MB on each device:"
        f" {fixed / MB:,.0f} weights, gradients and optimizer, {activations / MB:,.0f} activations"
        f" of {slice_size} images",
        "Steps": f"{total:,}: {config.epochs} epochs of {steps:,}, each {config.batch_size} images"
        f" = {devices} devices x {config.accumulate} slices x {slice_size}",
        "Examples": f"{images:,} training images, {seen:,} shown",
        "Checkpoints": f"{saved} will be saved, {kept} kept: {kept * state / MB:,.1f} MB;"
        f" model.keras {bytes_of(trainer.variables) / MB:,.1f} MB",
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


def bytes_of(variables) -> int:
    return sum(int(np.prod(v.shape)) * np.dtype(v.dtype).itemsize for v in variables)


def activation_bytes(config: TrainConfig, model: ViTConfig | MixerConfig, images: int) -> float:
    """An estimate of what the backward pass needs of the forward pass."""
    if isinstance(model, MixerConfig):
        rows, columns = model.grid_size
        tokens = rows * columns
        block = KEPT_HIDDEN * tokens * model.hidden_size
        block += KEPT_MLP * model.hidden_size * model.tokens_mlp_dim
        block += KEPT_MLP * tokens * model.channels_mlp_dim
        elements = model.num_layers * block
    else:
        tokens = kept_patches(model) + model.num_prefix_tokens
        stem = sum(h * w * outputs for (h, w), _, _, outputs in stem_convolutions(model))
        elements = block_elements(model, tokens) + KEPT_STEM * stem
    return elements * images * (4 if config.precision == "float32" else 2)


def block_elements(model: ViTConfig, tokens: int) -> float:
    """Numbers kept of one image in all blocks."""
    hidden = tokens * model.hidden_size
    dense = KEPT_HIDDEN * hidden + KEPT_MLP * tokens * model.mlp_dim
    scores = KEPT_SCORES * model.num_heads * tokens * min(tokens, QUERIES_AT_ONCE)
    if model.remat == "block":
        return model.num_layers * hidden + dense + scores
    if model.remat == "attention" or tokens > QUERIES_AT_ONCE:  # slices are recomputed
        return model.num_layers * dense + scores
    return model.num_layers * (dense + scores)
