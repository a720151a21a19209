"""count_params agrees with built models: test_config and test_variants hold it for any config."""

import subprocess
import sys
from pathlib import Path

import pytest

import keras_vit
from keras_vit import ViTConfig, count_params

BASE = dict(hidden_size=8, num_layers=2, mlp_dim=10, num_heads=2, patch_size=4, image_size=8)


def test_a_tiny_model_counted_by_hand():
    embedding = 4 * 4 * 3 * 8 + 8
    tokens = 8 + (4 + 1) * 8
    block = 2 * 16 + (8 * 24 + 24) + (8 * 8 + 8) + (8 * 10 + 10) + (10 * 8 + 8)
    total = embedding + tokens + 2 * block + 16 + 8 * 1000 + 1000
    assert count_params(ViTConfig(**BASE)) == total


@pytest.mark.parametrize(
    ("setting", "extra"),
    [
        (dict(num_register_tokens=3), 3 * 8 * 2),
        (dict(num_register_tokens=3, position_tokens="class"), 3 * 8),
        (dict(position_tokens="patches"), -8),
        (dict(position_embedding="none"), -5 * 8),
        (dict(position_embedding="sincos2d"), -5 * 8),
        (dict(distillation_token=True), 8 * 2 + 8 * 1000 + 1000),
        (dict(layer_scale=0.1), 2 * 2 * 8),
        (dict(qk_norm=True), 2 * 4 * 4),
        (dict(qkv_bias=False), -2 * 24),
        (dict(patch_bias=False), -8),
        (dict(pre_norm=True), 16),
        (dict(pooling="mean", norm_after_pooling=True), 0),
        (dict(representation_size=8), 8 * 8 + 8),
        (dict(num_classes=0), -9000),
    ],
)
def test_what_each_choice_costs(setting, extra):
    assert count_params(ViTConfig(**{**BASE, **setting})) - count_params(ViTConfig(**BASE)) == extra


def test_counting_needs_no_keras():
    code = (
        "import sys; sys.modules['keras'] = None\n"  # any import of Keras would fail
        "import importlib.util as u, types\n"
        "package = types.ModuleType('keras_vit'); package.__path__ = [sys.argv[1]]\n"
        "sys.modules['keras_vit'] = package\n"
        "from keras_vit.cost import count_params; from keras_vit.variants import find_config\n"
        "print(count_params(find_config('vit_gigantic14')))"
    )
    folder = str(Path(keras_vit.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 1.8e9
