"""timm: `.safetensors` of `timm.models.vision_transformer`, and DINOv2's and DeiT III's own files.

Names are those of timm 1.0's state dict; what tensors do not show stands in the file's metadata
or in the `config.json` of a hub folder.
"""

import ast
import re
from pathlib import Path

import numpy as np

from keras_vit.config import UserError, ViTConfig
from keras_vit.weights.files import Tensors
from keras_vit.weights.layout import (
    Hints,
    Rule,
    count_blocks,
    find_grid,
    find_heads,
    grid_of,
    needed_grid,
    same,
    size_of,
)
from keras_vit.weights.timm_json import config_json, model_args, preprocessing_of
from keras_vit.weights.torch_rules import linear, norm, patch_embedding
from keras_vit.weights.writing import write_json, write_safetensors

NAME = "timm"
DESCRIPTION = "timm VisionTransformer"
ASSUMES = {"norm_epsilon": 1e-6}
EXTRAS = r"mask_token"
OTHER_NAMES = (  # other writers of the same tensors: DeiT III, DINOv2, compiled and wrapped models
    (r"^(module\.|_orig_mod\.|model\.|backbone\.)+", ""),
    (r"\.gamma_(\d)$", r".ls\1.gamma"),
    (r"^register_tokens$", "reg_token"),
    (r"^blocks\.\d+\.(\d+)\.", r"blocks.\1."),  # DINOv2 with chunked blocks
)


def recognise(names) -> dict[str, str] | None:
    new = {}
    for name in names:
        new[name] = name
        for pattern, replacement in OTHER_NAMES:
            new[name] = re.sub(pattern, replacement, new[name])
    known = set(new.values())
    return new if {"patch_embed.proj.weight", "blocks.0.attn.qkv.weight"} <= known else None


def prepare(tensors: Tensors) -> Tensors:
    return tensors


