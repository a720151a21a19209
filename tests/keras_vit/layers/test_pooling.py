"""Pooling: one token, the mean of the patches, or a learned query."""

import numpy as np
import pytest

from keras_vit.layers import AttentionPooling, MeanPooling, TokenMeanPooling, TokenPooling
from tests.check_layer import images_like, randomise
from tests.keras_vit import reference

TOKENS = (2, 7, 12)


def test_token():
    tokens = images_like(TOKENS)
    np.testing.assert_array_equal(TokenPooling()(tokens), tokens[:, 0])
    np.testing.assert_array_equal(TokenPooling(3)(tokens), tokens[:, 3])


def test_mean_leaves_the_prefix_out():
    tokens = images_like(TOKENS)
    np.testing.assert_allclose(MeanPooling()(tokens), tokens.mean(1), atol=1e-6)
    np.testing.assert_allclose(MeanPooling(5)(tokens), tokens[:, 5:].mean(1), atol=1e-6)


def test_mean_is_summed_wide_in_half_precision():
    tokens = np.full((1, 4096, 2), 100.0)
    output = MeanPooling(dtype="mixed_float16")(tokens)
    np.testing.assert_array_equal(output, [[100, 100]])  # the sum alone would be infinite


def attention_pooling(**settings):
    layer = AttentionPooling(**{"num_heads": 3, "mlp_dim": 20, **settings})
    layer.build(TOKENS)
    return layer


@pytest.mark.parametrize("settings", [{}, dict(num_prefix_tokens=2, gelu="erf", norm_epsilon=0.2)])
def test_attention_is_the_map_head(settings):
    layer, tokens = randomise(attention_pooling(**settings), scale=0.3), images_like(TOKENS)
    expected = reference.attention_pooling(tokens.astype("float64"), layer)
    np.testing.assert_allclose(layer(tokens), expected, atol=1e-5)


def test_attention_does_not_see_the_order_nor_the_prefix():
    layer = randomise(attention_pooling(num_prefix_tokens=2), scale=0.3)
    tokens = images_like(TOKENS)
    moved = tokens[:, [1, 0, 6, 3, 5, 4, 2]] * np.array([9, 9, 1, 1, 1, 1, 1])[:, None]
    np.testing.assert_allclose(layer(tokens), layer(moved.astype("float32")), atol=1e-5)


def test_attention_starts_xavier():
    layer = AttentionPooling(6, 768)
    layer.build((None, 5, 384))
    limit = np.sqrt(6 / (384 + 384))
    for part, matrices in (("query", 1), ("key_value", 2), ("output_projection", 1)):
        dense = getattr(layer, part)
        kernel = np.asarray(dense.kernel)
        assert kernel.size == matrices * 384 * 384
        assert kernel.std() == pytest.approx(limit / np.sqrt(3), rel=0.02), part
        assert not np.any(dense.bias)
    # flax: fan-in 1, fan-out D for a (1, 1, D) probe
    assert np.std(layer.probe) == pytest.approx(np.sqrt(2 / (1 + 384)), rel=0.1)


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match=r"num_heads=5 must divide the hidden size.*\(2, 7, 12\)"):
        attention_pooling(num_heads=5)


def test_token_mean_puts_the_class_token_beside_the_mean():
    tokens = images_like(TOKENS)
    expected = np.concatenate([tokens[:, 0], tokens[:, 3:].mean(1)], axis=1)
    np.testing.assert_allclose(TokenMeanPooling(3)(tokens), expected, atol=1e-6)
