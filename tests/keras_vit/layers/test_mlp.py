"""MLP: two dense layers with either GELU, the original's initial values and dropout."""

import numpy as np
import pytest

from keras_vit.layers import MLP
from tests.check_layer import images_like, randomise
from tests.keras_vit import reference


@pytest.mark.parametrize("gelu", ["tanh", "erf"])
def test_it_is_the_equation(gelu):
    layer = MLP(20, gelu=gelu)
    layer.build((2, 5, 8))
    randomise(layer, scale=0.5)
    tokens = images_like((2, 5, 8), scale=2.0)
    expected = reference.mlp(tokens.astype("float64"), layer)
    np.testing.assert_allclose(layer(tokens), expected, atol=1e-5)


def test_the_two_gelus_differ_by_what_is_known():
    x = np.linspace(-5, 5, 2001)
    gap = np.abs(reference.gelu(x, "tanh") - reference.gelu(x, "erf")).max()
    assert gap == pytest.approx(4.7e-4, rel=0.05)  # measured on flax
    layers = [MLP(64, gelu=gelu) for gelu in ("tanh", "erf")]
    for layer in layers:
        layer.build((1, 8))
    layers[1].set_weights(layers[0].get_weights())
    tokens = images_like((4, 8))
    assert 1e-6 < np.abs(layers[0](tokens) - layers[1](tokens)).max() < 5e-3


def test_initial_values_are_the_originals():
    layer = MLP(1536)
    layer.build((None, 384))
    for dense in (layer.expand, layer.contract):
        limit = np.sqrt(6 / (384 + 1536))
        assert np.std(dense.kernel) == pytest.approx(limit / np.sqrt(3), rel=0.01)
        assert np.abs(dense.kernel).max() <= limit
        assert np.std(dense.bias) == pytest.approx(1e-6, rel=0.1)


def test_dropout_after_gelu_and_after_the_second_layer():
    layer = MLP(4096, dropout=0.25)
    tokens = images_like((1, 64))
    layer(tokens)
    layer.contract.kernel.assign(np.zeros((4096, 64)))
    layer.contract.bias.assign(np.ones(64))
    after_second = np.concatenate([np.asarray(layer(tokens, training=True)) for _ in range(40)])
    np.testing.assert_allclose(np.unique(after_second), [0, 1 / 0.75], rtol=1e-6)
    assert (after_second == 0).mean() == pytest.approx(0.25, abs=0.03)
    assert np.ptp(layer(tokens)) == 0
    layer.output_dropout.rate = 0.0
    layer.contract.kernel.assign(np.full((4096, 64), 1e-3))
    noisy = [float(layer(tokens, training=True)[0, 0]) for _ in range(8)]
    assert np.std(noisy) > 0


def test_unknown_gelu():
    with pytest.raises(ValueError, match="gelu must be 'tanh' or 'erf'. Received: 'quick'"):
        MLP(8, gelu="quick")
