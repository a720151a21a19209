"""`config.json` and `preprocessor_config.json`."""

import json

import pytest

import keras_vit
from keras_vit import create_model, open_weights
from tests.keras_vit.models import CONFIGS, LAYOUTS


@pytest.mark.parametrize("resize", ["crop", "squash"])
@pytest.mark.parametrize("name", ["erf", "dinov2", "deit_distilled"])
def test_preprocessing_travels(name, resize, tmp_path):
    preprocessing = {
        "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7], "resize": resize,
        "crop_fraction": 0.8 if resize == "crop" else 1.0, "interpolation": "bilinear",
    }  # fmt: skip
    keras_vit.save_weights(
        create_model(CONFIGS[name]), tmp_path / "a", "huggingface", preprocessing
    )
    assert open_weights(tmp_path / "a").preprocessing == preprocessing


@pytest.mark.parametrize("name", LAYOUTS["huggingface"])
def test_config_names_the_class_that_loads_it(name, tmp_path):
    config = CONFIGS[name]
    keras_vit.save_weights(create_model(config), tmp_path / "a", "huggingface")
    content = json.loads((tmp_path / "a/config.json").read_text())
    kinds = {"dinov2": "dinov2", "dinov2_registers": "dinov2_with_registers"}
    assert content["model_type"] == kinds.get(name, "deit" if "deit" in name else "vit")
    assert ("ForImageClassification" in content["architectures"][0]) == bool(config.num_classes)
    assert content["hidden_size"] == 24
    assert content["num_hidden_layers"] == 2
    assert len(content.get("id2label", {})) == config.num_classes


def test_without_the_file_the_class_decides(shared):
    vit = open_weights(shared / "reference/huggingface/vit").preprocessing
    assert vit == {
        "mean": [0.5] * 3, "std": [0.5] * 3, "resize": "squash", "crop_fraction": 1.0,
        "interpolation": "bilinear",
    }  # fmt: skip
    path = shared / "weights/dinov2_vits14_backbone_fp16.safetensors"
    assert open_weights(path).preprocessing == {
        "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "resize": "crop",
        "crop_fraction": 0.875, "interpolation": "bicubic",
    }  # fmt: skip
