"""Rules of the google layout: which of our variables is which array of the Flax tree."""

import numpy as np

from keras_vit.config import MixerConfig, ViTConfig
from keras_vit.weights.layout import Rule, concatenated, same

ATTENTION = "MultiHeadDotProductAttention_0"


def rules(config: ViTConfig | MixerConfig) -> list[Rule]:
    if isinstance(config, MixerConfig):
        return _mixer_rules(config)
    top_positions = config.position_tokens == "patches" and config.class_token
    table = "pos_embedding" if top_positions else "Transformer/posembed_input/pos_embedding"
    found = [*_stem_rules(config), *_embedding(config, "embedding")]
    if config.class_token:
        found.append(same("patch_encoder/class_token", "cls"))
    if config.position_embedding == "learned":
        found.append(same("patch_encoder/position_embedding", table))
    for index in range(config.num_layers):
        found += _block_rules(config, f"block_{index:02d}", f"Transformer/encoderblock_{index}")
    found += norm("encoder_norm", "Transformer/encoder_norm")
    if config.pooling == "attention":
        found += _pooling_rules(config)
    if config.representation_size is not None:
        found += dense("pre_logits", "pre_logits")
    return found + (dense("head", "head") if config.num_classes else [])


def dense(ours: str, theirs: str) -> list[Rule]:
    return [same(f"{ours}/{part}", f"{theirs}/{part}") for part in ("kernel", "bias")]


def norm(ours: str, theirs: str) -> list[Rule]:
    return [same(f"{ours}/gamma", f"{theirs}/scale"), same(f"{ours}/beta", f"{theirs}/bias")]


def _embedding(config, theirs: str) -> list[Rule]:
    """The patch convolution `(P, P, C, D)` as our matrix `(P*P*C, D)`."""

    def to_theirs(kernel):
        return (kernel.reshape(*config.patch_size, -1, config.hidden_size),)

    kernel = Rule(
        "patch_encoder/projection/kernel",
        (f"{theirs}/kernel",),
        lambda kernel: kernel.reshape(-1, kernel.shape[-1]),
        to_theirs,
    )
    return [kernel, same("patch_encoder/projection/bias", f"{theirs}/bias")]


def _block_rules(config: ViTConfig, ours: str, theirs: str) -> list[Rule]:
    attention = f"{theirs}/{ATTENTION}"
    parts = [f"{attention}/{part}" for part in ("query", "key", "value")]
    return [
        *norm(f"{ours}/attention_norm", f"{theirs}/LayerNorm_0"),
        *_heads_in(config, f"{ours}/attention/qkv", parts),
        *_heads_out(config, f"{ours}/attention/output", f"{attention}/out"),
        *norm(f"{ours}/mlp_norm", f"{theirs}/LayerNorm_1"),
        *dense(f"{ours}/mlp/expand", f"{theirs}/MlpBlock_0/Dense_0"),
        *dense(f"{ours}/mlp/contract", f"{theirs}/MlpBlock_0/Dense_1"),
    ]


def _heads_in(config: ViTConfig, ours: str, parts: list[str]) -> list[Rule]:
    """Projections to heads, `(D, K, D/K)` each, side by side as one matrix of ours."""
    heads, width = config.num_heads, config.hidden_size
    rules = []
    for name, own, shape in (
        ("kernel", (width, width), (width, heads, width // heads)),
        ("bias", (width,), (heads, width // heads)),
    ):
        theirs = [f"{part}/{name}" for part in parts]
        rules.append(concatenated(f"{ours}/{name}", theirs, own=own, shape=shape))
    return rules


def _heads_out(config: ViTConfig, ours: str, theirs: str) -> list[Rule]:
    """The projection from heads, `(K, D/K, D)`."""
    heads, width = config.num_heads, config.hidden_size
    kernel = Rule(
        f"{ours}/kernel",
        (f"{theirs}/kernel",),
        lambda kernel: kernel.reshape(width, width),
        lambda kernel: (kernel.reshape(heads, width // heads, width),),
    )
    return [kernel, same(f"{ours}/bias", f"{theirs}/bias")]


def _pooling_rules(config: ViTConfig) -> list[Rule]:
    """MAPHead of big_vision `models/vit.py`."""
    attention = f"MAPHead_0/{ATTENTION}"
    return [
        same("pool/probe", "MAPHead_0/probe"),
        *_heads_in(config, "pool/query", [f"{attention}/query"]),
        *_heads_in(config, "pool/key_value", [f"{attention}/key", f"{attention}/value"]),
        *_heads_out(config, "pool/output", f"{attention}/out"),
        *norm("pool/norm", "MAPHead_0/LayerNorm_0"),
        *dense("pool/mlp/expand", "MAPHead_0/MlpBlock_0/Dense_0"),
        *dense("pool/mlp/contract", "MAPHead_0/MlpBlock_0/Dense_1"),
    ]


def _stem_rules(config: ViTConfig) -> list[Rule]:
    if config.stem_layers is None:
        return []
    found = [same("stem_root/conv_root/kernel", "conv_root/kernel")]
    found += _group_norm("stem_root/gn_root", "gn_root")
    for stage, units in enumerate(config.stem_layers, 1):
        for unit in range(1, units + 1):
            ours, theirs = f"stem_block{stage}_unit{unit}", f"block{stage}/unit{unit}"
            # The first unit of a stage changes the width, so it projects its shortcut.
            for part in ("1", "2", "3", *(["_proj"] if unit == 1 else [])):
                found.append(same(f"{ours}/conv{part}/kernel", f"{theirs}/conv{part}/kernel"))
                found += _group_norm(f"{ours}/gn{part}", f"{theirs}/gn{part}")
    return found


def _group_norm(ours: str, theirs: str) -> list[Rule]:
    """Public files store `(1, 1, 1, C)`, newer trees `(C,)`."""
    return [
        Rule(f"{ours}/{mine}", (f"{theirs}/{name}",), np.ravel)
        for mine, name in (("gamma", "scale"), ("beta", "bias"))
    ]


def _mixer_rules(config: MixerConfig) -> list[Rule]:
    found = _embedding(config, "stem")
    for index in range(config.num_layers):
        ours, theirs = f"block_{index:02d}", f"MixerBlock_{index}"
        for number, part in enumerate(("token", "channel")):
            found += norm(f"{ours}/{part}_norm", f"{theirs}/LayerNorm_{number}")
            for mine, name in (("expand", "Dense_0"), ("contract", "Dense_1")):
                found += dense(f"{ours}/{part}_mixing/{mine}", f"{theirs}/{part}_mixing/{name}")
    found += norm("encoder_norm", "pre_head_layer_norm")
    return found + (dense("head", "head") if config.num_classes else [])
