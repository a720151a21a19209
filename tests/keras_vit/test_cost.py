"""Parameters and operations told from a config are those of built models.

test_config and test_variants hold count_params for any config.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

import keras_vit
from keras_vit import ViTConfig, count_flops, count_params, create_model, find_config
from tests.keras_vit.models import CONFIGS

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


def profiled_flops(config, training=False) -> int:
    """What TensorFlow's profiler counts for the products and convolutions of one image."""
    model = create_model(config)
    signature = tf.TensorSpec((1, *config.image_size, config.in_channels))
    graph = tf.function(lambda images: model(images, training=training))
    graph = graph.get_concrete_function(signature).graph
    options = tf.compat.v1.profiler.ProfileOptionBuilder(
        tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    )
    options = options.with_accounted_types(["MatMul", "BatchMatMul.*", "Conv2D"])
    profile = tf.compat.v1.profiler.profile(
        graph, cmd="op", options=options.with_empty_output().build()
    )
    return profile.total_float_ops


@pytest.mark.parametrize("name", CONFIGS)
def test_operations_are_those_that_tensorflow_counts(name):
    assert count_flops(CONFIGS[name]) == profiled_flops(CONFIGS[name])


def test_patches_left_out_cost_nothing_while_training():
    config = ViTConfig(**BASE, patch_dropout=0.4, pooling="attention")
    assert count_flops(config, training=True) == profiled_flops(config, training=True)
    assert count_flops(config, training=True) < count_flops(config)


def test_attention_in_slices_costs_the_same():
    config = ViTConfig(**{**BASE, "image_size": 132, "num_classes": 2})  # 1089 patches
    assert count_flops(config) == profiled_flops(config)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("vit_s16", 4.6), ("vit_b16", 17.6), ("vit_l16", 61.6), ("mixer_b16", 12.6)],
)
def test_published_multiply_adds(name, billions):
    """The tables of timm, which counts a little more than products."""
    assert count_flops(find_config(name)) / 2e9 == pytest.approx(billions, rel=0.005)


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
