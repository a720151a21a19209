"""Small models for tests, one for each thing that a configuration can say."""

from keras_vit import MixerConfig, ViTConfig

TINY = dict(
    hidden_size=24,
    mlp_dim=48,
    num_heads=3,
    num_layers=2,
    patch_size=(4, 2),
    image_size=(8, 12),
    num_classes=5,
)
STEM = dict(TINY, patch_size=1, image_size=(32, 48), stem_width=0.5)
MIXER = MixerConfig(
    hidden_size=24,
    num_layers=2,
    tokens_mlp_dim=7,
    channels_mlp_dim=20,
    patch_size=(4, 2),
    image_size=(8, 12),
    num_classes=5,
)
VIT = ViTConfig(**TINY)
GAP = ViTConfig(**TINY, pooling="mean", class_token=False)
CONFIGS = {
    "token": VIT,
    "no_head": ViTConfig(**{**TINY, "num_classes": 0}),
    "gap": GAP,
    "square": ViTConfig(**{**TINY, "patch_size": 4, "image_size": 12}),
    "square_no_head": ViTConfig(**{**TINY, "patch_size": 4, "image_size": 12, "num_classes": 0}),
    "square_pre_logits": ViTConfig(
        **{**TINY, "patch_size": 4, "image_size": 12}, representation_size=7
    ),
    "gray": ViTConfig(**TINY, in_channels=1),
    "pre_logits": ViTConfig(**TINY, representation_size=7),
    "attention_pooling": ViTConfig(**TINY, pooling="attention", class_token=False),
    "attention_pooling_norm": ViTConfig(
        **TINY, pooling="attention", norm_after_pooling=True, gelu="erf"
    ),
    "unpooled": ViTConfig(**TINY, pooling="none", class_token=False, gelu="erf"),
    "no_positions": ViTConfig(**TINY, position_embedding="none", gelu="erf"),
    "class_token_gap": ViTConfig(**TINY, pooling="mean", gelu="erf"),
    "erf": ViTConfig(**TINY, gelu="erf", norm_epsilon=1e-12),
    "big_vision_token": ViTConfig(**TINY, position_tokens="patches"),
    "sincos": ViTConfig(**TINY, position_embedding="sincos2d", pooling="mean", class_token=False),
    "registers": ViTConfig(**TINY, num_register_tokens=3, gelu="erf"),
    "dinov2": ViTConfig(**TINY, layer_scale=0.5, pooling="token_mean", gelu="erf"),
    "dinov2_registers": ViTConfig(
        **TINY,
        layer_scale=0.5,
        num_register_tokens=3,
        position_tokens="class",
        pooling="token_mean",
        gelu="erf",
    ),
    "deit3": ViTConfig(**TINY, layer_scale=0.5, position_tokens="patches", gelu="erf"),
    "deit_distilled": ViTConfig(**TINY, distillation_token=True, gelu="erf"),
    "qk_norm": ViTConfig(**TINY, qk_norm=True, qkv_bias=False, gelu="erf"),
    "clip": ViTConfig(**TINY, pre_norm=True, patch_bias=False, gelu="erf"),
    "fc_norm": ViTConfig(**TINY, pooling="mean", norm_after_pooling=True, gelu="erf"),
    "hybrid": ViTConfig(**STEM, stem_layers=(1, 2)),
    "bare_stem": ViTConfig(**{**STEM, "patch_size": 4}, stem_layers=()),
    "mixer": MIXER,
}
# What each layout has a place for.
LAYOUTS = {
    "google": [
        "token", "no_head", "gap", "square", "square_no_head", "square_pre_logits", "gray",
        "pre_logits", "attention_pooling",
        "big_vision_token", "sincos", "hybrid", "bare_stem", "mixer",
    ],
    "timm": [
        "token", "no_head", "gap", "square", "square_no_head", "gray", "attention_pooling_norm",
        "attention_pooling", "erf", "big_vision_token", "registers", "deit3", "deit_distilled",
        "unpooled", "no_positions", "class_token_gap", "qk_norm", "clip", "fc_norm",
    ],
    "huggingface": [
        "token", "no_head", "square", "square_no_head", "gray", "erf", "dinov2", "dinov2_registers",
        "deit_distilled",
    ],
    "torchvision": ["square", "square_no_head", "square_pre_logits"],
    "keras": list(CONFIGS),
}  # fmt: skip
