"""ViTConfig and MixerConfig: what is refused, in which words, and that the rest builds."""

import dataclasses

import keras
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit import MixerConfig, UserError, ViTConfig, count_params, create_model

VIT = dict(hidden_size=24, mlp_dim=32, num_heads=3, num_layers=2, patch_size=4, image_size=16)
MIXER = dict(hidden_size=24, num_layers=2, tokens_mlp_dim=8, channels_mlp_dim=16, patch_size=4)

# What is set wrong -> the whole message: setting, value, what is allowed.
MISTAKES = [
    (dict(image_size=0), "image_size=0 must be a positive int or (height, width)"),
    (dict(image_size=(16,)), "image_size=(16,) must be a positive int or (height, width)"),
    (dict(image_size="16"), "image_size='16' must be a positive int or (height, width)"),
    (dict(image_size=16.0), "image_size=16.0 must be a positive int or (height, width)"),
    (dict(patch_size=(4, -4)), "patch_size=(4, -4) must be a positive int or (height, width)"),
    (dict(patch_size=None), "patch_size=None must be a positive int or (height, width)"),
    (
        dict(patch_size=5),
        "patch_size=5 must divide the image's height 16 (image_size=(16, 16));"
        " a height of 15 or 20 would fit",
    ),
    (
        dict(image_size=(16, 18)),
        "patch_size=4 must divide the image's width 18 (image_size=(16, 18));"
        " a width of 16 or 20 would fit",
    ),
    (
        dict(image_size=3),
        "patch_size=4 must divide the image's height 3 (image_size=(3, 3));"
        " a height of 4 would fit",
    ),
    (
        dict(stem_layers=(1, 1), image_size=40, patch_size=4),
        "patch_size=4 must divide the stem's feature map's height 5 (image_size=(40, 40));"
        " a height of 4 or 8 would fit",
    ),
    (dict(num_classes=-1), "num_classes=-1 must be an int, 0 for no head"),
    (dict(num_classes=2.0), "num_classes=2.0 must be an int, 0 for no head"),
    (dict(num_classes=True), "num_classes=True must be an int, 0 for no head"),
    (dict(gelu="relu"), "gelu='relu' must be one of tanh, erf"),
    (dict(remat="all"), "remat='all' must be one of none, attention, block"),
    (dict(gelu=None), "gelu=None must be one of tanh, erf"),
    (dict(pooling="max"), "pooling='max' must be one of token, mean, token_mean, attention, none"),
    (
        dict(position_embedding=True),
        "position_embedding=True must be one of learned, sincos2d, none",
    ),
    (dict(position_tokens="cls"), "position_tokens='cls' must be one of all, class, patches"),
    (dict(class_token=1), "class_token=1 must be True or False"),
    (dict(qk_norm="yes"), "qk_norm='yes' must be True or False"),
    (dict(hidden_size=0), "hidden_size=0 must be an int of at least 1"),
    (dict(num_layers=-1), "num_layers=-1 must be an int of at least 1"),
    (dict(mlp_dim=4.0), "mlp_dim=4.0 must be an int of at least 1"),
    (dict(num_heads=True), "num_heads=True must be an int of at least 1"),
    (dict(in_channels="3"), "in_channels='3' must be an int of at least 1"),
    (dict(representation_size=0), "representation_size=0 must be an int of at least 1"),
    (dict(num_heads=5), "num_heads=5 must divide hidden_size=24"),
    (dict(dropout=-0.1), "dropout=-0.1 must be a rate: at least 0 and less than 1"),
    (dict(attention_dropout=1), "attention_dropout=1 must be a rate: at least 0 and less than 1"),
    (dict(drop_path="0"), "drop_path='0' must be a rate: at least 0 and less than 1"),
    (dict(patch_dropout=True), "patch_dropout=True must be a rate: at least 0 and less than 1"),
    (dict(dropout=float("nan")), "dropout=nan must be a rate: at least 0 and less than 1"),
    (dict(layer_scale=0.0), "layer_scale=0.0 must be a number greater than 0"),
    (dict(norm_epsilon=None), "norm_epsilon=None must be a number greater than 0"),
    (dict(stem_width=-1), "stem_width=-1 must be a number greater than 0"),
    (dict(num_register_tokens=-1), "num_register_tokens=-1 must be an int of at least 0"),
    (
        dict(class_token=False),
        "pooling='token' needs class_token=True; without one choose mean, attention or none",
    ),
    (
        dict(distillation_token=True, pooling="mean"),
        "distillation_token=True needs pooling='token' (DeiT), not 'mean'",
    ),
    (
        dict(distillation_token=True, representation_size=8),
        "distillation_token=True needs representation_size=None (DeiT)",
    ),
    (
        dict(norm_after_pooling=True, pooling="none"),
        "norm_after_pooling=True needs pooling token, mean or attention",
    ),
    (
        dict(hidden_size=6, position_embedding="sincos2d"),
        "hidden_size=6 must be divisible by 4 for position_embedding='sincos2d'",
    ),
    (
        dict(stem_layers=3),
        "stem_layers=3 must be None or a tuple of units in each stage, like (3, 4, 9)",
    ),
    (
        dict(stem_layers=(2, 0)),
        "stem_layers=(2, 0) must be None or a tuple of units in each stage, like (3, 4, 9)",
    ),
    (
        dict(stem_layers=(), stem_width=0.3),
        "stem_width=0.3 gives 19.2 channels, which the 32 groups of GroupNorm do not divide;"
        " use a multiple of 0.5",
    ),
]
MIXER_MISTAKES = [
    (dict(tokens_mlp_dim=0), "tokens_mlp_dim=0 must be an int of at least 1"),
    (dict(channels_mlp_dim=None), "channels_mlp_dim=None must be an int of at least 1"),
    (dict(drop_path=1.0), "drop_path=1.0 must be a rate: at least 0 and less than 1"),
    (dict(norm_epsilon=-1), "norm_epsilon=-1 must be a number greater than 0"),
    (dict(gelu="swish"), "gelu='swish' must be one of tanh, erf"),
    (
        dict(image_size=30),
        "patch_size=4 must divide the image's height 30 (image_size=(30, 30));"
        " a height of 28 or 32 would fit",
    ),
]


