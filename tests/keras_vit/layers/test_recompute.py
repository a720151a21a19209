"""recompute: the same numbers, gradients, masks and seeds as without, and less memory."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.layers import MultiHeadSelfAttention, TransformerBlock, attention
from tests.check_layer import images_like, randomise

TOKENS = (2, 9, 8)
BLOCK = dict(
    num_heads=2,
    mlp_dim=12,
    dropout=0.2,
    attention_dropout=0.3,
    drop_path=0.4,
    layer_scale=0.5,
    qk_norm=True,
)


def block(remat, policy="float32", **changes):
    keras.utils.set_random_seed(3)
    layer = TransformerBlock(**BLOCK | changes, remat=remat, dtype=policy)
    layer.build(TOKENS)
    return randomise(layer)


def step(layer, tokens, graph):
    """Output, gradients of input and weights, seeds afterwards."""

    def compute(tokens):
        with tf.GradientTape() as tape:
            tape.watch(tokens)
            output = tf.cast(layer(tokens, training=True), "float32")
            loss = tf.reduce_sum(output * tf.sin(output))
        variables = [v.value for v in layer.trainable_variables]
        return output, tape.gradient(loss, [tokens, *variables])

    output, gradients = (tf.function(compute) if graph else compute)(tf.constant(tokens))
    return [np.asarray(value) for value in (output, *gradients, *layer.non_trainable_variables)]


# In a graph TensorFlow fuses bfloat16 operations in its own ways, which round differently.
@pytest.mark.parametrize(
    ("policy", "graph"), [("float32", False), ("float32", True), ("mixed_bfloat16", False)]
)
@pytest.mark.parametrize("remat", ["attention", "block"])
def test_two_training_steps_are_the_same(remat, policy, graph):
    plain, again = block("none", policy), block(remat, policy)
    tokens = images_like(TOKENS)
    for _ in range(2):
        expected, found = step(plain, tokens, graph), step(again, tokens, graph)
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_allclose(other, one, atol=1e-6)
    assert any(np.any(seed != 0) for seed in found[-4:])


def test_a_random_function_is_not_what_remat_alone_would_make_of_it():
    """The test above can fail: two calls of one block draw different masks."""
    layer, tokens = block("block"), images_like(TOKENS)
    first, second = step(layer, tokens, True)[0], step(layer, tokens, True)[0]
    assert np.abs(first - second).max() > 0.1


def test_replicas_compute_the_same_again():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        layers = [block(remat, drop_path=0.0) for remat in ("none", "block")]
    tokens = images_like(TOKENS)

    def gradients(layer):
        def compute():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layer(tf.constant(tokens), training=True) ** 2)
            return tape.gradient(loss, [v.value for v in layer.trainable_variables])

        per_replica = strategy.run(tf.function(compute))
        return [np.asarray(v) for value in per_replica for v in value.values]

    for one, other in zip(*map(gradients, layers), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)  # values are up to 50


@pytest.mark.parametrize("at_once", [1, 4, 8])
def test_attention_in_slices_is_attention(monkeypatch, at_once):
    def made():
        keras.utils.set_random_seed(3)
        layer = MultiHeadSelfAttention(2, qk_norm=True)
        layer.build(TOKENS)
        return randomise(layer, scale=0.5)

    tokens = images_like(TOKENS)
    expected = step(made(), tokens, True)
    monkeypatch.setattr(attention, "QUERIES_AT_ONCE", at_once)
    for one, other in zip(expected, step(made(), tokens, True), strict=True):
        np.testing.assert_allclose(other, one, atol=2e-6)
    np.testing.assert_allclose(made()(tokens), expected[0], atol=1e-6)


def test_slices_draw_masks_of_their_own(monkeypatch):
    monkeypatch.setattr(attention, "QUERIES_AT_ONCE", 3)
    keras.utils.set_random_seed(3)
    layer = MultiHeadSelfAttention(2, dropout=0.5)
    layer.build(TOKENS)
    before = np.asarray(layer.non_trainable_variables[0])
    step(layer, images_like(TOKENS), True)
    np.testing.assert_array_equal(np.asarray(layer.non_trainable_variables[0]) - before, [0, 3])


def test_long_sequences_hold_no_whole_scores():
    """No tensor of a forward pass over 1152 + 1 tokens is (.., 1153, 1153)."""
    layer = MultiHeadSelfAttention(2)
    layer.build((1, 1153, 8))
    graph = tf.function(layer).get_concrete_function(tf.TensorSpec((1, 1153, 8))).graph
    shapes = [
        tuple(value.shape)
        for op in graph.get_operations()
        for value in op.outputs
        if value.shape.rank is not None
    ]
    assert (1, 2, 577, 1153) in shapes
    assert not [shape for shape in shapes if shape[-2:] == (1153, 1153)]


@pytest.mark.parametrize("remat", ["none", "attention", "block"])
def test_the_model_keeps_the_setting(remat, tmp_path):
    model = keras_vit.create_model("vit_ti16", image_size=32, num_classes=3, remat=remat)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.get_layer("block_00").remat == remat
    assert keras_vit.create_model(keras_vit.config_of(again)).get_layer("block_05").remat == remat
