"""Probes on frozen features: against what defines them, and on the real backbone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.datasets import load_digits

from keras_vit import UserError
from training.probe import METHODS, Scores, confidence, draw, knn, least_squares, probe

DIGITS, LABELS = load_digits(return_X_y=True)
TRAIN = (DIGITS[:600].astype("f"), LABELS[:600])
TEST = (DIGITS[600:900].astype("f"), LABELS[600:900])


@pytest.mark.parametrize("method, least", [("linear", 0.9), ("knn", 0.9), ("least-squares", 0.8)])
def test_every_method_reads_digits(method, least):
    scores = probe(method, TRAIN, TEST)
    assert len(scores.accuracies) == 1  # all images: nothing is drawn
    assert scores.mean > least
    few = probe(method, TRAIN, TEST, shots=5, seeds=2)
    assert len(few.accuracies) == 2
    assert 0.5 < few.mean < scores.mean


@pytest.mark.parametrize("method", METHODS)
def test_one_shot_and_two_classes_work(method):
    chosen = np.flatnonzero(LABELS < 2)
    x, y = DIGITS[chosen].astype("f"), LABELS[chosen]
    assert probe(method, (x[:100], y[:100]), (x[100:], y[100:]), shots=1).mean > 0.6


def test_least_squares_is_big_visions_closed_form():
    """x^T x + l2 and its inverse by eigenvectors, both ways that big_vision writes it."""
    x, y, x_test = TRAIN[0][:200].astype(np.float64), LABELS[:200], TEST[0].astype(np.float64)
    mean, std = x.mean(0), x.std(0) + 1e-5
    a = np.pad((x - mean) / std, ((0, 0), (0, 1)), constant_values=100.0)
    b = np.pad((x_test - mean) / std, ((0, 0), (0, 1)), constant_values=100.0)
    targets = 2.0 * np.eye(10)[y] - 1.0
    values, vectors = np.linalg.eigh(a.T @ a)
    weights = vectors @ ((vectors.T @ (a.T @ targets)) / (values + 1024.0)[:, None])
    expected = (b @ weights).argmax(1)
    assert (least_squares(x.astype("f"), y, x_test) == expected).mean() > 0.999


def test_neighbours_vote_by_their_cosine():
    x = np.array([[1, 0], [1, 0.1], [0, 1]], "f")
    y = np.array([1, 1, 0])
    assert knn(x, y, np.array([[5, 0], [0, 0.1]], "f")).tolist() == [1, 0]
    # Length says nothing, direction all.
    assert knn(x * 100, y, np.array([[5, 0], [0, 0.1]], "f")).tolist() == [1, 0]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 10), st.integers(0, 5))
def test_a_draw_has_so_many_of_each_class(shots, seed):
    chosen = draw(LABELS, shots, seed)
    assert np.bincount(LABELS[chosen]).tolist() == [shots] * 10
    assert len(set(chosen)) == len(chosen)
    np.testing.assert_array_equal(chosen, draw(LABELS, shots, seed))
    assert shots * 10 < 20 or not np.array_equal(chosen, draw(LABELS, shots, seed + 1))


def test_a_class_with_fewer_images_than_shots_is_named():
    with pytest.raises(UserError, match="shots=3: class number 1 has only 2 images"):
        draw(np.array([0, 0, 0, 1, 1]), 3, 0)
    draw(np.array([0, 0, 0, 2, 2, 2]), 3, 0)  # a class that the data lack is no hindrance


def test_the_interval_is_students():
    values = [0.8, 0.9, 0.85]
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert confidence(values) == pytest.approx((high - low) / 2)
    assert confidence([0.8]) is None
    assert str(Scores((0.8, 0.9, 0.85))) == "85.00% ± 12.42%"
    assert str(Scores((0.8,))) == "80.00%"
