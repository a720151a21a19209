"""Hugging Face: `model.safetensors` with `config.json`, of ViT, DeiT and Dinov2 (with registers).

Canonical names here are those on disk, without the prefix of the whole model. transformers 5 has
others in memory, and writes them on demand (`save_original_format=False`): both are read.
"""

import re
from pathlib import Path

import numpy as np

from keras_vit.config import UserError, ViTConfig
from keras_vit.weights.files import Tensors
from keras_vit.weights.huggingface_json import (
    config_json,
    model_type,
    preprocessing_of,
    preprocessor_json,
)
from keras_vit.weights.layout import (
    Hints,
    Rule,
    count_blocks,
    find_grid,
    find_heads,
    grid_of,
    same,
    size_of,
)
from keras_vit.weights.torch_rules import fused_linears, linear, norm, patch_embedding
from keras_vit.weights.writing import write_json, write_safetensors

NAME = "huggingface"
DESCRIPTION = "Hugging Face ViT, DeiT, Dinov2"
ASSUMES = {}
EXTRAS = r"pooler\..*|embeddings\.mask_token|decoder\..*"
PREFIX = r"^(vit|deit|dinov2_with_registers|dinov2|backbone)\."
IN_MEMORY = (  # transformers 5 in memory -> on disk
    (r"^layers\.", "encoder.layer."),
    (r"attention\.(q|k|v)_proj\.", lambda m: f"attention.attention.{LONG[m[1]]}."),
    (r"attention\.o_proj\.", "attention.output.dense."),
)
LONG = {"q": "query", "k": "key", "v": "value"}
BLOCK = "encoder.layer.0"


def recognise(names) -> dict[str, str] | None:
    new = {}
    for name in names:
        new[name] = re.sub(PREFIX, "", name)
        for pattern, replacement in IN_MEMORY:
            new[name] = re.sub(pattern, replacement, new[name])
    known = set(new.values())
    if not {"embeddings.patch_embeddings.projection.weight", "embeddings.cls_token"} <= known:
        return None
    if f"{BLOCK}.layernorm_before.weight" in known:  # Dinov2 calls its MLP fc1 and fc2 on disk too
        for name, short in new.items():
            short = re.sub(r"\.mlp\.fc1\.", ".intermediate.dense.", short)
            new[name] = re.sub(r"\.mlp\.fc2\.", ".output.dense.", short)
    return new


def prepare(tensors: Tensors) -> Tensors:
    return tensors


def is_dino(names) -> bool:
    return f"{BLOCK}.norm1.weight" in names


def describe(tensors: Tensors, hints: Hints) -> ViTConfig:
    shapes, given = tensors.shapes, tensors.config
    dino = is_dino(shapes)
    hidden_size, channels, *patch_size = shapes["embeddings.patch_embeddings.projection.weight"]
    layers = count_blocks(shapes, "encoder.layer.")
    expand = f"{BLOCK}.mlp.fc1.weight" if dino else f"{BLOCK}.intermediate.dense.weight"
    if expand not in shapes:
        raise UserError(
            f"{tensors.path}: its MLP is none of fc1 and fc2 (SwiGLU has no place here)"
        )
    mlp_dim = shapes[expand][0]
    sizes = (hidden_size, layers, mlp_dim)
    heads = find_heads(sizes, given.get("num_attention_heads"), hints, tensors.path)
    registers = shapes.get("embeddings.register_tokens", (1, 0))[1]
    distilled = "embeddings.distillation_token" in shapes
    teacher = "distillation_classifier.weight" in shapes
    # DeiT without its second head uses that token as a register: it has a position, no output.
    registers += distilled and not teacher
    special = 1 + distilled
    grid = find_grid(
        shapes["embeddings.position_embeddings"][1] - special,
        patch_size,
        stored=grid_of(given.get("image_size"), patch_size),
        image_size=hints.image_size,
        path=tensors.path,
    )
    classifier = shapes.get("classifier.weight") or shapes.get("cls_classifier.weight")
    return ViTConfig(
        hidden_size=hidden_size,
        num_layers=layers,
        mlp_dim=mlp_dim,
        num_heads=heads,
        patch_size=tuple(patch_size),
        image_size=size_of(grid, patch_size),
        in_channels=channels,
        num_classes=classifier[0] if classifier else 0,
        distillation_token=teacher,
        num_register_tokens=registers,
        position_tokens="class" if dino and registers else "all",
        pooling="token_mean" if dino and classifier else "token",
        layer_scale=1.0 if dino else None,
        gelu=_gelu(given),
        norm_epsilon=given.get("layer_norm_eps", 1e-6 if dino else 1e-12),
        qkv_bias=f"{BLOCK}.attention.attention.query.bias" in shapes,
    )


