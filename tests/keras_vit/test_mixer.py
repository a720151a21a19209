"""MLP-Mixer: what it does not have. `test_model.py` holds it to its equations."""

import keras
import numpy as np
import pytest

from keras_vit import MixerConfig, create_model

CONFIG = MixerConfig(
    hidden_size=16,
    num_layers=2,
    tokens_mlp_dim=8,
    channels_mlp_dim=12,
    patch_size=4,
    image_size=(8, 12),
    num_classes=3,
)


def test_no_class_token_no_positions():
    encoder = create_model(CONFIG).get_layer("patch_encoder")
    assert encoder.prefix == [] and len(encoder.weights) == 2
    assert encoder.output.shape == (None, 6, 16)


def test_the_order_of_patches_matters_though_there_are_no_positions():
    model = create_model(CONFIG, num_classes=0)
    images = np.random.default_rng(0).normal(size=(1, 8, 12, 3)).astype("float32")
    swapped = np.concatenate([images[:, 4:], images[:, :4]], axis=1)
    assert not np.allclose(model(images), model(swapped), atol=1e-3)


def test_the_head_starts_at_zero_and_gives_float32():
    model = create_model(CONFIG, dtype="mixed_bfloat16")
    logits = model(keras.ops.ones((2, 8, 12, 3)))
    assert logits.dtype == "float32" and not np.any(logits)


def test_one_resolution_only():
    with pytest.raises(ValueError, match="incompatible|shape"):
        create_model(CONFIG)(np.zeros((1, 16, 12, 3)))
