"""The original JAX code's outputs on random weights are reproduced, tokens and logits.

`../shared/reference/jax` holds weights under the names of its checkpoints, images, and what
google-research/vision_transformer computed in float32.
"""

import numpy as np
import pytest

from keras_vit import MixerConfig, ViTConfig, create_model, intermediates

VIT = dict(
    hidden_size=48,
    mlp_dim=96,
    num_heads=3,
    num_layers=3,
    patch_size=8,
    image_size=32,
    num_classes=10,
)
MIXER = dict(
    hidden_size=48,
    num_layers=3,
    tokens_mlp_dim=24,
    channels_mlp_dim=96,
    patch_size=8,
    image_size=32,
    num_classes=10,
)
CASES = {
    "vit_token": ViTConfig(**VIT),
    "vit_gap": ViTConfig(**VIT, pooling="mean", class_token=False),
    "vit_token_prelogits": ViTConfig(**{**VIT, "num_classes": 21}, representation_size=32),
    "vit_token_patch16x8_48x64": ViTConfig(
        **{**VIT, "patch_size": (16, 8), "image_size": (48, 64), "num_layers": 2, "num_classes": 7}
    ),
    "hybrid_r_stem": ViTConfig(
        **{**VIT, "patch_size": 4, "num_layers": 2, "num_classes": 5},
        stem_layers=(),
        stem_width=0.5,
    ),
    "hybrid_r_stages": ViTConfig(
        **{**VIT, "patch_size": 1, "image_size": 48, "num_layers": 2, "num_classes": 5},
        stem_layers=(1, 2),
        stem_width=0.5,
    ),
    "mixer": MixerConfig(**MIXER),
}


def assign(weights, prefix, layer, names):
    """Set `layer`'s weights, flattened, from the arrays of these names; all used up are removed."""
    for attribute, name in names.items():
        value = weights.pop(f"{prefix}/{name}")
        variable = getattr(layer, attribute)
        variable.assign(value.reshape(variable.shape))


def assign_dense(weights, prefix, layer):
    assign(weights, prefix, layer, {"kernel": "kernel", "bias": "bias"})


def assign_norm(weights, prefix, layer):
    assign(weights, prefix, layer, {"gamma": "scale", "beta": "bias"})


def assign_block(weights, prefix, block):
    assign_norm(weights, f"{prefix}/LayerNorm_0", block.attention_norm)
    assign_norm(weights, f"{prefix}/LayerNorm_1", block.mlp_norm)
    attention = f"{prefix}/MultiHeadDotProductAttention_0"
    thirds = [f"{attention}/{name}" for name in ("query", "key", "value")]
    size = block.attention.qkv.kernel.shape[0]
    kernels = [weights.pop(f"{third}/kernel").reshape(size, size) for third in thirds]
    biases = [weights.pop(f"{third}/bias").reshape(size) for third in thirds]
    block.attention.qkv.kernel.assign(np.concatenate(kernels, axis=1))
    block.attention.qkv.bias.assign(np.concatenate(biases))
    assign_dense(weights, f"{attention}/out", block.attention.output_projection)
    assign_mlp(weights, f"{prefix}/MlpBlock_0", block.mlp)


def assign_mlp(weights, prefix, mlp):
    assign_dense(weights, f"{prefix}/Dense_0", mlp.expand)
    assign_dense(weights, f"{prefix}/Dense_1", mlp.contract)


def assign_unit(weights, prefix, unit):
    names = ["1", "2", "3"] + ["_proj"] * unit.project
    for name in names:
        assign(weights, f"{prefix}/conv{name}", getattr(unit, f"conv{name}"), {"kernel": "kernel"})
        assign_norm(weights, f"{prefix}/gn{name}", getattr(unit, f"gn{name}"))


def assign_stem(weights, model):
    root = model.get_layer("stem_root")
    assign(weights, "conv_root", root.conv_root, {"kernel": "kernel"})
    assign_norm(weights, "gn_root", root.gn_root)
    for layer in model.layers:
        if "_unit" in layer.name:
            assign_unit(weights, layer.name.removeprefix("stem_").replace("_", "/"), layer)


def assign_vit(weights, model):
    encoder = model.get_layer("patch_encoder")
    assign_dense(weights, "embedding", encoder.projection)
    if "cls" in weights:
        encoder.prefix[0].assign(weights.pop("cls"))
    encoder.positions.assign(weights.pop("Transformer/posembed_input/pos_embedding"))
    blocks = [layer for layer in model.layers if layer.name.startswith("block_")]
    for index, block in enumerate(blocks):
        assign_block(weights, f"Transformer/encoderblock_{index}", block)
    assign_norm(weights, "Transformer/encoder_norm", model.get_layer("encoder_norm"))
    if "pre_logits/kernel" in weights:
        assign_dense(weights, "pre_logits", model.get_layer("pre_logits"))
    if "conv_root/kernel" in weights:
        assign_stem(weights, model)
    assign_dense(weights, "head", model.get_layer("head"))


def assign_mixer(weights, model):
    assign_dense(weights, "stem", model.get_layer("patch_encoder").projection)
    blocks = [layer for layer in model.layers if layer.name.startswith("block_")]
    for index, block in enumerate(blocks):
        prefix = f"MixerBlock_{index}"
        assign_norm(weights, f"{prefix}/LayerNorm_0", block.token_norm)
        assign_norm(weights, f"{prefix}/LayerNorm_1", block.channel_norm)
        assign_mlp(weights, f"{prefix}/token_mixing", block.token_mixing)
        assign_mlp(weights, f"{prefix}/channel_mixing", block.channel_mixing)
    assign_norm(weights, "pre_head_layer_norm", model.get_layer("encoder_norm"))
    assign_dense(weights, "head", model.get_layer("head"))


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_the_originals(name, shared):
    folder = shared / "reference" / "jax"
    weights = dict(np.load(folder / f"{name}.npz"))
    expected = np.load(folder / f"{name}.io.npz")
    model = create_model(CASES[name])
    assert model.count_params() == sum(weight.size for weight in weights.values())
    (assign_mixer if name == "mixer" else assign_vit)(weights, model)
    assert not weights
    values = intermediates(model)(expected["images"])
    np.testing.assert_allclose(values["head"], expected["logits"], atol=1e-5)
    tokens = {key: expected[key] for key in expected if key.startswith("tokens/")}
    if "pre_logits" in values:  # the original stored them before tanh
        tokens["tokens/pre_logits"] = np.tanh(tokens["tokens/pre_logits"])
    for key, value in tokens.items():
        ours = np.reshape(values[our_name(key, values)], value.shape)
        np.testing.assert_allclose(ours, value, atol=2e-5, err_msg=key)


def our_name(key, values):
    """The name in `intermediates` of what the original calls tokens/..."""
    key = key.removeprefix("tokens/").removeprefix("Transformer/")
    if key == "pre_logits":
        return key if key in values else "pool"
    if key.startswith("encoderblock_"):
        return f"block_{int(key.removeprefix('encoderblock_')):02d}"
    return {"embedding": "patch_embedding"}.get(key, key)