def _gelu(given: dict) -> str:
    name = given.get("hidden_act", "gelu")
    forms = {"gelu": "erf", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu_fast": "tanh"}
    if name not in forms:
        raise UserError(f"config.json: hidden_act={name!r} has no counterpart; gelu has")
    return forms[name]


def rules(config: ViTConfig) -> list[Rule]:
    dino = config.layer_scale is not None
    found = patch_embedding(config, "embeddings.patch_embeddings.projection")
    found.append(same("patch_encoder/class_token", "embeddings.cls_token"))
    if config.distillation_token:
        found.append(same("patch_encoder/distillation_token", "embeddings.distillation_token"))
    elif config.num_register_tokens:
        name = "register_tokens" if dino else "distillation_token"
        found.append(same("patch_encoder/register_tokens", f"embeddings.{name}"))
    found.append(same("patch_encoder/position_embedding", "embeddings.position_embeddings"))
    block = dino_block if dino else vit_block
    for index in range(config.num_layers):
        found += block(config, f"block_{index:02d}", f"encoder.layer.{index}")
    found += norm("encoder_norm", "layernorm")
    if config.num_classes and config.distillation_token:
        found += linear("head", "cls_classifier")
        found += linear("head_distillation", "distillation_classifier")
    elif config.num_classes:
        found += linear("head", "classifier")
    return found


def attention(config: ViTConfig, ours: str, theirs: str) -> list[Rule]:
    parts = [f"{theirs}.attention.attention.{part}" for part in LONG.values()]
    found = fused_linears(f"{ours}/attention/qkv", parts, config.qkv_bias)
    return found + linear(f"{ours}/attention/output", f"{theirs}.attention.output.dense")


def vit_block(config: ViTConfig, ours: str, theirs: str) -> list[Rule]:
    return [
        *norm(f"{ours}/attention_norm", f"{theirs}.layernorm_before"),
        *attention(config, ours, theirs),
        *norm(f"{ours}/mlp_norm", f"{theirs}.layernorm_after"),
        *linear(f"{ours}/mlp/expand", f"{theirs}.intermediate.dense"),
        *linear(f"{ours}/mlp/contract", f"{theirs}.output.dense"),
    ]


def dino_block(config: ViTConfig, ours: str, theirs: str) -> list[Rule]:
    return [
        *norm(f"{ours}/attention_norm", f"{theirs}.norm1"),
        *attention(config, ours, theirs),
        same(f"{ours}/attention_scale/gamma", f"{theirs}.layer_scale1.lambda1"),
        *norm(f"{ours}/mlp_norm", f"{theirs}.norm2"),
        *linear(f"{ours}/mlp/expand", f"{theirs}.mlp.fc1"),
        *linear(f"{ours}/mlp/contract", f"{theirs}.mlp.fc2"),
        same(f"{ours}/mlp_scale/gamma", f"{theirs}.layer_scale2.lambda1"),
    ]


def refuse(config) -> None:
    """Raises: UserError: names what the classes of transformers have no place for."""
    dino = config.layer_scale is not None
    needed = {
        "class_token": (True,),
        "position_embedding": ("learned",),
        "pooling": ("token_mean",) if dino and config.num_classes else ("token",),
        "position_tokens": ("class", "all"),
        "representation_size": (None,),
        "patch_bias": (True,),
        "qk_norm": (False,),
        "pre_norm": (False,),
        "norm_after_pooling": (False,),
        "stem_layers": (None,),
    }
    if dino:
        needed |= {"distillation_token": (False,)}
        if config.mlp_dim % config.hidden_size:
            raise UserError(
                f"format=huggingface has no place for mlp_dim={config.mlp_dim} in Dinov2: it must"
                f" be a multiple of hidden_size={config.hidden_size}"
            )
        if config.num_register_tokens:
            needed |= {"position_tokens": ("class",)}
    else:
        needed |= {"num_register_tokens": (0,) if config.distillation_token else (0, 1)}
        if config.num_register_tokens:
            needed |= {"position_tokens": ("all",)}
    for field, allowed in needed.items():
        if getattr(config, field) not in allowed:
            found = getattr(config, field)
            raise UserError(f"format=huggingface has no place for {field}={found!r} here")


def position_resize(config, names) -> str:
    """Plain bicubic, but of Dinov2WithRegisters antialiased (transformers 5.24)."""
    has_registers = config.layer_scale is not None and config.num_register_tokens
    return "bicubic_antialias" if has_registers else "bicubic"


def preprocessing(tensors: Tensors) -> dict:
    deit = "embeddings.distillation_token" in tensors.shapes
    return preprocessing_of(tensors.preprocessor, is_dino(tensors.shapes), deit)


def write(path: Path, tensors: dict[str, np.ndarray], config, preprocessing: dict | None) -> None:
    """A folder with `model.safetensors`, `config.json` and `preprocessor_config.json`."""
    if path.suffix == ".safetensors":
        raise UserError(f"{path}: format=huggingface writes a folder; leave .safetensors away")
    kind, headed, prefix = model_type(config)
    if config.num_classes:
        tensors = {
            name if "classifier" in name else f"{prefix}.{name}": array
            for name, array in tensors.items()
        }
    architecture = headed if config.num_classes else headed.split("For")[0] + "Model"
    write_safetensors(path / "model.safetensors", tensors, {"format": "pt"})
    write_json(path / "config.json", config_json(config, kind, architecture))
    if preprocessing is not None:
        write_json(path / "preprocessor_config.json", preprocessor_json(config, preprocessing))
