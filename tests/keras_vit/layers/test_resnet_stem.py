"""The hybrids' stem: standardised convolutions, GroupNorm, bottleneck units."""

import numpy as np
import pytest

from keras_vit.layers import BottleneckUnit, ResNetRoot, StdConv2D
from tests.check_layer import images_like, randomise
from tests.keras_vit import reference


@pytest.mark.parametrize(("size", "strides"), [(1, 1), (3, 1), (3, 2), (7, 2)])
def test_convolution_with_a_standardised_kernel(size, strides):
    layer = StdConv2D(6, size, strides=strides, padding="same", use_bias=False)
    images = images_like((2, 9, 8, 5))
    layer.build(images.shape)
    expected = reference.std_conv(images.astype("float64"), layer)
    np.testing.assert_allclose(layer(images), expected, rtol=1e-4, atol=1e-4)


def test_scale_and_shift_of_the_kernel_do_not_matter():
    layer = StdConv2D(6, 3, use_bias=False)
    images = images_like((1, 6, 6, 4))
    before = layer(images)
    layer.kernel.assign(50 * layer.kernel + 3)
    np.testing.assert_allclose(layer(images), before, atol=1e-2)


def test_epsilon_is_added_to_the_deviation():
    layer = StdConv2D(1, 1, use_bias=False)
    layer.build((1, 1, 1, 2))
    layer.kernel.assign(np.reshape([1e-5, -1e-5], (1, 1, 2, 1)))  # deviation 1e-5
    np.testing.assert_allclose(layer(np.reshape([1.0, 0.0], (1, 1, 1, 2))), [[[[0.5]]]], rtol=1e-4)


@pytest.mark.parametrize("shape", [(2, 17, 12, 3), (1, 16, 16, 1)])
def test_root(shape):
    layer = ResNetRoot(32)
    layer.build(shape)
    randomise(layer)
    images = images_like(shape)
    expected = reference.resnet_root(images.astype("float64"), layer)
    np.testing.assert_allclose(layer(images), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("channels", "strides", "projects"), [(128, 1, False), (128, 2, True), (64, 1, True)]
)
def test_unit(channels, strides, projects):
    layer = BottleneckUnit(32, strides)
    shape = (2, 7, 6, channels)
    layer.build(shape)
    assert layer.project == projects
    randomise(layer)
    images = images_like(shape)
    expected = reference.bottleneck_unit(images.astype("float64"), layer)
    np.testing.assert_allclose(layer(images), expected, rtol=1e-4, atol=1e-4)


def test_a_unit_starts_as_the_identity():
    images = np.abs(images_like((1, 4, 4, 128)))
    layer = BottleneckUnit(32)
    np.testing.assert_array_equal(layer(images), images)
    assert not np.any(layer.gn3.gamma)
    assert np.all(np.asarray(layer.gn1.gamma) == 1)


def test_norms_have_32_groups_and_epsilon_1e_6_and_nothing_a_bias():
    layer = BottleneckUnit(64, 2)
    layer.build((1, 4, 4, 64))
    for norm in (layer.gn1, layer.gn2, layer.gn3, layer.gn_proj):
        assert (norm.groups, norm.epsilon) == (32, 1e-6)
    for convolution in (layer.conv1, layer.conv2, layer.conv3, layer.conv_proj):
        assert not convolution.use_bias


def test_kernels_start_lecun_normal():
    layer = BottleneckUnit(64)
    layer.build((1, 4, 4, 256))
    assert np.std(layer.conv2.kernel) == pytest.approx(1 / np.sqrt(9 * 64), rel=0.02)
