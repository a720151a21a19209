"""What timm keeps beside the tensors: a model's arguments, and a hub folder's `config.json`."""

from keras_vit.config import ViTConfig
from keras_vit.weights.layout import HALF, IMAGENET


def preprocessing_of(given: dict, is_deit: bool) -> dict:
    """timm's `pretrained_cfg`, or what its ViTs have by default; DeiT has ImageNet's mean."""
    default = IMAGENET if is_deit else HALF
    interpolation = given.get("interpolation", "bicubic")
    return {
        "mean": list(given.get("mean", default["mean"])),
        "std": list(given.get("std", default["std"])),
        "resize": "squash" if given.get("crop_mode") == "squash" else "crop",
        "crop_fraction": given.get("crop_pct", 0.9),
        "interpolation": interpolation if interpolation == "bilinear" else "bicubic",
    }


def model_args(config: ViTConfig) -> dict:
    """Arguments with which `timm.models.VisionTransformer` is this model."""
    pools = {"token": "token", "mean": "avg", "attention": "map", "none": ""}
    args = {
        "img_size": config.image_size,
        "patch_size": config.patch_size,
        "in_chans": config.in_channels,
        "num_classes": config.num_classes,
        "global_pool": pools[config.pooling],
        "embed_dim": config.hidden_size,
        "depth": config.num_layers,
        "num_heads": config.num_heads,
        "mlp_ratio": config.mlp_dim / config.hidden_size,
        "qkv_bias": config.qkv_bias,
        "qk_norm": config.qk_norm,
        "init_values": config.layer_scale,
        "class_token": config.class_token,
        "no_embed_class": config.position_tokens == "patches",
        "reg_tokens": config.num_register_tokens,
        "pos_embed": "learn" if config.position_embedding == "learned" else "none",
        "pre_norm": config.pre_norm,
        "fc_norm": config.norm_after_pooling,
    }
    if config.gelu == "tanh":
        args["act_layer"] = "gelu_tanh"
    return args


def config_json(config: ViTConfig, args: dict, preprocessing: dict | None) -> dict:
    """`config.json` as on the hub."""
    cfg = {
        "input_size": [config.in_channels, *config.image_size],
        "num_classes": config.num_classes,
    }
    if preprocessing is not None:
        cfg |= {
            "mean": preprocessing["mean"],
            "std": preprocessing["std"],
            "interpolation": preprocessing["interpolation"],
            "crop_pct": preprocessing["crop_fraction"],
            "crop_mode": "squash" if preprocessing["resize"] == "squash" else "center",
        }
    kind = (
        "deit_base_distilled_patch16_224" if config.distillation_token else "vit_base_patch16_224"
    )
    return {
        "architecture": kind,  # any: model_args say what this one is
        "num_classes": config.num_classes,
        "num_features": config.hidden_size,
        "global_pool": args["global_pool"],
        "model_args": args,
        "pretrained_cfg": cfg,
    }
