"""Scores against scikit-learn, and the cases that it leaves open."""

import json
import math

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from training import metrics

any_values = st.floats(-20, 20)
few_values = st.sampled_from([-1.0, 0.0, 2.0])  # makes many ties


# No deadline: the time of a test says nothing about these functions.
checked = settings(deadline=None, derandomize=True)


@st.composite
def classified(draw, min_classes=2, elements=any_values):
    """(float64 scores `(N, K)`, labels `(N,)`)."""
    num_classes = draw(st.integers(min_classes, 7))
    count = draw(st.integers(1, 30))
    scores = draw(arrays(np.float64, (count, num_classes), elements=elements))
    labels = draw(arrays(np.int32, count, elements=st.integers(0, num_classes - 1)))
    return scores, labels


@checked
@given(classified(elements=few_values), st.integers(1, 8))
def test_top_k_is_membership_in_the_stable_order(example, k):
    scores, labels = example
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    expected = np.mean([label in row for label, row in zip(labels, order, strict=True)])
    assert metrics.top_k_accuracy(scores, labels, k) == expected


@checked
@given(classified(min_classes=3), st.integers(1, 2))
def test_top_k_equals_scikit_learn_without_ties(example, k):
    scores, labels = example
    scores = scores + np.arange(scores.shape[1]) * 1e-3
    if any(len(set(row)) < len(row) for row in scores):
        return
    expected = sklearn.metrics.top_k_accuracy_score(
        labels, scores, k=k, labels=range(scores.shape[1])
    )
    assert metrics.top_k_accuracy(scores, labels, k) == pytest.approx(expected)


@checked
@given(classified(elements=few_values))
def test_top_1_is_argmax(example):
    scores, labels = example
    expected = np.mean(scores.argmax(axis=1) == labels)
    assert metrics.top_k_accuracy(scores, labels, 1) == expected


def test_a_constant_model_is_right_about_one_class_only():
    labels = np.arange(10)
    assert metrics.top_k_accuracy(np.zeros((10, 10)), labels, 1) == 0.1
    assert metrics.top_k_accuracy(np.zeros((10, 10)), labels, 5) == 0.5


@checked
@given(classified(elements=st.floats(-10, 10)))  # scikit-learn clips at 2e-16
def test_log_loss_equals_scikit_learn(example):
    logits, labels = example
    probabilities = metrics.softmax(logits)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    expected = sklearn.metrics.log_loss(labels, probabilities, labels=range(logits.shape[1]))
    assert metrics.log_loss(logits, labels) == pytest.approx(expected, abs=1e-9)


def test_log_loss_does_not_cut_off_a_hopeless_answer():
    logits = np.array([[0.0, 2000.0]], np.float32)
    assert metrics.log_loss(logits, np.array([0])) == 2000
    assert metrics.softmax(logits).tolist() == [[0.0, 1.0]]


@checked
@given(classified(elements=few_values))
def test_confusion_and_classes_equal_scikit_learn(example):
    scores, labels = example
    predicted, classes = scores.argmax(axis=1), range(scores.shape[1])
    matrix = metrics.confusion_matrix(predicted, labels, len(classes))
    expected = sklearn.metrics.confusion_matrix(labels, predicted, labels=classes)
    np.testing.assert_array_equal(matrix, expected)

    table = metrics.per_class(matrix)
    figures = sklearn.metrics.precision_recall_fscore_support(
        labels, predicted, labels=classes, zero_division=np.nan
    )
    for name, values in zip(("precision", "recall", "f1", "support"), figures, strict=True):
        np.testing.assert_allclose(table[name], values, err_msg=name)


def test_what_is_undefined_is_nan():
    matrix = np.array([[3, 0, 0], [2, 0, 0], [0, 0, 0]])  # 1 never predicted, 2 not there at all
    table = metrics.per_class(matrix)
    np.testing.assert_array_equal(table["precision"], [0.6, np.nan, np.nan])
    np.testing.assert_array_equal(table["recall"], [1, 0, np.nan])
    np.testing.assert_array_equal(table["f1"], [0.75, 0, np.nan])
    assert table["support"].tolist() == [3, 2, 0]


@checked
@given(classified())
def test_calibration_error_by_the_equation(example):
    logits, labels = example
    probabilities = metrics.softmax(logits)
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == labels
    total = 0.0
    for m in range(1, 16):
        inside = ((m - 1) < confidence * 15) & (confidence * 15 <= m)
        if inside.any():
            total += inside.mean() * abs(is_right[inside].mean() - confidence[inside].mean())
    error = metrics.expected_calibration_error(probabilities, labels)
    assert error == pytest.approx(total, abs=1e-12)
    assert 0 <= error <= 1


def test_calibration_error_of_the_sure_and_of_the_honest():
    sure = np.tile([1.0, 0.0], (4, 1))
    assert metrics.expected_calibration_error(sure, np.array([0, 0, 0, 0])) == 0
    assert metrics.expected_calibration_error(sure, np.array([1, 1, 1, 1])) == 1
    honest = np.tile([0.75, 0.25], (4, 1))
    assert metrics.expected_calibration_error(honest, np.array([0, 0, 0, 1])) == 0


def test_calibration_bins_are_closed_above():
    # 0.5 lies in (0, 0.5], 0.6 in (0.5, 1]: gaps 0.5 and 0.4 do not cancel.
    probabilities = np.array([[0.5, 0.5], [0.6, 0.4]])
    error = metrics.expected_calibration_error(probabilities, np.array([1, 0]), num_bins=2)
    assert error == pytest.approx((0.5 + 0.4) / 2)


def test_real_accuracy_leaves_unlabelled_images_out():
    lists = [[1], [], [0, 2], [2]]
    assert metrics.real_accuracy(np.array([1, 5, 2, 0]), lists) == pytest.approx(2 / 3)
    assert math.isnan(metrics.real_accuracy(np.array([1]), [[]]))


def test_real_accuracy_on_the_published_labels(shared):
    lists = json.loads((shared / "data/imagenet-labels/reassessed-real.json").read_text())
    first = np.array([labels[0] if labels else 0 for labels in lists])
    assert metrics.real_accuracy(first, lists) == 1
    wrong_half = np.where(np.arange(len(lists)) % 2, first, 1000)
    labelled = np.array([bool(labels) for labels in lists])
    expected = labelled[1::2].sum() / labelled.sum()
    assert metrics.real_accuracy(wrong_half, lists) == pytest.approx(expected)
