import numpy as np
import pytest
import tensorflow as tf

from training.data.mix import beta, mix_batch


def batch(size=6, side=16, num_classes=4):
    """Images that are constant, each at its own level, so that mixtures can be read off."""
    levels = tf.range(1.0, size + 1.0)
    images = tf.ones((size, side, side, 3)) * levels[:, None, None, None]
    return images, tf.one_hot(tf.range(size) % num_classes, num_classes)


def seed(number: int):
    return tf.constant([7, number], tf.int64)


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("way", [{"mixup": 1.0, "cutmix": 0.0}, {"mixup": 0.0, "cutmix": 1.0}])
def test_labels_are_mixed_as_the_pixels_are(way, size):
    images, labels = batch(size)
    for number in range(20):
        mixed, soft = mix_batch(images, labels, seed=seed(number), **way)
        np.testing.assert_allclose(tf.reduce_sum(soft, axis=1), 1.0, rtol=1e-5)
        own, partner = labels.numpy(), np.roll(labels, 1, axis=0)
        level, other = images.numpy()[:, 0, 0, 0], np.roll(images, 1, axis=0)[:, 0, 0, 0]
        # The share of the own image, from its pixels, is the share of its label.
        mean = mixed.numpy().mean(axis=(1, 2, 3))
        share = np.where(
            level == other, 1.0, (mean - other) / np.where(level == other, 1, level - other)
        )
        expected = share[:, None] * own + (1 - share[:, None]) * partner
        np.testing.assert_allclose(soft, expected, atol=1e-4)


def test_cutmix_pastes_one_box():
    images, labels = batch(2)
    for number in range(20):
        mixed, _ = mix_batch(images, labels, 0.0, 1.0, seed(number))
        pasted = mixed.numpy()[0, :, :, 0] == 2.0
        rows, columns = pasted.any(axis=1), pasted.any(axis=0)
        np.testing.assert_array_equal(pasted, rows[:, None] & columns[None, :])


def test_mixup_weighs_every_pixel_alike():
    mixed, _ = mix_batch(*batch(), 0.5, 0.0, seed(0))
    np.testing.assert_allclose(mixed - mixed[:, :1, :1], 0.0, atol=1e-6)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_weights_follow_the_beta_distribution(alpha):
    draws = np.array([float(beta(alpha, seed(i))) for i in range(2000)])
    assert ((draws >= 0) & (draws <= 1)).all()
    assert abs(draws.mean() - 0.5) < 0.03
    assert abs(draws.var() - 1 / (4 * (2 * alpha + 1))) < 0.015  # of Beta(alpha, alpha)


def test_with_both_each_batch_gets_one_equally_often():
    images, labels = batch(2)
    cut = 0
    for number in range(200):
        mixed, _ = mix_batch(images, labels, 1.0, 1.0, seed(number))
        cut += set(np.unique(mixed)) <= {1.0, 2.0}
    assert 70 < cut < 130


def test_without_either_nothing_changes():
    images, labels = batch()
    mixed, soft = mix_batch(images, labels, 0.0, 0.0, seed(0))
    np.testing.assert_array_equal(mixed, images)
    np.testing.assert_array_equal(soft, labels)


def test_the_same_seed_is_the_same_mixture_in_a_graph_too():
    images, labels = batch()
    graph = tf.function(mix_batch)
    for number in range(3):
        first = mix_batch(images, labels, 0.8, 1.0, seed(number))
        second = graph(images, labels, 0.8, 1.0, seed(number))
        for one, two in zip(first, second, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6)
