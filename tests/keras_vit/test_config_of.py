"""config_of: what is built can be read off again, also from a file."""

import json
import zipfile

import keras
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit import MixerConfig, UserError, ViTConfig, config_of, create_model
from keras_vit.config_of import read_config
from tests.keras_vit.models import CONFIGS, TINY, VIT


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_says_what_it_is_also_after_a_file(name, tmp_path):
    model = create_model(CONFIGS[name])
    assert config_of(model) == CONFIGS[name]
    model.save(tmp_path / "model.keras")
    assert config_of(keras.saving.load_model(tmp_path / "model.keras")) == CONFIGS[name]
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        content = json.loads(archive.read("config.json"))
    assert read_config(content["config"], name) == CONFIGS[name]


rates = st.sampled_from([0.0, 0.1, 0.5])


@settings(max_examples=15, deadline=None)
@given(
    dropout=rates,
    attention_dropout=rates,
    drop_path=rates,
    patch_dropout=rates,
    gelu=st.sampled_from(["tanh", "erf"]),
    norm_epsilon=st.sampled_from([1e-6, 1e-12, 0.1]),
    in_channels=st.integers(1, 4),
    registers=st.integers(0, 2),
    pooling=st.sampled_from(["token", "mean", "token_mean", "attention", "none"]),
    positions=st.sampled_from(["all", "class", "patches"]),
)
def test_every_setting_is_read_back(registers, pooling, positions, **fields):
    config = ViTConfig(
        **TINY,
        **fields,
        num_register_tokens=registers,
        pooling=pooling,
        position_tokens=positions,
    )
    assert config_of(create_model(config)) == config


def test_the_mixer_too():
    config = MixerConfig(
        hidden_size=8, num_layers=3, tokens_mlp_dim=5, channels_mlp_dim=6, patch_size=4,
        image_size=(8, 12), in_channels=2, num_classes=0, drop_path=0.25, gelu="erf",
        norm_epsilon=0.1,
    )  # fmt: skip
    assert config_of(create_model(config)) == config


def test_other_models_are_refused():
    x = keras.Input((4,), name="image")
    with pytest.raises(UserError, match="model 'plain' is no model of keras_vit"):
        config_of(keras.Model(x, keras.layers.Dense(2)(x), name="plain"))
    ours = create_model(VIT)
    more = keras.layers.Dense(2, name="mine")(ours.output)
    with pytest.raises(UserError, match=r"holds layer 'mine' \(Dense\), no layer of ours"):
        config_of(keras.Model(ours.input, more))
