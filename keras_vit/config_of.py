"""config_of: the configuration of a model, read off its layers.

Nothing is attached to a model: what `create_model` builds is an ordinary Keras model, and after
`save`, `load_model` or `clone_model` its layers still say what it is.
"""

import keras

from keras_vit.config import MixerConfig, UserError, ViTConfig

POOLINGS = {
    "TokenPooling": "token",
    "MeanPooling": "mean",
    "TokenMeanPooling": "token_mean",
    "AttentionPooling": "attention",
}


def config_of(model: keras.Model) -> ViTConfig | MixerConfig:
    """The configuration with which `create_model` makes this model.

    Raises: UserError: no model of keras_vit, like one with other layers put on top.
    """
    return read_config(model.get_config(), model.name)


def read_config(functional: dict, name: str) -> ViTConfig | MixerConfig:
    """The same from what `model.get_config()` gives, or a `.keras` file holds as JSON.

    Nothing is made from it: only names and numbers of layers that are ours are read.
    """
    layers = {}
    for layer in functional.get("layers", ()):
        layers[layer["name"]] = (layer["class_name"], layer["config"])
    known = layers.keys() >= {"image", "patches", "patch_encoder", "block_00"}
    if not known:
        raise UserError(f"model {name!r} is no model of keras_vit: it has no layer patch_encoder")
    strangers = [key for key in layers if not _is_ours(key)]
    if strangers:
        kind = layers[strangers[0]][0]
        raise UserError(f"model {name!r} holds layer {strangers[0]!r} ({kind}), no layer of ours")
    fields = _shared(layers)
    return (
        _vit(layers, fields)
        if layers["block_00"][0] == "TransformerBlock"
        else _mixer(layers, fields)
    )


OWN_NAMES = (
    "image", "patches", "patch_encoder", "embedding_dropout", "patch_dropout", "pre_norm",
    "encoder_norm", "pool", "pool_distillation", "pre_logits", "head", "head_distillation",
    "head_mean",
)  # fmt: skip


def _is_ours(name: str) -> bool:
    return name in OWN_NAMES or name.startswith(("block_", "stem_"))


def _shared(layers: dict) -> dict:
    """Fields that ViT and Mixer have alike."""
    *image_size, in_channels = layers["image"][1]["batch_shape"][1:]
    blocks = [config for name, (_, config) in layers.items() if name.startswith("block_")]
    return {
        "hidden_size": layers["patch_encoder"][1]["hidden_size"],
        "num_layers": len(blocks),
        "patch_size": tuple(layers["patches"][1]["patch_size"]),
        "image_size": tuple(image_size),
        "in_channels": in_channels,
        "num_classes": layers["head"][1]["units"] if "head" in layers else 0,
        "drop_path": blocks[-1]["drop_path"],
        "gelu": blocks[0]["gelu"],
        "norm_epsilon": blocks[0]["norm_epsilon"],
    }


def _mixer(layers: dict, fields: dict) -> MixerConfig:
    block = layers["block_00"][1]
    return MixerConfig(
        **fields,
        tokens_mlp_dim=block["tokens_mlp_dim"],
        channels_mlp_dim=block["channels_mlp_dim"],
    )


def _vit(layers: dict, fields: dict) -> ViTConfig:
    block, encoder = layers["block_00"][1], layers["patch_encoder"][1]
    names = list(layers)
    pool = layers["pool"][0] if "pool" in layers else None
    return ViTConfig(
        **fields,
        mlp_dim=block["mlp_dim"],
        num_heads=block["num_heads"],
        class_token=encoder["class_token"],
        distillation_token=encoder["distillation_token"],
        num_register_tokens=encoder["num_register_tokens"],
        position_embedding=encoder["position_embedding"],
        position_tokens=encoder["position_tokens"],
        pooling=POOLINGS.get(pool, "none"),
        representation_size=layers["pre_logits"][1]["units"] if "pre_logits" in layers else None,
        dropout=block["dropout"],
        attention_dropout=block["attention_dropout"],
        patch_dropout=layers["patch_dropout"][1]["rate"] if "patch_dropout" in layers else 0.0,
        layer_scale=block["layer_scale"],
        patch_bias=encoder["use_bias"],
        qkv_bias=block["use_qkv_bias"],
        qk_norm=block["qk_norm"],
        pre_norm="pre_norm" in layers,
        remat=block.get("remat", "none"),  # files of before do not say
        norm_after_pooling=pool is not None and names.index("encoder_norm") > names.index("pool"),
        **_stem(layers),
    )


def _stem(layers: dict) -> dict:
    if "stem_root" not in layers:
        return {}
    stages = [name.split("_")[1] for name in layers if name.startswith("stem_block")]
    return {
        "stem_layers": tuple(stages.count(stage) for stage in dict.fromkeys(stages)),
        "stem_width": _stem_channels(layers["stem_root"][1]) / 64,
    }


def _stem_channels(root: dict) -> int:
    return root["filters"]
