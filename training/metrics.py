"""Scores of a classifier: plain functions of NumPy arrays.

`probabilities` are float `(N, K)` whose rows sum to 1, `labels` int `(N,)` class indices.
"""

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities `(N, K)` in float64."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def top_k_accuracy(probabilities: np.ndarray, labels: np.ndarray, k: int) -> float:
    """Part of the images whose class is among the k most probable, in 0..1.

    Of equally probable classes the first counts, as with argmax.
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :k]
    return float((order == labels[:, None]).any(axis=1).mean())


def log_loss(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Mean negative log-likelihood of the true class, in nats."""
    true = probabilities[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(true, np.finfo(np.float64).tiny)).mean())


def confusion_matrix(predicted: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Counts, int64 `(K, K)`: rows are true classes, columns predicted ones."""
    pairs = labels.astype(np.int64) * num_classes + predicted
    return np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)


def per_class(matrix: np.ndarray) -> dict[str, np.ndarray]:
    """Precision, recall, F1 (each 0..1) and support of every class, `(K,)` arrays.

    NaN where a figure does not exist: precision of a class never predicted, recall of a class
    without images, F1 of one with neither.
    """
    hits, predicted, support = np.diag(matrix), matrix.sum(axis=0), matrix.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return {
            "precision": hits / predicted,
            "recall": hits / support,
            "f1": 2 * hits / (predicted + support),
            "support": support,
        }


def expected_calibration_error(
    probabilities: np.ndarray, labels: np.ndarray, num_bins: int = 15
) -> float:
    """Mean gap between confidence and accuracy, weighted by bin (Guo et al. 2017), in 0..1."""
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == labels
    bins = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    count = np.bincount(bins, minlength=num_bins)
    gap = np.bincount(bins, confidence - is_right, minlength=num_bins)
    return float(np.abs(gap).sum() / count.sum())


def real_accuracy(predicted: np.ndarray, real_labels: list[list[int]]) -> float:
    """ImageNet-ReaL (Beyer et al. 2020): part of the images whose class is one of their labels.

    Images without a label are left out.
    """
    judged = [(int(p), labels) for p, labels in zip(predicted, real_labels, strict=True) if labels]
    return float(np.mean([p in labels for p, labels in judged]))
