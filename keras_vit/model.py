"""The Vision Transformer as a functional Keras model. Read this first, then one layer.

Legend: B batch, H W C image, P patch size, N patches, T = N + prefix tokens, D hidden size.
"""

import re

import keras

from keras_vit.config import MixerConfig, ViTConfig
from keras_vit.layers import (
    AttentionPooling,
    BottleneckUnit,
    MeanPooling,
    PatchDropout,
    PatchEncoder,
    Patches,
    ResNetRoot,
    TokenMeanPooling,
    TokenPooling,
    TransformerBlock,
)
from keras_vit.mixer import mlp_mixer
from keras_vit.variants import find_config, override


def build_model(model, *, dtype=None, name=None, **overrides):
    """A model with fresh weights; arguments and errors are those of `create_model`."""
    if isinstance(model, (ViTConfig, MixerConfig)):
        config, default_name = override(model, overrides), type(model).__name__
    else:
        config, default_name = find_config(model, **overrides), model
    build = mlp_mixer if isinstance(config, MixerConfig) else vision_transformer
    return build(config, dtype=dtype, name=name or model_name(default_name))


def model_name(name: str) -> str:
    """A variant's name as Keras allows it: "ViT-B/16" is "vit_b_16"."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


def vision_transformer(config: ViTConfig, dtype=None, name="vit"):
    """The model of `config`: figure 1 of Dosovitskiy et al. 2021, top to bottom."""
    images = keras.Input((*config.image_size, config.in_channels), name="image")  # (B, H, W, C)
    x = images
    if config.stem_layers is not None:
        x = resnet_stem(x, config, dtype)  # (B, H', W', C')
    x = Patches(config.patch_size, dtype=dtype, name="patches")(x)  # (B, N, P*P*C)
    x = PatchEncoder(
        config.hidden_size,
        config.grid_size,
        class_token=config.class_token,
        distillation_token=config.distillation_token,
        num_register_tokens=config.num_register_tokens,
        position_embedding=config.position_embedding,
        position_tokens=config.position_tokens,
        use_bias=config.patch_bias,
        dtype=dtype,
        name="patch_encoder",
    )(x)  # (B, T, D)
    x = keras.layers.Dropout(config.dropout, dtype=dtype, name="embedding_dropout")(x)
    if config.patch_dropout:
        x = PatchDropout(
            config.patch_dropout, config.num_prefix_tokens, dtype=dtype, name="patch_dropout"
        )(x)
    if config.pre_norm:
        x = layer_norm(config, dtype, "pre_norm")(x)
    for index in range(config.num_layers):
        x = TransformerBlock(
            config.num_heads,
            config.mlp_dim,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            drop_path=config.drop_path * index / max(1, config.num_layers - 1),
            layer_scale=config.layer_scale,
            gelu=config.gelu,
            use_qkv_bias=config.qkv_bias,
            qk_norm=config.qk_norm,
            norm_epsilon=config.norm_epsilon,
            remat=config.remat,
            dtype=dtype,
            name=f"block_{index:02d}",
        )(x)
    if not config.norm_after_pooling:
        x = layer_norm(config, dtype, "encoder_norm")(x)
    if config.distillation_token:
        outputs = distilled_head(x, config, dtype)
    else:
        outputs = head(pool(x, config, dtype), config, dtype)
    return keras.Model(images, outputs, name=name)


def resnet_stem(x, config: ViTConfig, dtype):
    """The hybrid's convolutions: names of the original, `block1_unit1` and so on."""
    width = int(64 * config.stem_width)
    x = ResNetRoot(width, dtype=dtype, name="stem_root")(x)  # (B, H/4, W/4, width)
    for stage, units in enumerate(config.stem_layers):
        for unit in range(units):
            x = BottleneckUnit(
                width * 2**stage,
                strides=2 if stage > 0 and unit == 0 else 1,
                dtype=dtype,
                name=f"stem_block{stage + 1}_unit{unit + 1}",
            )(x)
    return x


