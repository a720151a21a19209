"""torchvision: `vision_transformer` state dicts as `.safetensors`, both directions."""

import re
from pathlib import Path

import numpy as np

from keras_vit.config import UserError, ViTConfig
from keras_vit.weights.files import Tensors
from keras_vit.weights.layout import (
    IMAGENET,
    Hints,
    Rule,
    count_blocks,
    find_grid,
    find_heads,
    same,
    size_of,
)
from keras_vit.weights.torch_rules import linear, norm, patch_embedding
from keras_vit.weights.writing import write_safetensors

NAME = "torchvision"
DESCRIPTION = "torchvision VisionTransformer"
ASSUMES = {"gelu": "erf", "norm_epsilon": 1e-6}
EXTRAS = r"(?!)"  # nothing
BLOCK = "encoder.layers.encoder_layer_"


def recognise(names) -> dict[str, str] | None:
    """Canonical names are today's; once the MLP's layers were called linear_1 and linear_2."""
    new = {}
    for name in names:
        short = re.sub(r"\.mlp\.linear_1\.", ".mlp.0.", name)
        new[name] = re.sub(r"\.mlp\.linear_2\.", ".mlp.3.", short)
    return new if {"conv_proj.weight", "encoder.pos_embedding"} <= set(new.values()) else None


def prepare(tensors: Tensors) -> Tensors:
    return tensors


def describe(tensors: Tensors, hints: Hints) -> ViTConfig:
    shapes = tensors.shapes
    hidden_size, channels, *patch_size = shapes["conv_proj.weight"]
    layers = count_blocks(shapes, BLOCK)
    mlp_dim = shapes[f"{BLOCK}0.mlp.0.weight"][0]
    grid = find_grid(
        shapes["encoder.pos_embedding"][1] - 1,
        patch_size,
        image_size=hints.image_size,
        path=tensors.path,
    )
    heads = tensors.metadata.get("num_heads")
    sizes = (hidden_size, layers, mlp_dim)
    heads = find_heads(sizes, int(heads) if heads else None, hints, tensors.path)
    has_head, has_representation = (
        "heads.head.weight" in shapes,
        "heads.pre_logits.weight" in shapes,
    )
    return ViTConfig(
        hidden_size=hidden_size,
        num_layers=layers,
        mlp_dim=mlp_dim,
        num_heads=heads,
        patch_size=tuple(patch_size),
        image_size=size_of(grid, patch_size),
        in_channels=channels,
        num_classes=shapes["heads.head.weight"][0] if has_head else 0,
        representation_size=shapes["heads.pre_logits.weight"][0] if has_representation else None,
        gelu="erf",
        norm_epsilon=1e-6,
    )


def rules(config: ViTConfig) -> list[Rule]:
    found = patch_embedding(config, "conv_proj")
    found.append(same("patch_encoder/class_token", "class_token"))
    found.append(same("patch_encoder/position_embedding", "encoder.pos_embedding"))
    for index in range(config.num_layers):
        ours, theirs = f"block_{index:02d}", f"{BLOCK}{index}"
        qkv = f"{theirs}.self_attention.in_proj"
        found += [
            *norm(f"{ours}/attention_norm", f"{theirs}.ln_1"),
            Rule(
                f"{ours}/attention/qkv/kernel", (f"{qkv}_weight",), np.transpose, lambda k: (k.T,)
            ),
            same(f"{ours}/attention/qkv/bias", f"{qkv}_bias"),
            *linear(f"{ours}/attention/output", f"{theirs}.self_attention.out_proj"),
            *norm(f"{ours}/mlp_norm", f"{theirs}.ln_2"),
            *linear(f"{ours}/mlp/expand", f"{theirs}.mlp.0"),
            *linear(f"{ours}/mlp/contract", f"{theirs}.mlp.3"),
        ]
    found += norm("encoder_norm", "encoder.ln")
    if config.representation_size is not None:
        found += linear("pre_logits", "heads.pre_logits")
    return found + (linear("head", "heads.head") if config.num_classes else [])


def position_resize(config, names) -> str:
    """Method of `resample.METHODS` with which its own code resamples positions."""
    return "bicubic_corners"


def preprocessing(tensors: Tensors) -> dict:
    """The V1 weights: 224 of 256 pixels, bilinear, ImageNet's mean."""
    return {**IMAGENET, "resize": "crop", "crop_fraction": 0.875, "interpolation": "bilinear"}


NEEDED = {
    "in_channels": 3,
    "class_token": True,
    "distillation_token": False,
    "num_register_tokens": 0,
    "position_embedding": "learned",
    "position_tokens": "all",
    "pooling": "token",
    "patch_bias": True,
    "qkv_bias": True,
    "qk_norm": False,
    "pre_norm": False,
    "norm_after_pooling": False,
    "layer_scale": None,
    "stem_layers": None,
}


def refuse(config) -> None:
    """Raises: UserError: names what torchvision has no place for."""
    for field, value in NEEDED.items():
        if getattr(config, field) != value:
            found = getattr(config, field)
            raise UserError(f"format=torchvision has no place for {field}={found!r}")
    for field in ("image_size", "patch_size"):
        height, width = getattr(config, field)
        if height != width:
            raise UserError(f"format=torchvision has no place for {field}={height}x{width}")


def write(path: Path, tensors: dict[str, np.ndarray], config, preprocessing: dict | None) -> None:
    metadata = {"format": "pt", "num_heads": str(config.num_heads)}  # which no tensor shows
    write_safetensors(path, tensors, metadata)
