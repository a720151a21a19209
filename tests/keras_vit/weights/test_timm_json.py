"""What timm keeps beside the tensors."""

import json

import pytest

import keras_vit
from keras_vit import create_model, open_weights
from tests.keras_vit.models import CONFIGS

PREPROCESSING = {
    "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7], "resize": "squash", "crop_fraction": 0.95,
    "interpolation": "bilinear",
}  # fmt: skip


@pytest.mark.parametrize("name", ["deit3", "deit_distilled", "fc_norm"])
def test_a_hub_folder_says_all_that_the_tensors_do_not(name, tmp_path):
    model = create_model(CONFIGS[name])
    keras_vit.save_weights(model, tmp_path / "hub", "timm", PREPROCESSING)
    weights = open_weights(tmp_path / "hub")
    assert weights.preprocessing == PREPROCESSING
    config = json.loads((tmp_path / "hub/config.json").read_text())
    assert config["num_classes"] == 5
    assert config["model_args"]["embed_dim"] == 24
    assert config["pretrained_cfg"]["input_size"] == [3, 8, 12]
    assert config["pretrained_cfg"]["crop_pct"] == 0.95


def test_without_it_timms_defaults_hold(tmp_path):
    keras_vit.save_weights(create_model(CONFIGS["fc_norm"]), tmp_path / "a.safetensors", "timm")
    plain = open_weights(tmp_path / "a.safetensors").preprocessing
    assert plain == {
        "mean": [0.5] * 3, "std": [0.5] * 3, "resize": "crop", "crop_fraction": 0.9,
        "interpolation": "bicubic",
    }  # fmt: skip
    path = tmp_path / "b.safetensors"
    keras_vit.save_weights(create_model(CONFIGS["deit_distilled"]), path, "timm")
    assert open_weights(path).preprocessing["mean"] == [0.485, 0.456, 0.406]
