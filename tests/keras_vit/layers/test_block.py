"""TransformerBlock: equations 2 and 3 with every part of them."""

import numpy as np
import pytest

from keras_vit.layers import TransformerBlock
from tests.check_layer import images_like, randomise
from tests.keras_vit import reference

TOKENS = (2, 7, 12)


def built(**settings):
    layer = TransformerBlock(**{"num_heads": 3, "mlp_dim": 20, **settings})
    layer.build(TOKENS)
    return randomise(layer, scale=0.3)


@pytest.mark.parametrize(
    "settings",
    [
        dict(),
        dict(gelu="erf", norm_epsilon=0.2),
        dict(layer_scale=0.5, qk_norm=True, use_qkv_bias=False),
    ],
    ids=str,
)
def test_equations_2_and_3(settings):
    layer, tokens = built(**settings), images_like(TOKENS)
    expected = reference.transformer_block(tokens.astype("float64"), layer)
    steps = layer.steps(tokens)
    assert steps.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(steps[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
    np.testing.assert_array_equal(layer(tokens), steps["output"])


def test_layer_norm_epsilon_is_1e_6_everywhere():
    layer = TransformerBlock(2, 8, qk_norm=True)
    norms = [part for part in layer._flatten_layers() if hasattr(part, "epsilon")]
    assert [norm.epsilon for norm in norms] == [1e-6] * 4


def test_with_both_branches_dropped_it_is_the_identity():
    layer, tokens = built(drop_path=0.999999), images_like(TOKENS)
    np.testing.assert_array_equal(layer(tokens, training=True), tokens)
    assert not np.allclose(layer(tokens), tokens)


def test_a_tiny_layer_scale_starts_as_nearly_the_identity():
    layer = TransformerBlock(3, 20, layer_scale=1e-6)
    tokens = images_like(TOKENS)
    np.testing.assert_allclose(layer(tokens), tokens, atol=1e-4)


def test_both_branches_drop_on_their_own():
    layer = TransformerBlock(3, 20, drop_path=0.5)
    tokens = images_like((64, *TOKENS[1:]))
    steps = layer.steps(tokens, training=True)
    dropped = [np.all(np.asarray(steps[name]) == 0, axis=(1, 2)) for name in ("attention", "mlp")]
    assert {(bool(a), bool(b)) for a, b in zip(*dropped, strict=True)} == {
        (False, False),
        (False, True),
        (True, False),
        (True, True),
    }


def test_huge_tokens_stay_finite_in_half_precision():
    layer = TransformerBlock(3, 20, dtype="mixed_float16")
    tokens = images_like(TOKENS, scale=5000.0)
    assert np.isfinite(np.asarray(layer(tokens), "float32")).all()
