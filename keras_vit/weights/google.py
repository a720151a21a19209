"""google: `.npz` of google-research/vision_transformer, AugReg and big_vision, both directions.

Names are those of the Flax trees, joined by "/" (vit_jax `checkpoint.py`; big_vision `utils.py`).
"""

import re
from functools import lru_cache

import numpy as np

from keras_vit.config import MixerConfig, UserError, ViTConfig
from keras_vit.weights.files import Tensors
from keras_vit.weights.google_rules import ATTENTION
from keras_vit.weights.google_rules import rules as rules  # part of a layout's face
from keras_vit.weights.layout import HALF, Hints, count_blocks, find_grid, needed_grid, size_of
from keras_vit.weights.writing import write_npz

NAME = "google"
DESCRIPTION = "google-research/vision_transformer and big_vision"
ASSUMES = {"gelu": "tanh", "norm_epsilon": 1e-6}
EXTRAS = r"txt/.*|t|b|opt/.*|extra/.*"
GRID = "keras_vit/grid_size"  # ours: written where no square table of positions shows it
PREFIXES = ("opt/target/", "params/", "target/", "img/", "params/img/")
# One module of each class before Linen numbered all of a block's modules in one row.
NUMBERED = re.compile(r"(LayerNorm|MultiHeadDotProductAttention|MlpBlock)_(\d+)")


def recognise(names) -> dict[str, str] | None:
    """Canonical names: no prefix, each class of module numbered for itself from 0."""
    new = {name: strip_prefix(name) for name in names}
    table = "Transformer/posembed_input/pos_embedding"
    new = {old: table if name == "Transformer/pos_embedding" else name for old, name in new.items()}
    known = set(new.values())
    if "cls" not in known:  # only beside a class token does the place of the table say something
        new = {old: table if name == "pos_embedding" else name for old, name in new.items()}
        known = set(new.values())
    if not known & {"embedding/kernel", "stem/kernel"} or not any(
        name.startswith(("Transformer/", "MixerBlock_")) for name in known
    ):
        return None
    return {old: renumber(name, known) for old, name in new.items()}


def renumber(name: str, names: set[str]) -> str:
    """The module numbers of a name, each class counted for itself within its block."""

    def number(match: re.Match) -> str:
        block, kind = name[: match.start()], match[1]
        pattern = re.compile(re.escape(f"{block}{kind}_") + r"(\d+)")
        used = {int(found[1]) for other in names if (found := pattern.match(other))}
        return f"{kind}_{sorted(used).index(int(match[2]))}"

    return NUMBERED.sub(number, name)


def strip_prefix(name: str) -> str:
    for prefix in sorted(PREFIXES, key=len, reverse=True):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def prepare(tensors: Tensors) -> Tensors:
    """big_vision's scanned blocks `encoderblock/...` (L, ...) as `encoderblock_0/...` and so on.

    The grid, which `write` keeps beside the weights, becomes metadata.
    """
    marker = "Transformer/encoderblock/"
    places = {}  # name -> (name in the file, index into it or ...)
    for name, shape in tensors.shapes.items():
        if name.startswith(marker):
            for index in range(shape[0]):
                one = name.replace(marker, f"Transformer/encoderblock_{index}/")
                places[one] = (name, index)
        elif name != GRID:
            places[name] = (name, ...)

    @lru_cache(maxsize=len(places))  # a stacked array is read once for all its blocks
    def stack(name: str) -> np.ndarray:
        return tensors.read(name)

    def read(name: str) -> np.ndarray:
        name, index = places[name]
        return tensors.read(name) if index is ... else stack(name)[index]

    shapes = {
        name: tensors.shapes[old] if index is ... else tensors.shapes[old][1:]
        for name, (old, index) in places.items()
    }
    metadata = {}
    if GRID in tensors.shapes:
        metadata["grid_size"] = "x".join(str(int(side)) for side in tensors.read(GRID))
    return Tensors(tensors.path, shapes, read, metadata)


def describe(tensors: Tensors, hints: Hints) -> ViTConfig | MixerConfig:
    shapes = tensors.shapes
    if "stem/kernel" in shapes:
        return _describe_mixer(tensors, hints)
    *patch_size, channels, hidden_size = shapes["embedding/kernel"]
    stem = _describe_stem(shapes)
    stride = 1 if not stem else 4 * 2 ** max(0, len(stem["stem_layers"]) - 1)
    position_embedding, positions = _positions(shapes)
    class_token = "cls" in shapes
    # big_vision gives the class token no position and keeps the table at the top.
    with_class = class_token and position_embedding != "pos_embedding"
    step = tuple(side * stride for side in patch_size)
    if positions is None:
        grid = _stored_grid(tensors) or needed_grid(hints.image_size, step, tensors.path)
    else:
        grid = find_grid(
            positions - with_class,
            step,
            stored=_stored_grid(tensors),
            image_size=hints.image_size,
            path=tensors.path,
        )
    block = "Transformer/encoderblock_0"
    return ViTConfig(
        hidden_size=hidden_size,
        num_layers=count_blocks(shapes, "Transformer/encoderblock_"),
        mlp_dim=shapes[f"{block}/MlpBlock_0/Dense_0/kernel"][1],
        num_heads=shapes[f"{block}/{ATTENTION}/query/kernel"][1],
        patch_size=tuple(patch_size),
        image_size=size_of(grid, step),
        in_channels=shapes["conv_root/kernel"][2] if stem else channels,
        num_classes=shapes["head/kernel"][1] if "head/kernel" in shapes else 0,
        class_token=class_token,
        position_embedding="learned" if positions else "sincos2d",
        position_tokens="all" if with_class or not class_token else "patches",
        pooling="attention" if "MAPHead_0/probe" in shapes else "token" if class_token else "mean",
        representation_size=shapes["pre_logits/kernel"][1]
        if "pre_logits/kernel" in shapes
        else None,
        gelu="tanh",
        norm_epsilon=1e-6,
        **stem,
    )


