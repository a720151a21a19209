"""MultiHeadSelfAttention: equations 5 to 8, initial values, safe in half precision."""

import keras
import numpy as np
import pytest

from keras_vit.layers import MultiHeadSelfAttention
from tests.check_layer import images_like, randomise
from tests.keras_vit import reference

TOKENS = (2, 7, 12)


def built(shape=TOKENS, **settings):
    layer = MultiHeadSelfAttention(**{"num_heads": 3, **settings})
    layer.build(shape)
    return layer


@pytest.mark.parametrize("num_heads", [1, 3, 12])
@pytest.mark.parametrize(
    "settings", [dict(), dict(use_qkv_bias=False), dict(qk_norm=True, norm_epsilon=0.1)], ids=str
)
def test_equations_5_to_8(num_heads, settings):
    layer = randomise(built(num_heads=num_heads, **settings), scale=0.5)
    tokens = images_like(TOKENS)
    output, weights = layer(tokens, return_attention_scores=True)
    expected, expected_weights = reference.attention(tokens.astype("float64"), layer)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-6)
    np.testing.assert_array_equal(layer(tokens), output)


def test_permuting_the_tokens_permutes_the_output():
    layer, tokens = randomise(built()), images_like(TOKENS)
    order = [3, 0, 6, 1, 5, 2, 4]
    np.testing.assert_allclose(
        layer(tokens[:, order]), np.asarray(layer(tokens))[:, order], atol=1e-6
    )


def test_one_fused_kernel_is_drawn_as_three_xavier_matrices():
    kernel = np.asarray(built((None, 5, 384), num_heads=6).qkv.kernel)
    limit = np.sqrt(6 / (384 + 384))
    for third in np.split(kernel, 3, axis=1):
        assert third.shape == (384, 384)
        assert third.std() == pytest.approx(limit / np.sqrt(3), rel=0.01)
        assert 0.99 * limit < np.abs(third).max() <= limit
    output = np.asarray(built((None, 5, 384), num_heads=6).output_projection.kernel)
    assert output.std() == pytest.approx(limit / np.sqrt(3), rel=0.01)


def test_biases_start_at_zero():
    layer = built()
    assert not np.any(layer.qkv.bias) and not np.any(layer.output_projection.bias)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_softmax_survives_huge_scores(policy):
    layer = built(num_heads=1, dtype=policy)
    kernel = np.concatenate([np.eye(12)] * 3, axis=1)
    layer.qkv.kernel.assign(kernel)
    # Scores up to 100 * 100 * 12 / sqrt(12) = 34641, just inside float16.
    tokens = 100 * np.sign(images_like(TOKENS))
    output, weights = layer(tokens, return_attention_scores=True)
    assert weights.dtype == "float32"
    assert np.isfinite(np.asarray(output, "float32")).all()
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, atol=1e-6)


def test_scores_are_exact_where_half_precision_would_round_the_sum():
    layer = built((1, 4096, 4), num_heads=1, dtype="mixed_float16")
    layer.qkv.kernel.assign(np.zeros((4, 12)))
    _, weights = layer(np.ones((1, 4096, 4)), return_attention_scores=True)
    np.testing.assert_allclose(weights, 1 / 4096, rtol=1e-6)


def test_dropout_is_per_weight_and_leaves_the_scores_whole():
    layer = randomise(built(dropout=0.5))
    tokens = images_like(TOKENS)
    output, weights = layer(tokens, training=True, return_attention_scores=True)
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, atol=1e-6)
    assert not np.allclose(output, layer(tokens))
    assert layer.attention_dropout.noise_shape is None


def test_in_a_functional_model_it_can_return_the_scores():
    tokens = keras.Input((7, 12))
    output, scores = MultiHeadSelfAttention(3)(tokens, return_attention_scores=True)
    assert output.shape == (None, 7, 12) and scores.shape == (None, 3, 7, 7)
    model = keras.Model(tokens, [output, scores])
    assert model(np.zeros(TOKENS))[1].shape == (2, 3, 7, 7)


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match=r"num_heads=5 must divide the hidden size.*\(2, 7, 12\)"):
        built(num_heads=5)