def settings(tensors: Tensors) -> dict:
    """Constructor arguments of timm, from the metadata or from `config.json`."""
    found = {}
    for key, text in tensors.metadata.items():
        try:
            found[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[key] = text  # a plain word, like global_pool: avg
    config = tensors.config
    for key in ("architecture", "num_classes", "global_pool"):
        if key in config:
            found[key] = config[key]
    return found | config.get("model_args", {})


def describe(tensors: Tensors, hints: Hints) -> ViTConfig:
    shapes, given = tensors.shapes, settings(tensors)
    hidden_size, channels, *patch_size = shapes["patch_embed.proj.weight"]
    layers = count_blocks(shapes, "blocks.")
    mlp_dim = shapes["blocks.0.mlp.fc1.weight"][0]
    class_token, distilled = "cls_token" in shapes, "dist_token" in shapes
    registers = shapes["reg_token"][1] if "reg_token" in shapes else 0
    pooling, norm_after = _pooling(shapes, given)
    qk_norm = "blocks.0.attn.q_norm.weight" in shapes
    if qk_norm:
        heads = hidden_size // shapes["blocks.0.attn.q_norm.weight"][0]
    else:
        sizes = (hidden_size, layers, mlp_dim)
        heads = find_heads(sizes, given.get("num_heads"), hints, tensors.path)
    owners, grid = _positions(tensors, given, hints.image_size, class_token + distilled, registers)
    return ViTConfig(
        hidden_size=hidden_size,
        num_layers=layers,
        mlp_dim=mlp_dim,
        num_heads=heads,
        patch_size=tuple(patch_size),
        image_size=size_of(grid, patch_size),
        in_channels=channels,
        num_classes=shapes["head.weight"][0] if "head.weight" in shapes else 0,
        class_token=class_token,
        distillation_token=distilled,
        num_register_tokens=registers,
        position_embedding="learned" if "pos_embed" in shapes else "none",
        position_tokens=owners,
        pooling=pooling,
        representation_size=(
            shapes["pre_logits.fc.weight"][0] if "pre_logits.fc.weight" in shapes else None
        ),
        layer_scale=1e-5 if "blocks.0.ls1.gamma" in shapes else None,
        gelu=_gelu(given),
        norm_epsilon=given.get("norm_epsilon", 1e-5 if _is_clip(given) else 1e-6),
        patch_bias="patch_embed.proj.bias" in shapes,
        qkv_bias="blocks.0.attn.qkv.bias" in shapes,
        qk_norm=qk_norm,
        pre_norm="norm_pre.weight" in shapes,
        norm_after_pooling=norm_after,
    )


def _gelu(given: dict) -> str:
    """The form of GELU. Raises: UserError: another activation."""
    architecture = given.get("architecture", "")
    name = given.get("act_layer")
    if "rpn" in architecture:
        raise UserError(f"architecture={architecture!r} of timm has blocks of another kind")
    if "quickgelu" in architecture:
        name = name or "quick_gelu"
    if "so400m" in architecture and "siglip" in architecture:  # the one that timm builds so
        name = name or "gelu_tanh"
    forms = {None: "erf", "gelu": "erf", "gelu_tanh": "tanh"}
    if name not in forms:
        raise UserError(f"act_layer={name!r} of timm has no counterpart; gelu and gelu_tanh have")
    return forms[name]


def _is_clip(given: dict) -> bool:
    """timm's CLIP towers have another epsilon, which only their name says."""
    architecture = given.get("architecture", "")
    return "clip" in architecture and "siglip" not in architecture


def _pooling(shapes, given) -> tuple[str, bool]:
    """How tokens become one vector, and whether the last LayerNorm follows (timm: `fc_norm`)."""
    if given.get("pool_include_prefix"):
        raise UserError("pool_include_prefix=True of timm has no counterpart; patches are pooled")
    if "attn_pool.latent" in shapes:
        return "attention", "fc_norm.weight" in shapes
    pool = given.get("global_pool")
    if pool is None and ("fc_norm.weight" in shapes or "cls_token" not in shapes):
        pool = "avg"
    known = {None: "token", "token": "token", "avg": "mean", "": "none"}
    if pool not in known:
        raise UserError(f"global_pool={pool!r} of timm has no counterpart; token, avg and map have")
    return known[pool], "fc_norm.weight" in shapes


def _positions(tensors, given, image_size, special: int, registers: int):
    """Which tokens own a position, and the grid: (owners, (rows, columns))."""
    patch = tensors.shapes["patch_embed.proj.weight"][2:]
    stored = grid_of(given.get("img_size"), patch)
    if "pos_embed" not in tensors.shapes:
        return "all", stored or needed_grid(image_size, patch, tensors.path)
    count = tensors.shapes["pos_embed"][1]
    # timm: all, or with no_embed_class only the patches; DINOv2's registers have none.
    owners = {"all": special + registers, "class": special, "patches": 0}
    if given.get("no_embed_class"):
        owners = {"patches": 0}
    for name, prefix in owners.items():
        try:
            grid = find_grid(
                count - prefix, patch, stored=stored, image_size=image_size, path=tensors.path
            )
        except UserError:
            continue
        return name if special + registers else "all", grid
    return "all", find_grid(count - special - registers, patch, path=tensors.path)


def rules(config: ViTConfig) -> list[Rule]:
    found = patch_embedding(config, "patch_embed.proj")
    for has, ours, theirs in (
        (config.class_token, "class_token", "cls_token"),
        (config.distillation_token, "distillation_token", "dist_token"),
        (config.num_register_tokens, "register_tokens", "reg_token"),
        (config.position_embedding == "learned", "position_embedding", "pos_embed"),
    ):
        if has:
            found.append(same(f"patch_encoder/{ours}", theirs))
    if config.pre_norm:
        found += norm("pre_norm", "norm_pre")
    for index in range(config.num_layers):
        found += block_rules(config, f"block_{index:02d}", f"blocks.{index}")
    found += norm("encoder_norm", "fc_norm" if config.norm_after_pooling else "norm")
    if config.pooling == "attention":
        found += pooling_rules(config)
    return found + head_rules(config)


def head_rules(config: ViTConfig) -> list[Rule]:
    found = []
    if config.representation_size is not None:
        found += linear("pre_logits", "pre_logits.fc")
    if config.num_classes:
        found += linear("head", "head")
        if config.distillation_token:
            found += linear("head_distillation", "head_dist")
    return found


def block_rules(config: ViTConfig, ours: str, theirs: str) -> list[Rule]:
    found = [
        *norm(f"{ours}/attention_norm", f"{theirs}.norm1"),
        *linear(f"{ours}/attention/qkv", f"{theirs}.attn.qkv", config.qkv_bias),
        *linear(f"{ours}/attention/output", f"{theirs}.attn.proj"),
        *norm(f"{ours}/mlp_norm", f"{theirs}.norm2"),
        *linear(f"{ours}/mlp/expand", f"{theirs}.mlp.fc1"),
        *linear(f"{ours}/mlp/contract", f"{theirs}.mlp.fc2"),
    ]
    if config.qk_norm:
        found += norm(f"{ours}/attention/query_norm", f"{theirs}.attn.q_norm")
        found += norm(f"{ours}/attention/key_norm", f"{theirs}.attn.k_norm")
    if config.layer_scale is not None:
        found.append(same(f"{ours}/attention_scale/gamma", f"{theirs}.ls1.gamma"))
        found.append(same(f"{ours}/mlp_scale/gamma", f"{theirs}.ls2.gamma"))
    return found


def pooling_rules(config: ViTConfig) -> list[Rule]:
    """timm's `AttentionPoolLatent`."""
    return [
        same("pool/probe", "attn_pool.latent"),
        *linear("pool/query", "attn_pool.q"),
        *linear("pool/key_value", "attn_pool.kv"),
        *linear("pool/output", "attn_pool.proj"),
        *norm("pool/norm", "attn_pool.norm"),
        *linear("pool/mlp/expand", "attn_pool.mlp.fc1"),
        *linear("pool/mlp/contract", "attn_pool.mlp.fc2"),
    ]


def refuse(config) -> None:
    """Raises: UserError: names what timm's VisionTransformer has no place for."""
    for field, value, reason in (
        ("stem_layers", None, "the hybrids of timm have another stem"),
        ("representation_size", None, "timm has no pre-logits any more"),
        ("position_embedding", ("learned", "none"), "positions that are computed are not stored"),
        ("position_tokens", ("all", "patches"), "registers have positions or no token has"),
        ("pooling", ("token", "mean", "attention", "none"), ""),
    ):
        allowed = value if isinstance(value, tuple) else (value,)
        if getattr(config, field) not in allowed:
            found = getattr(config, field)
            raise UserError(f"format=timm has no place for {field}={found!r}: {reason}")


def position_resize(config, names) -> str:
    """Method of `resample.METHODS` with which its own code resamples positions.

    DINOv2's own files, told by their mask token, are of code without antialiasing, but for those
    with registers (facebookresearch/dinov2).
    """
    is_dinov2 = "mask_token" in names and not config.num_register_tokens
    return "bicubic" if is_dinov2 else "bicubic_antialias"


def preprocessing(tensors: Tensors) -> dict:
    given = tensors.config.get("pretrained_cfg", tensors.config)
    is_deit = "dist_token" in tensors.shapes or "blocks.0.ls1.gamma" in tensors.shapes
    return preprocessing_of(given, is_deit)


def write(path: Path, tensors: dict[str, np.ndarray], config, preprocessing: dict | None) -> None:
    """A `.safetensors` with the model's arguments as metadata; a folder gets `config.json` too."""
    args = model_args(config)
    metadata = {key: str(value) for key, value in args.items()}
    metadata["norm_epsilon"] = str(config.norm_epsilon)
    if path.suffix == ".safetensors":
        write_safetensors(path, tensors, metadata)
        return
    write_safetensors(path / "model.safetensors", tensors, metadata)
    write_json(path / "config.json", config_json(config, args, preprocessing))