def layer_norm(config, dtype, name):
    return keras.layers.LayerNormalization(epsilon=config.norm_epsilon, dtype=dtype, name=name)


def pool(x, config: ViTConfig, dtype):
    """Tokens `(B, T, D)` to one vector `(B, D)`, `(B, 2*D)` for token_mean."""
    if config.pooling == "token":
        x = TokenPooling(dtype=dtype, name="pool")(x)
    elif config.pooling == "mean":
        x = MeanPooling(config.num_prefix_tokens, dtype=dtype, name="pool")(x)
    elif config.pooling == "token_mean":
        x = TokenMeanPooling(config.num_prefix_tokens, dtype=dtype, name="pool")(x)  # (B, 2*D)
    elif config.pooling == "attention":
        x = AttentionPooling(
            config.num_heads,
            config.mlp_dim,
            config.num_prefix_tokens,
            gelu=config.gelu,
            norm_epsilon=config.norm_epsilon,
            dtype=dtype,
            name="pool",
        )(x)
    if config.norm_after_pooling:
        x = layer_norm(config, dtype, "encoder_norm")(x)
    return x


def head(x, config: ViTConfig, dtype):
    """Pre-logits (if any) and logits (if any)."""
    if config.representation_size is not None:
        x = keras.layers.Dense(
            config.representation_size,
            activation="tanh",
            kernel_initializer="lecun_normal",
            dtype=dtype,
            name="pre_logits",
        )(x)
    return logits_layer(config, "head")(x) if config.num_classes else x


def distilled_head(x, config: ViTConfig, dtype):
    """DeiT: a head for each of the two tokens, the mean of both is the answer."""
    norm_later = config.norm_after_pooling
    tokens = [
        TokenPooling(index, dtype=dtype, name=name)(x)
        for index, name in enumerate(("pool", "pool_distillation"))
    ]
    if norm_later:
        norm = layer_norm(config, dtype, "encoder_norm")
        tokens = [norm(token) for token in tokens]
    if config.num_classes:
        names = ("head", "head_distillation")
        tokens = [
            logits_layer(config, name)(token) for name, token in zip(names, tokens, strict=True)
        ]
    # Not the global policy: it might bring logits back to half precision.
    dtype = "float32" if config.num_classes else dtype
    return keras.layers.Average(dtype=dtype, name="head_mean")(tokens)


def logits_layer(config, name):
    """Zero kernel as in the original; float32, so that the loss is safe in half precision."""
    return keras.layers.Dense(
        config.num_classes, kernel_initializer="zeros", dtype="float32", name=name
    )


def intermediates(model):
    """Every intermediate value of a model of ours, by name.

    Args:
        model: what `create_model` returned, or the same loaded from a file.

    Returns:
        A `keras.Model` with the same weights, from images to a dict: the output of each layer by
        its name ("patches", "patch_encoder", "block_00", ..., "head") and from inside the blocks
        "block_00/attention_scores" `(B, K, T, T)`, "block_00/attention",
        "block_00/after_attention" and "block_00/mlp" `(B, T, D)`. "patch_embedding" is the linear
        embedding `(B, N, D)`, before tokens and positions.
    """
    outputs = {}
    for layer in model.layers[1:]:
        outputs[layer.name] = layer.output
        if isinstance(layer, PatchEncoder):
            outputs["patch_embedding"] = layer.projection(layer.input)
        if isinstance(layer, TransformerBlock):
            steps = BlockSteps(layer)(layer.input)
            outputs |= {f"{layer.name}/{step}": value for step, value in steps.items()}
    return keras.Model(model.input, outputs, name=f"{model.name}_intermediates")


class BlockSteps(keras.layers.Layer):
    """A block's `steps` as a layer, since a functional graph wants each name only once."""

    def __init__(self, block):
        super().__init__(dtype=block.dtype_policy, name=f"{block.name}_steps")
        self.block = block

    def call(self, inputs):
        steps = self.block.steps(inputs, training=False)
        del steps["output"]  # is the block's own output
        return steps
