"""`config.json` and `preprocessor_config.json`: what Hugging Face keeps beside the tensors."""

from keras_vit.config import ViTConfig
from keras_vit.weights.layout import HALF, IMAGENET

RESAMPLE = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers, as in preprocessor_config.json


def preprocessing_of(given: dict, dino: bool, deit: bool) -> dict:
    """`preprocessor_config.json`, or what the class of the model has by default."""
    default = IMAGENET if dino or deit else HALF
    crop = given.get("do_center_crop", dino or deit)
    return {
        "mean": list(given.get("image_mean", default["mean"])),
        "std": list(given.get("image_std", default["std"])),
        "resize": "crop" if crop else "squash",
        "crop_fraction": _crop_fraction(given) if crop else 1.0,
        "interpolation": RESAMPLE.get(given.get("resample", 3 if dino or deit else 2), "bicubic"),
    }


def _crop_fraction(given: dict) -> float:
    """Cut size over scaled size: 224 of 256 where the file does not say."""
    crop, size = given.get("crop_size", 224), given.get("size", 256)
    crop = crop.get("height", 224) if isinstance(crop, dict) else crop
    size = size.get("shortest_edge", size.get("height", 256)) if isinstance(size, dict) else size
    return min(1.0, crop / size)


def model_type(config: ViTConfig) -> tuple[str, str, str]:
    """(model_type, class with a head, prefix of its backbone)."""
    if config.layer_scale is not None:
        if config.num_register_tokens:
            name = "dinov2_with_registers"
            return name, "Dinov2WithRegistersForImageClassification", name
        return "dinov2", "Dinov2ForImageClassification", "dinov2"
    if config.distillation_token:
        return "deit", "DeiTForImageClassificationWithTeacher", "deit"
    if config.num_register_tokens:
        return "deit", "DeiTForImageClassification", "deit"
    return "vit", "ViTForImageClassification", "vit"


def config_json(config: ViTConfig, kind: str, architecture: str) -> dict:
    height, width = config.image_size
    patch = config.patch_size
    content = {
        "architectures": [architecture],
        "model_type": kind,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_dim,
        "hidden_act": "gelu" if config.gelu == "erf" else "gelu_pytorch_tanh",
        "layer_norm_eps": config.norm_epsilon,
        "image_size": height if height == width else [height, width],
        "patch_size": patch[0] if patch[0] == patch[1] else list(patch),
        "num_channels": config.in_channels,
        "qkv_bias": config.qkv_bias,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    if config.layer_scale is not None:
        content |= {"mlp_ratio": config.mlp_dim // config.hidden_size, "use_swiglu_ffn": False}
        if config.num_register_tokens:
            content["num_register_tokens"] = config.num_register_tokens
    if config.num_classes:
        names = {str(index): f"LABEL_{index}" for index in range(config.num_classes)}
        content |= {"id2label": names, "label2id": {v: int(k) for k, v in names.items()}}
    return content


def preprocessor_json(config: ViTConfig, preprocessing: dict) -> dict:
    height, width = config.image_size
    crop = preprocessing["resize"] == "crop"
    size = {"height": height, "width": width}
    resample = {"bilinear": 2, "bicubic": 3}[preprocessing["interpolation"]]
    content = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "rescale_factor": 1 / 255,
        "image_mean": preprocessing["mean"],
        "image_std": preprocessing["std"],
        "resample": resample,
        "do_center_crop": crop,
        "size": size,
    }
    if crop:
        shortest = round(min(height, width) / preprocessing["crop_fraction"])
        content |= {
            "image_processor_type": "BitImageProcessor",  # ViT's own does not crop
            "size": {"shortest_edge": shortest},
            "crop_size": size,
        }
    return content
