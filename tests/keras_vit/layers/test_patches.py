"""Patches: an exact cut, which Dense turns into the original's convolution."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit.layers import Patches
from tests.keras_vit import reference

sides = st.integers(1, 4)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(patch=st.tuples(sides, sides), grid=st.tuples(sides, sides), channels=st.integers(1, 5))
def test_the_cut_is_exact_and_can_be_undone(patch, grid, channels):
    (height, width), (rows, columns) = patch, grid
    images = np.random.default_rng(0).normal(size=(2, rows * height, columns * width, channels))
    images = images.astype("float32")
    cut = np.asarray(Patches(patch)(images))
    np.testing.assert_array_equal(cut, reference.patches(images, patch).astype("float32"))
    back = cut.reshape(2, rows, columns, height, width, channels).transpose(0, 1, 3, 2, 4, 5)
    np.testing.assert_array_equal(back.reshape(images.shape), images)


def test_with_dense_it_is_a_convolution_of_kernel_and_stride_p():
    images = np.random.default_rng(0).normal(size=(2, 12, 10, 3)).astype("float32")
    convolution = keras.layers.Conv2D(7, (4, 5), strides=(4, 5))
    expected = convolution(images)  # (B, 3, 2, 7)
    kernel = np.asarray(convolution.kernel).reshape(4 * 5 * 3, 7)
    np.testing.assert_allclose(
        np.asarray(Patches((4, 5))(images)) @ kernel, np.reshape(expected, (2, 6, 7)), atol=1e-5
    )


def test_integers_are_taken_as_they_are():
    images = np.arange(2 * 4 * 4 * 1, dtype="uint8").reshape(2, 4, 4, 1)
    cut = Patches(2)(images)
    assert cut.dtype == "float32"
    np.testing.assert_array_equal(cut[0, 0], [0, 1, 4, 5])


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1, 10, 8, 3), "height, which is 10"), ((1, 8, 9, 3), "width, which is 9")],
)
def test_what_does_not_fit_is_refused(shape, axis):
    with pytest.raises(ValueError, match=rf"patch_size=\(4, 4\) must divide the image's {axis}"):
        Patches(4)(np.zeros(shape))


def test_an_unknown_side_is_refused():
    with pytest.raises(ValueError, match="height, which is None"):
        Patches(4)(keras.Input((None, 8, 3)))


def test_a_later_batch_of_the_wrong_size_is_refused_too():
    layer = Patches(8)
    layer(np.zeros((1, 32, 32, 3)))
    with pytest.raises(ValueError, match="height, which is 36"):
        layer(np.zeros((64, 36, 36, 3)))  # 64 such images hold as many pixels as 81 smaller ones
