"""create_model and from_weights: a name, a file, or both."""

import warnings

import numpy as np
import pytest

import keras_vit
from keras_vit import UserError, ViTConfig, config_of, create_model, from_weights, save_weights
from tests.check_layer import images_like, randomise
from tests.keras_vit.models import CONFIGS, VIT


@pytest.fixture
def path(tmp_path):
    save_weights(randomise(create_model("vit_mu4", image_size=16)), tmp_path / "a.npz", "google")
    return tmp_path / "a.npz"


def test_a_file_alone_says_everything(path):
    config = config_of(from_weights(path))
    assert config == keras_vit.find_config("vit_mu4", image_size=16)
    assert config_of(create_model(weights=path)) == config


def test_a_name_with_weights(path):
    model = create_model("ViT-mu/4", weights=path, image_size=(8, 16), num_classes=3)
    assert model.name == "vit_mu_4"
    assert model.input_shape == (None, 8, 16, 3)
    assert model.output_shape == (None, 3)
    with pytest.raises(UserError, match="does not fit the model.*hidden_size 32, not 192"):
        create_model("vit_ti4", image_size=16, weights=path)


def test_a_head_that_stays_fresh_is_said_unless_it_was_asked_for(tmp_path, caplog):
    model = randomise(create_model("vit_mu4", image_size=16, num_classes=7))
    save_weights(model, tmp_path / "a.npz", "google")
    with pytest.warns(keras_vit.weights.WeightsWarning, match="head/bias: the file has 7 classes"):
        create_model("vit_mu4", image_size=16, weights=tmp_path / "a.npz")
    with warnings.catch_warnings(), caplog.at_level("INFO", logger="keras_vit"):
        warnings.simplefilter("error")
        create_model("vit_mu4", image_size=16, num_classes=3, weights=tmp_path / "a.npz")
        from_weights(tmp_path / "a.npz", num_classes=0)
    assert "left out of the file: head/kernel, head/bias: the model has no head" in caplog.text


def test_overrides_reach_what_the_file_describes(path):
    model = from_weights(path, num_classes=0, image_size=32, dropout=0.3, pooling="none")
    config = config_of(model)
    assert (config.num_classes, config.image_size, config.dropout) == (0, (32, 32), 0.3)
    assert model.output_shape == (None, 65, 32)
    with pytest.raises(UserError, match="drop_pth is no setting of ViTConfig; did you mean"):
        from_weights(path, drop_pth=0.1)


def test_gelu_and_epsilon_are_the_files_unless_given(tmp_path):
    model = randomise(create_model(CONFIGS["erf"]))
    save_weights(model, tmp_path / "hub", "huggingface")
    sizes = dict(hidden_size=24, num_layers=2, mlp_dim=48, num_heads=3, image_size=(8, 12),
                 patch_size=(4, 2), num_classes=5)  # fmt: skip
    named = create_model("vit_mu4", weights=tmp_path / "hub", **sizes)
    assert (config_of(named).gelu, config_of(named).norm_epsilon) == ("erf", 1e-12)
    images = images_like((2, 8, 12, 3))
    np.testing.assert_array_equal(named(images), model(images))
    other = create_model("vit_mu4", weights=tmp_path / "hub", gelu="tanh", **sizes)
    assert config_of(other).gelu == "tanh"
    # A configuration is taken as it is.
    with pytest.warns(keras_vit.weights.WeightsWarning, match="norm_epsilon is 1e-12"):
        create_model(VIT, weights=tmp_path / "hub")


def test_neither_is_a_mistake():
    with pytest.raises(UserError, match="or a configuration, or bring weights"):
        create_model()


def test_a_config_needs_no_weights():
    assert config_of(create_model(VIT)) == VIT
    assert isinstance(config_of(create_model("vit_mu4", image_size=16)), ViTConfig)