def _positions(shapes) -> tuple[str, int | None]:
    """Name of the position table and how many it has; None: fixed sine and cosine, not stored."""
    for name in ("Transformer/posembed_input/pos_embedding", "pos_embedding"):
        if name in shapes:
            return name, shapes[name][1]
    return "pos_embedding", None


def _stored_grid(tensors: Tensors):
    stored = tensors.metadata.get("grid_size")
    return tuple(int(side) for side in stored.split("x")) if stored else None


def _describe_stem(shapes) -> dict:
    if "conv_root/kernel" not in shapes:
        return {}
    units = {match[0] for name in shapes if (match := re.match(r"block\d+/unit\d+", name))}
    stages = [unit.split("/")[0] for unit in units]
    return {
        "stem_layers": tuple(stages.count(f"block{n + 1}") for n in range(len(set(stages)))),
        "stem_width": shapes["conv_root/kernel"][3] / 64,
    }


def _describe_mixer(tensors: Tensors, hints: Hints) -> MixerConfig:
    shapes = tensors.shapes
    *patch_size, channels, hidden_size = shapes["stem/kernel"]
    tokens, tokens_mlp_dim = shapes["MixerBlock_0/token_mixing/Dense_0/kernel"]
    grid = find_grid(
        tokens,
        patch_size,
        stored=_stored_grid(tensors),
        image_size=hints.image_size,
        path=tensors.path,
    )
    return MixerConfig(
        hidden_size=hidden_size,
        num_layers=count_blocks(shapes, "MixerBlock_"),
        tokens_mlp_dim=tokens_mlp_dim,
        channels_mlp_dim=shapes["MixerBlock_0/channel_mixing/Dense_0/kernel"][1],
        patch_size=tuple(patch_size),
        image_size=size_of(grid, patch_size),
        in_channels=channels,
        num_classes=shapes["head/kernel"][1] if "head/kernel" in shapes else 0,
    )


def position_resize(config, names) -> str:
    """Method of `resample.METHODS` with which its own code resamples positions."""
    return "bilinear_corners"  # vit_jax checkpoint.py


def preprocessing(tensors: Tensors) -> dict:
    """vit_jax `input_pipeline.py`: both sides scaled to the size, bilinear, pixels in -1..1."""
    return {**HALF, "resize": "squash", "crop_fraction": 1.0, "interpolation": "bilinear"}


NOT_HERE = {  # what the original code has no place for
    "distillation_token": False,
    "num_register_tokens": 0,
    "layer_scale": None,
    "qk_norm": False,
    "qkv_bias": True,
    "patch_bias": True,
    "pre_norm": False,
    "norm_after_pooling": False,
}


def refuse(config) -> None:
    """Raises: UserError: names what the layout cannot hold, or would be read back as another."""
    for field, value in NOT_HERE.items():
        if getattr(config, field, value) != value:
            raise UserError(f"format=google has no place for {field}={getattr(config, field)!r}")
    if isinstance(config, MixerConfig):
        return
    if config.position_embedding == "none" or config.pooling in ("none", "token_mean"):
        words = f"position_embedding={config.position_embedding!r}, pooling={config.pooling!r}"
        raise UserError(f"format=google has no place for {words}")
    if config.class_token and config.pooling != "token":
        raise UserError(
            f"format=google has no place for class_token=True beside pooling={config.pooling!r}"
        )


PUBLIC = {"LayerNorm_1": "LayerNorm_2", ATTENTION: ATTENTION[:-1] + "1", "MlpBlock_0": "MlpBlock_3"}


def public_name(name: str) -> str:
    """The published files number a block's modules in one row: timm and vit_jax read both."""
    if not name.startswith("Transformer/encoderblock_"):
        return name
    return "/".join(PUBLIC.get(part, part) for part in name.split("/"))


def write(path, tensors: dict[str, np.ndarray], config, preprocessing: dict | None) -> None:
    """An uncompressed `.npz` with the names of the published files."""
    content = {public_name(name): array for name, array in tensors.items()}
    rows, columns = config.grid_size
    is_computed = getattr(config, "position_embedding", None) == "sincos2d"
    if rows != columns or is_computed:  # else the positions show it
        content[GRID] = np.array([rows, columns])
    write_npz(path, content)
