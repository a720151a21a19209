"""The named models: one line for each size, and how a name like "ViT-B/16" is read."""

import difflib
import re
from dataclasses import fields, replace

from keras_vit.config import MixerConfig, UserError, ViTConfig

# fmt: off
SIZE_FIELDS = ("hidden_size", "num_layers", "mlp_dim", "num_heads", "dropout")
SIZES = {
    "xxs":    (64, 4, 256, 4, 0.0),        # ours: images of 8 to 16 pixels
    "xs":     (128, 6, 384, 4, 0.0),       # ours: images of 64 pixels or fewer, small data
    "mu":     (32, 1, 128, 2, 0.0),        # big_vision models/vit.py, for tests
    "ti":     (192, 12, 768, 3, 0.0),      # Touvron et al. 2021; Steiner et al. 2022, table 2
    "s":      (384, 12, 1536, 6, 0.0),     # the same
    "m":      (512, 12, 2048, 8, 0.0),     # big_vision models/vit.py
    "b":      (768, 12, 3072, 12, 0.0),    # Dosovitskiy et al. 2021, table 1
    "l":      (1024, 24, 4096, 16, 0.1),   # the same; L/32 without dropout (vit_jax configs)
    "so400m": (1152, 27, 4304, 16, 0.0),   # Alabdulmohsin et al. 2023
    "h":      (1280, 32, 5120, 16, 0.1),   # Dosovitskiy et al. 2021, table 1
    "g":      (1408, 40, 6144, 16, 0.0),   # Zhai et al. 2022, table 2 ("giant")
    "gigantic": (1664, 48, 8192, 16, 0.0),   # the same, "G" ("gigantic")
}
# Ours follow Simple ViT (Beyer et al. 2022): from few images it learns much faster.
SIMPLE = {"position_embedding": "sincos2d", "pooling": "mean", "class_token": False}
STEM_STRIDE = 4
# Endings of a name, "vit_s16_gap": average pooling, Simple ViT, and DeiT's second token.
ENDINGS = {
    "_gap": {"pooling": "mean", "class_token": False},
    "_simple": SIMPLE,
    "_distilled": {"pooling": "token", "class_token": True, "distillation_token": True},
}
# name: (size, patch_size, stem_layers, dropout), vit_jax configs/models.py
HYBRIDS = {
    "r_vit_ti16":  ("ti", 8, (), 0.0),            # "16" is the name; the stride in code is 32
    "r26_vit_s32": ("s", 1, (2, 2, 2, 2), 0.0),
    "r26_vit_b32": ("b", 1, (2, 2, 2, 2), 0.0),
    "r50_vit_b16": ("b", 1, (3, 4, 9), 0.1),
    "r50_vit_l32": ("l", 1, (3, 4, 6, 3), 0.1),
}
# Tolstikhin et al. 2021, table 1
MIXER_SIZE_FIELDS = ("hidden_size", "num_layers", "tokens_mlp_dim", "channels_mlp_dim")
MIXER_SIZES = {
    "s": (512, 8, 256, 2048),
    "b": (768, 12, 384, 3072),
    "l": (1024, 24, 512, 4096),
}
PUBLISHED = (
    "vit_ti16", "vit_s16", "vit_s32", "vit_b8", "vit_b16", "vit_b32", "vit_l16", "vit_l32",
    "vit_h14", "vit_s16_gap", "vit_s32_gap", "vit_b16_gap", "vit_b32_gap", "vit_so400m14",
    "vit_g14", "vit_gigantic14", *HYBRIDS, "mixer_s16", "mixer_s32", "mixer_b16", "mixer_b32",
    "mixer_l16",
)
# fmt: on


def list_models() -> list[str]:
    """Names of the published models. Other patch sizes may be written too: `"vit_ti4"`.

    So may DeiT's with a distillation token: `"vit_s16_distilled"`.
    """
    return list(PUBLISHED)


def find_config(name: str, **overrides) -> ViTConfig | MixerConfig:
    """The configuration that a name stands for, with any field replaced.

    Args:
        name: a name of `list_models()`, the same with any patch size ("vit_s8"), or as papers
            and the original code write it: "ViT-B/16", "ViT-B_16-gap-norep", "R50+ViT-L_32",
            "Mixer-B/16". "ViT-G/14" is the gigantic model, "ViT-g/14" the giant one.
        **overrides: fields of `ViTConfig` (or `MixerConfig`).

    Raises:
        UserError: an unknown name or field (with the nearest one), or a field out of range.
    """
    config_class, settings = _read(name)
    _check_known(config_class, overrides)
    return config_class(**{**settings, **overrides})