@pytest.mark.parametrize(("wrong", "message"), MISTAKES, ids=lambda value: str(value)[:30])
def test_a_mistake_is_told_in_one_line(wrong, message):
    with pytest.raises(UserError) as error:
        ViTConfig(**{**VIT, **wrong})
    assert str(error.value) == message
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize(("wrong", "message"), MIXER_MISTAKES)
def test_a_mistake_in_a_mixer_too(wrong, message):
    with pytest.raises(UserError) as error:
        MixerConfig(**{**MIXER, **wrong})
    assert str(error.value) == message


def test_every_field_can_be_wrong():
    """A field without a check would let a mistake through to a traceback deep in Keras."""
    for config_class, mistakes in ((ViTConfig, MISTAKES), (MixerConfig, MIXER_MISTAKES + MISTAKES)):
        tried = {name for wrong, _ in mistakes for name in wrong}
        for field in dataclasses.fields(config_class):
            if field.type is not bool:
                assert field.name in tried, field.name
            with pytest.raises(UserError, match=field.name):
                base = VIT if config_class is ViTConfig else MIXER
                config_class(**{**base, field.name: [object()]})


def test_sizes_and_classes_are_written_one_way():
    config = ViTConfig(**{**VIT, "image_size": [16, 32]}, num_classes=None)
    assert config.image_size == (16, 32)
    assert config.patch_size == (4, 4)
    assert config.num_classes == 0
    assert config.grid_size == (4, 8)
    assert ViTConfig(**VIT, stem_layers=[]).stem_layers == ()


def test_a_config_is_a_value():
    assert ViTConfig(**VIT) == ViTConfig(**VIT)
    assert hash(ViTConfig(**VIT)) == hash(ViTConfig(**VIT))
    with pytest.raises(dataclasses.FrozenInstanceError):
        ViTConfig(**VIT).dropout = 0.5


