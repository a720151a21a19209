"""Every layer registered under "keras_vit" keeps the promise of `tests/check_layer.py`."""

import importlib
import inspect
import pkgutil

import keras
import pytest

import keras_vit
from tests.check_layer import check_layer, own_arguments

TOKENS = (2, 6, 8)  # (B, T, D)
IMAGES = (2, 12, 8, 3)  # (B, H, W, C)
MAPS = (2, 6, 5, 32)  # (B, H, W, C) of a stem

# Ways to set each layer; together they move every argument off its default.
CASES = {
    "AttentionPooling": [
        (dict(num_heads=2, mlp_dim=12), TOKENS),
        (
            dict(num_heads=4, mlp_dim=5, num_prefix_tokens=2, gelu="erf", norm_epsilon=1e-5),
            TOKENS,
        ),
    ],
    "BottleneckUnit": [
        (dict(filters=32), (2, 6, 5, 128)),
        (dict(filters=32, strides=2), MAPS),
    ],
    "DropPath": [(dict(rate=0.0), TOKENS), (dict(rate=0.3, seed=3), TOKENS)],
    "LayerScale": [(dict(initial_value=1e-4), TOKENS)],
    "MLP": [
        (dict(mlp_dim=12), TOKENS),
        (dict(mlp_dim=12, dropout=0.2, gelu="erf"), (2, 8)),
    ],
    "MeanPooling": [(dict(), TOKENS), (dict(num_prefix_tokens=2), TOKENS)],
    "MixerBlock": [
        (dict(tokens_mlp_dim=7, channels_mlp_dim=9), TOKENS),
        (
            dict(
                tokens_mlp_dim=7,
                channels_mlp_dim=9,
                drop_path=0.2,
                gelu="erf",
                norm_epsilon=1e-5,
            ),
            TOKENS,
        ),
    ],
    "MultiHeadSelfAttention": [
        (dict(num_heads=2), TOKENS),
        (
            dict(num_heads=4, dropout=0.2, use_qkv_bias=False, qk_norm=True, norm_epsilon=1e-5),
            TOKENS,
        ),
    ],
    "PatchDropout": [
        (dict(rate=0.0), TOKENS),
        (dict(rate=0.5, num_prefix_tokens=2, seed=3), TOKENS),
    ],
    "PatchEncoder": [
        (dict(hidden_size=8, grid_size=(2, 3)), (2, 6, 12)),
        (
            dict(
                hidden_size=8,
                grid_size=(3, 2),
                class_token=False,
                num_register_tokens=3,
                position_embedding="sincos2d",
                use_bias=False,
            ),
            (2, 6, 12),
        ),
        (
            dict(
                hidden_size=8,
                grid_size=(2, 3),
                distillation_token=True,
                num_register_tokens=2,
                position_tokens="class",
            ),
            (2, 6, 12),
        ),
    ],
    "Patches": [(dict(patch_size=(4, 4)), IMAGES), (dict(patch_size=(6, 2)), IMAGES)],
    "ResNetRoot": [(dict(filters=32), (2, 17, 12, 3))],
    "StdConv2D": [
        (dict(filters=4, kernel_size=(3, 3), strides=(2, 2), padding="same"), MAPS),
        (dict(filters=4, kernel_size=(1, 1), use_bias=False), MAPS),
    ],
    "TokenMeanPooling": [(dict(), TOKENS), (dict(num_prefix_tokens=2), TOKENS)],
    "TokenPooling": [(dict(), TOKENS), (dict(index=1), TOKENS)],
    "TransformerBlock": [
        (dict(num_heads=2, mlp_dim=12), TOKENS),
        (
            dict(
                num_heads=4,
                mlp_dim=12,
                dropout=0.1,
                attention_dropout=0.2,
                drop_path=0.3,
                layer_scale=1e-2,
                gelu="erf",
                use_qkv_bias=False,
                qk_norm=True,
                norm_epsilon=1e-5,
                remat="block",
            ),
            TOKENS,
        ),
    ],
}
RUNS = [
    pytest.param(name, *case, id=f"{name}-{index}")
    for name, cases in CASES.items()
    for index, case in enumerate(cases)
]


def registered_layers():
    for module in pkgutil.walk_packages(keras_vit.__path__, "keras_vit."):
        if ".export" not in module.name:
            importlib.import_module(module.name)
    return {
        name.removeprefix("keras_vit>"): thing
        for name, thing in keras.saving.get_custom_objects().items()
        if name.startswith("keras_vit>") and issubclass(thing, keras.layers.Layer)
    }


def test_every_registered_layer_has_a_case():
    assert registered_layers().keys() == CASES.keys()


def test_every_layer_of_the_package_is_registered():
    layers = {
        name
        for name, thing in vars(keras_vit.layers).items()
        if inspect.isclass(thing) and issubclass(thing, keras.layers.Layer)
    }
    assert layers == CASES.keys()


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"StdConv2D"}))  # has Keras's arguments
def test_the_cases_move_every_argument(name):
    layer_class = registered_layers()[name]
    for argument, default in own_arguments(layer_class).items():
        values = [settings.get(argument, default) for settings, _ in CASES[name]]
        assert any(value != default for value in values), argument


@pytest.mark.parametrize(("name", "settings", "input_shape"), RUNS)
def test_layer_keeps_the_promise(name, settings, input_shape, tmp_path):
    check_layer(registered_layers()[name], settings, input_shape, tmp_path)