def name_of(config: ViTConfig | MixerConfig) -> str | None:
    """The variant with these sizes, "vit_s14"; None: no named one. The rest may differ from it."""
    patch = config.patch_size[0]
    if isinstance(config, MixerConfig):
        key, table, kind = _sizes(config, MIXER_SIZE_FIELDS), MIXER_SIZES, "mixer"
        found = [size for size, values in table.items() if values == key]
    else:
        for name, (size, hybrid_patch, stem_layers, _) in HYBRIDS.items():
            if (SIZES[size][:4], hybrid_patch, stem_layers) == (
                _sizes(config, SIZE_FIELDS[:4]),
                patch,
                config.stem_layers,
            ):
                return name
        key, kind = _sizes(config, SIZE_FIELDS[:4]), "vit"
        found = [size for size, values in SIZES.items() if values[:4] == key]
    plain = getattr(config, "stem_layers", None) is None and len(set(config.patch_size)) == 1
    return f"{kind}_{found[0]}{patch}" if found and plain else None


def _sizes(config, names) -> tuple:
    return tuple(getattr(config, name) for name in names)


def override(config: ViTConfig | MixerConfig, overrides: dict) -> ViTConfig | MixerConfig:
    """The configuration with some fields replaced, checked again.

    Raises:
        UserError: an unknown field (with the nearest one), or a field out of range.
    """
    _check_known(type(config), overrides)
    return replace(config, **overrides)


def _check_known(config_class: type, overrides: dict) -> None:
    known = [field.name for field in fields(config_class)]
    for key in overrides:
        if key not in known:
            raise UserError(f"{key} is no setting of {config_class.__name__}{_nearest(key, known)}")


def _read(name: str) -> tuple[type, dict]:
    """The class and the settings that a name stands for."""
    if not isinstance(name, str):
        raise UserError(f"model={name!r} must be a name, like 'vit_b16', or a configuration")
    plain = re.sub(r"(^|[-_ ])G([-_/ ]?\d)", r"\1gigantic\2", name)
    plain = re.sub(r"[-_/+ ]+", "_", plain).lower().removesuffix("_norep")
    plain = re.sub(r"_(\d+)(_[a-z]+)?$", r"\1\2", plain)
    if plain in HYBRIDS or plain.startswith("r_vit_xs"):
        return ViTConfig, _hybrid(plain)
    match = re.fullmatch(r"(vit|mixer)_(so400m|[a-z]+)(\d+)(_gap|_simple|_distilled)?", plain)
    if match and match[1] == "vit" and match[2] in SIZES:
        settings = dict(zip(SIZE_FIELDS, SIZES[match[2]], strict=True))
        settings["patch_size"] = int(match[3])
        if match[2] == "l" and match[3] == "32":  # set back in vit_jax configs/models.py
            settings["dropout"] = 0.0
        if match[2] in ("xs", "xxs"):
            settings |= SIMPLE
        settings |= ENDINGS.get(match[4], {})
        return ViTConfig, settings
    if match and match[1] == "mixer" and match[2] in MIXER_SIZES and not match[4]:
        settings = dict(zip(MIXER_SIZE_FIELDS, MIXER_SIZES[match[2]], strict=True))
        return MixerConfig, settings | {"patch_size": int(match[3])}
    raise UserError(f"model={name!r} is unknown{_nearest(plain, PUBLISHED)}")


def _hybrid(plain: str) -> dict:
    if plain in HYBRIDS:
        size, patch_size, stem_layers, dropout = HYBRIDS[plain]
        settings = dict(zip(SIZE_FIELDS, SIZES[size], strict=True))
        return settings | {
            "patch_size": patch_size, "stem_layers": stem_layers, "dropout": dropout,
        }  # fmt: skip
    stride = plain.removeprefix("r_vit_xs")
    if not stride.isdecimal() or int(stride) == 0 or int(stride) % STEM_STRIDE:
        raise UserError(f"model={plain!r} must end in a multiple of {STEM_STRIDE}")
    # Ours for few small images: a convolution and a pooling, which halve twice, before the patches.
    settings = dict(zip(SIZE_FIELDS, SIZES["xs"], strict=True)) | SIMPLE
    return settings | {"patch_size": int(stride) // STEM_STRIDE, "stem_layers": ()}


def _nearest(word: str, known) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