@pytest.mark.parametrize(
    ("stem_layers", "image_size", "feature_size"),
    [((), 224, 56), ((3,), 224, 56), ((3, 4, 9), 224, 14), ((2, 2, 2, 2), 224, 7), ((1, 2), 49, 7)],
)
def test_the_stem_sets_the_grid(stem_layers, image_size, feature_size):
    config = ViTConfig(
        **{**VIT, "patch_size": 1, "image_size": image_size}, stem_layers=stem_layers
    )
    assert config.feature_size == config.grid_size == (feature_size, feature_size)


def test_prefix_tokens():
    config = ViTConfig(**VIT, distillation_token=True, num_register_tokens=3)
    assert config.num_prefix_tokens == 5


sides = st.integers(1, 3)
rates = st.sampled_from([0.0, 0.3])


@st.composite
def vit_configs(draw):
    """Any valid ViTConfig, small."""
    patch = draw(st.tuples(sides, sides))
    stem = draw(st.none() | st.lists(st.integers(1, 2), max_size=2))
    stride = 1 if stem is None else 4 * 2 ** max(0, len(stem) - 1)
    grid = draw(st.tuples(sides, sides))
    heads = draw(st.integers(1, 3))
    pooling = draw(st.sampled_from(["token", "mean", "token_mean", "attention", "none"]))
    distil = pooling == "token" and draw(st.booleans())
    return ViTConfig(
        hidden_size=4 * heads * draw(st.integers(1, 2)),
        num_layers=draw(st.integers(1, 2)),
        mlp_dim=draw(st.integers(1, 9)),
        num_heads=heads,
        patch_size=patch,
        image_size=tuple(stride * p * g for p, g in zip(patch, grid, strict=True)),
        in_channels=draw(st.integers(1, 5)),
        num_classes=draw(st.sampled_from([None, 0, 1, 7])),
        class_token=pooling in ("token", "token_mean") or draw(st.booleans()),
        distillation_token=distil,
        num_register_tokens=draw(st.integers(0, 2)),
        position_embedding=draw(st.sampled_from(["learned", "sincos2d", "none"])),
        position_tokens=draw(st.sampled_from(["all", "class", "patches"])),
        pooling=pooling,
        representation_size=None if distil else draw(st.sampled_from([None, 5])),
        dropout=draw(rates),
        attention_dropout=draw(rates),
        drop_path=draw(rates),
        patch_dropout=draw(rates),
        layer_scale=draw(st.sampled_from([None, 1e-4])),
        gelu=draw(st.sampled_from(["tanh", "erf"])),
        norm_epsilon=draw(st.sampled_from([1e-12, 1e-6, 1])),
        patch_bias=draw(st.booleans()),
        qkv_bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        remat=draw(st.sampled_from(["none", "attention", "block"])),
        pre_norm=draw(st.booleans()),
        norm_after_pooling=pooling not in ("none", "token_mean") and draw(st.booleans()),
        stem_layers=None if stem is None else tuple(stem),
        stem_width=draw(st.sampled_from([0.5, 1.0])),
    )


mixer_configs = st.builds(
    MixerConfig,
    hidden_size=st.integers(1, 9),
    num_layers=st.integers(1, 2),
    tokens_mlp_dim=st.integers(1, 9),
    channels_mlp_dim=st.integers(1, 9),
    patch_size=st.tuples(sides, sides),
    image_size=st.sampled_from([6, (12, 6)]),
    in_channels=st.integers(1, 5),
    num_classes=st.sampled_from([None, 3]),
    drop_path=rates,
)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(config=vit_configs() | mixer_configs)
def test_any_valid_config_builds_and_its_cost_is_known(config):
    model = create_model(config)
    assert model.count_params() == count_params(config)
    outputs = model(keras.ops.ones((2, *config.image_size, config.in_channels)), training=True)
    assert outputs.shape[0] == 2 and bool(keras.ops.all(keras.ops.isfinite(outputs)))
