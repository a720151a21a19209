"""PatchEncoder: equation 1, the order of the tokens, who owns a position, initial values."""

import numpy as np
import pytest

from keras_vit.layers import PatchEncoder, sincos_2d
from tests.check_layer import images_like, randomise
from tests.keras_vit import reference

PATCHES = (2, 6, 12)


def built(shape=PATCHES, **settings):
    layer = PatchEncoder(**{"hidden_size": 8, "grid_size": (2, 3), **settings})
    layer.build(shape)
    return layer


@pytest.mark.parametrize("positions", ["learned", "sincos2d", "none"])
@pytest.mark.parametrize("owners", ["all", "class", "patches"])
@pytest.mark.parametrize(("class_token", "registers"), [(True, 0), (True, 2), (False, 0)])
def test_equation_1(positions, owners, class_token, registers):
    layer = randomise(
        built(
            position_embedding=positions,
            position_tokens=owners,
            class_token=class_token,
            num_register_tokens=registers,
        )
    )
    patches = images_like(PATCHES)
    expected = reference.patch_encoder(patches.astype("float64"), layer)
    np.testing.assert_allclose(layer(patches), expected, atol=1e-5)


def test_order_is_class_distillation_registers_patches():
    layer = built(
        distillation_token=True, num_register_tokens=2, position_embedding="none", use_bias=False
    )
    names = [token.name for token in layer.prefix]
    assert names == ["class_token", "distillation_token", "register_tokens"]
    for number, token in enumerate(layer.prefix):
        token.assign(np.full(token.shape, number + 1.0))
    output = np.asarray(layer(np.zeros(PATCHES)))
    np.testing.assert_array_equal(output[0, :, 0], [1, 2, 3, 3] + [0] * 6)


@pytest.mark.parametrize(("owners", "count"), [("all", 10), ("class", 8), ("patches", 6)])
def test_who_owns_a_position(owners, count):
    layer = built(distillation_token=True, num_register_tokens=2, position_tokens=owners)
    assert layer.positions.shape == (1, count, 8)


def test_initial_values_are_the_originals():
    layer = PatchEncoder(512, (32, 32), num_register_tokens=64)
    layer.build((None, 1024, 768))
    kernel = np.asarray(layer.projection.kernel)
    assert kernel.std() == pytest.approx(1 / np.sqrt(768), rel=0.01)  # LeCun, truncated
    assert np.abs(kernel).max() < 2.3 / np.sqrt(768)
    assert not np.any(layer.projection.bias)
    class_token, registers = layer.prefix
    assert not np.any(class_token)
    assert np.std(registers) == pytest.approx(0.02, rel=0.03)
    positions = np.asarray(layer.positions)
    assert positions.std() == pytest.approx(0.02, rel=0.01)
    assert np.abs(positions).max() > 0.07  # not truncated at two deviations


def test_sincos_is_the_formula():
    table = sincos_2d((3, 5), 16)
    assert table.shape == (1, 15, 16) and table.dtype == "float32"
    np.testing.assert_allclose(table[0], reference.sincos_2d(3, 5, 16), atol=1e-6)


def test_fixed_positions_have_no_weight():
    assert len(built(position_embedding="sincos2d", class_token=False).weights) == 2


@pytest.mark.parametrize(
    ("settings", "shape", "message"),
    [
        (dict(grid_size=(3, 4)), PATCHES, r"grid_size=\(3, 4\) needs 12 patches.*\(2, 6, 12\)"),
        (dict(position_embedding="rope"), PATCHES, "must be 'learned', 'sincos2d' or 'none'.*rope"),
        (dict(position_tokens="cls"), PATCHES, "must be 'all', 'class' or 'patches'.*cls"),
    ],
)
def test_mistakes(settings, shape, message):
    with pytest.raises(ValueError, match=message):
        built(shape, **settings)
