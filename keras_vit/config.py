"""ViTConfig and MixerConfig: every choice that makes a model, checked once.

Legend, here and in every module: B batch, H W C image height, width, channels, P patch size,
N patches, T = N + prefix tokens, D hidden size, M MLP size, K heads, L blocks.
This module imports nothing of Keras, so that a command line can check a setting at once.
"""

from dataclasses import dataclass, fields
from typing import Literal, get_args, get_type_hints


class UserError(ValueError):
    """A mistake of the user's: one line that names the setting or file and what would be right.

    Commands print it without a traceback and exit with status 2.
    """


Size = int | tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """What a Vision Transformer is made of (Dosovitskiy et al. 2021, section 3.1 and table 1).

    Args:
        hidden_size: D, width of every token.
        num_layers: L, number of Transformer blocks.
        mlp_dim: M, width of the hidden layer of each block's MLP.
        num_heads: K, attention heads of each block; divides `hidden_size`.
        patch_size: P in pixels, an int or (height, width); divides the image, or for a hybrid
            the stem's feature map.
        image_size: pixels, an int or (height, width).
        in_channels: C of the images.
        num_classes: size of the head; 0 builds no head and the model returns features.
        class_token: whether a learned token is put before the patches.
        distillation_token: DeiT's second token with a head of its own (Touvron et al. 2021);
            the logits are the mean of both heads.
        num_register_tokens: learned tokens without a task (Darcet et al. 2024).
        position_embedding: "learned", "sincos2d" (fixed, Beyer et al. 2022) or "none".
        position_tokens: which tokens get a position: "all", "class" (no registers), "patches".
        pooling: "token" (the class token), "mean" (of the patch tokens), "token_mean" (both,
            side by side: DINOv2's classifier), "attention" (MAP head, Zhai et al. 2022) or "none"
            (every token).
        representation_size: width of the tanh layer before the head ("pre-logits"), or None.
        dropout: rate after the positions, the attention's output and both layers of each MLP.
        attention_dropout: rate on the attention weights.
        drop_path: stochastic depth: rate of the last block; the first has 0 (linear between).
        patch_dropout: part of the patches left out at random while training (Li et al. 2023).
        layer_scale: initial value of LayerScale (Touvron et al. 2021b), or None for no LayerScale.
        gelu: "tanh" (the original JAX code) or "erf" (timm, Hugging Face).
        norm_epsilon: epsilon of every LayerNorm.
        patch_bias: whether the patch embedding has a bias.
        qkv_bias: whether the query, key and value projections have one.
        qk_norm: LayerNorm over each head's queries and keys (Dehghani et al. 2023).
        pre_norm: LayerNorm on the tokens before the first block (CLIP).
        norm_after_pooling: the last LayerNorm acts on the pooled vector, not on each token
            (timm's `fc_norm`).
        stem_layers: units in each ResNet stage of a hybrid; () is the bare stem, None no stem.
        stem_width: width factor of the stem (1.0: 64 channels).
        remat: what training computes again in the backward pass instead of keeping it in memory:
            "none", "attention" or whole "block"s. The numbers stay the same.

    Raises: UserError: a field is out of its range or does not fit another one.
    """

    hidden_size: int
    num_layers: int
    mlp_dim: int
    num_heads: int
    patch_size: Size = 16
    image_size: Size = 224
    in_channels: int = 3
    num_classes: int = 1000
    class_token: bool = True
    distillation_token: bool = False
    num_register_tokens: int = 0
    position_embedding: Literal["learned", "sincos2d", "none"] = "learned"
    position_tokens: Literal["all", "class", "patches"] = "all"
    pooling: Literal["token", "mean", "token_mean", "attention", "none"] = "token"
    representation_size: int | None = None
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0
    patch_dropout: float = 0.0
    layer_scale: float | None = None
    gelu: Literal["tanh", "erf"] = "tanh"
    norm_epsilon: float = 1e-6
    patch_bias: bool = True
    qkv_bias: bool = True
    qk_norm: bool = False
    pre_norm: bool = False
    norm_after_pooling: bool = False
    stem_layers: tuple[int, ...] | None = None
    stem_width: float = 1.0
    remat: Literal["none", "attention", "block"] = "none"

    def __post_init__(self):
        _normalise_sizes(self)
        _check_choices(self)
        _check_positive(self, "hidden_size", "num_layers", "mlp_dim", "num_heads", "in_channels")
        _check_rates(self, "dropout", "attention_dropout", "drop_path", "patch_dropout")
        if self.hidden_size % self.num_heads:
            raise UserError(
                f"num_heads={self.num_heads} must divide hidden_size={self.hidden_size}"
            )
        _check_optional(self)
        _check_tokens(self)
        _check_stem(self)
        _check_patches(self, self.feature_size)

    @property
    def feature_size(self) -> tuple[int, int]:
        """(height, width) of what is cut into patches: the image, or the stem's feature map."""
        if self.stem_layers is None:
            return self.image_size
        # Convolution and pooling halve twice, every stage after the first once more ("SAME").
        stride = 4 * 2 ** max(0, len(self.stem_layers) - 1)
        return tuple(-(-side // stride) for side in self.image_size)

    @property
    def grid_size(self) -> tuple[int, int]:
        """(rows, columns) of the patches."""
        return tuple(
            side // patch for side, patch in zip(self.feature_size, self.patch_size, strict=True)
        )

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens before the patches: class, distillation, registers, in this order."""
        return self.class_token + self.distillation_token + self.num_register_tokens

    @property
    def num_position_prefix(self) -> int:
        """Of these, how many own a learned position."""
        special = self.class_token + self.distillation_token
        return {"all": self.num_prefix_tokens, "class": special, "patches": 0}[self.position_tokens]


@dataclass(frozen=True, kw_only=True)
class MixerConfig:
    """What an MLP-Mixer is made of (Tolstikhin et al. 2021, table 1).

    Args:
        hidden_size: D, width of every token.
        num_layers: number of Mixer blocks.
        tokens_mlp_dim: width of the hidden layer that mixes tokens.
        channels_mlp_dim: width of the hidden layer that mixes channels.
        patch_size, image_size, in_channels, num_classes, gelu, norm_epsilon: as in `ViTConfig`.
        drop_path: stochastic depth rate of the last block, linear from 0 in the first.

    Raises: UserError: a field is out of its range or does not fit another one.
    """

    hidden_size: int
    num_layers: int
    tokens_mlp_dim: int
    channels_mlp_dim: int
    patch_size: Size = 16
    image_size: Size = 224
    in_channels: int = 3
    num_classes: int = 1000
    drop_path: float = 0.0
    gelu: Literal["tanh", "erf"] = "tanh"
    norm_epsilon: float = 1e-6

    def __post_init__(self):
        _normalise_sizes(self)
        _check_choices(self)
        _check_positive(
            self, "hidden_size", "num_layers", "tokens_mlp_dim", "channels_mlp_dim", "in_channels"
        )
        _check_rates(self, "drop_path")
        _check_above_zero(self, "norm_epsilon")
        _check_patches(self, self.image_size)

    @property
    def grid_size(self) -> tuple[int, int]:
        """(rows, columns) of the patches."""
        return tuple(
            side // patch for side, patch in zip(self.image_size, self.patch_size, strict=True)
        )


def _is_int(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _normalise_sizes(config) -> None:
    """Make `image_size` and `patch_size` (height, width), and `num_classes=None` a 0."""
    for name in ("image_size", "patch_size"):
        value = getattr(config, name)
        pair = (value, value) if _is_int(value) else value
        if not (
            isinstance(pair, (tuple, list))
            and len(pair) == 2
            and all(_is_int(side) and side > 0 for side in pair)
        ):
            raise UserError(f"{name}={value!r} must be a positive int or (height, width)")
        object.__setattr__(config, name, tuple(pair))
    if config.num_classes is None:
        object.__setattr__(config, "num_classes", 0)
    if not _is_int(config.num_classes) or config.num_classes < 0:
        raise UserError(f"num_classes={config.num_classes!r} must be an int, 0 for no head")


def _check_choices(config) -> None:
    """Fields typed `Literal` hold one of their words, fields typed `bool` a bool."""
    hints = get_type_hints(type(config))
    for field in fields(config):
        value, choices = getattr(config, field.name), get_args(hints[field.name])
        if choices and all(isinstance(choice, str) for choice in choices):
            if value not in choices:
                raise UserError(f"{field.name}={value!r} must be one of {', '.join(choices)}")
        elif hints[field.name] is bool and not isinstance(value, bool):
            raise UserError(f"{field.name}={value!r} must be True or False")


def _check_positive(config, *names) -> None:
    for name in names:
        value = getattr(config, name)
        if not _is_int(value) or value < 1:
            raise UserError(f"{name}={value!r} must be an int of at least 1")


def _check_rates(config, *names) -> None:
    for name in names:
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
            raise UserError(f"{name}={value!r} must be a rate: at least 0 and less than 1")


def _check_optional(config: ViTConfig) -> None:
    if config.representation_size is not None:
        _check_positive(config, "representation_size")
    if config.layer_scale is not None:
        _check_above_zero(config, "layer_scale")
    _check_above_zero(config, "norm_epsilon", "stem_width")


def _check_above_zero(config, *names) -> None:
    for name in names:
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise UserError(f"{name}={value!r} must be a number greater than 0")


def _check_tokens(config: ViTConfig) -> None:
    count = config.num_register_tokens
    if not _is_int(count) or count < 0:
        raise UserError(f"num_register_tokens={count!r} must be an int of at least 0")
    if config.pooling in ("token", "token_mean") and not config.class_token:
        raise UserError(
            f"pooling={config.pooling!r} needs class_token=True;"
            " without one choose mean, attention or none"
        )
    if config.distillation_token and config.pooling != "token":
        raise UserError(
            f"distillation_token=True needs pooling='token' (DeiT), not {config.pooling!r}"
        )
    if config.distillation_token and config.representation_size is not None:
        raise UserError("distillation_token=True needs representation_size=None (DeiT)")
    if config.norm_after_pooling and config.pooling in ("none", "token_mean"):
        raise UserError("norm_after_pooling=True needs pooling token, mean or attention")
    if config.position_embedding == "sincos2d" and config.hidden_size % 4:
        raise UserError(
            f"hidden_size={config.hidden_size} must be divisible by 4 for"
            " position_embedding='sincos2d'"
        )


def _check_stem(config: ViTConfig) -> None:
    layers = config.stem_layers
    if layers is None:
        return
    if not isinstance(layers, (tuple, list)) or not all(_is_int(n) and n > 0 for n in layers):
        raise UserError(
            f"stem_layers={layers!r} must be None or a tuple of units in each stage, like (3, 4, 9)"
        )
    object.__setattr__(config, "stem_layers", tuple(layers))
    width = 64 * config.stem_width
    if width % 32:
        raise UserError(
            f"stem_width={config.stem_width} gives {width:g} channels, which the 32 groups of"
            " GroupNorm do not divide; use a multiple of 0.5"
        )


def _check_patches(config, feature_size) -> None:
    for axis, side, patch in zip(("height", "width"), feature_size, config.patch_size, strict=True):
        if side % patch:
            nearest = sorted({max(patch, side // patch * patch), (side // patch + 1) * patch})
            what = "image" if feature_size == config.image_size else "stem's feature map"
            raise UserError(
                f"patch_size={patch} must divide the {what}'s {axis} {side}"
                f" (image_size={config.image_size});"
                f" a {axis} of {' or '.join(map(str, nearest))} would fit"
            )
