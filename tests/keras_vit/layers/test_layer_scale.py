"""LayerScale: one learned factor a channel."""

import numpy as np

from keras_vit.layers import LayerScale


def test_it_starts_at_its_value_and_scales_each_channel():
    layer = LayerScale(1e-4)
    tokens = np.ones((2, 3, 4), "float32")
    np.testing.assert_allclose(layer(tokens), 1e-4)
    layer.gamma.assign([1, 2, 3, 4])
    np.testing.assert_array_equal(layer(2 * tokens), np.broadcast_to([2, 4, 6, 8], (2, 3, 4)))


def test_a_small_value_is_not_lost_in_float16():
    layer = LayerScale(1e-5, dtype="mixed_float16")
    output = np.asarray(layer(np.full((1, 4), 1000.0)), "float32")
    np.testing.assert_allclose(output, 1e-2, rtol=0.01)
