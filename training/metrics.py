"""Scores of a classifier: plain functions of NumPy arrays.

N examples, K classes. `scores` are float `(N, K)`, logits or probabilities alike; `labels` are int
`(N,)` class indices. Nothing here hides an undefined figure: it is NaN.
"""

from collections.abc import Sequence

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities `(N, K)` in float64; each row sums to 1."""
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def top_k_accuracy(scores: np.ndarray, labels: np.ndarray, k: int) -> float:
    """Part of the examples, 0..1, whose class is among the k highest scores.

    Of equal scores the first class counts, as with argmax: a model that answers the same for every
    class is right about one class, not about all.
    """
    true = scores[np.arange(len(labels)), labels][:, None]  # (N, 1)
    is_before = np.arange(scores.shape[1]) < labels[:, None]  # (N, K)
    num_ahead = (scores > true).sum(axis=1) + ((scores == true) & is_before).sum(axis=1)
    return float((num_ahead < k).mean())


def log_loss(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean negative log-likelihood of the true class, in nats."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=1))
    return float((log_sum - shifted[np.arange(len(labels)), labels]).mean())


def confusion_matrix(predicted: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Counts, int64 `(K, K)`: rows are true classes, columns `predicted` ones (int `(N,)`)."""
    pairs = labels.astype(np.int64) * num_classes + predicted
    return np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)


def per_class(matrix: np.ndarray) -> dict[str, np.ndarray]:
    """Precision, recall, F1 (each 0..1) and support of every class, `(K,)` arrays.

    NaN where a figure does not exist: precision of a class never predicted, recall of a class
    without examples, F1 of one with neither.
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
    """Gap between confidence and accuracy, 0..1, averaged over the examples.

    Source: Guo et al. 2017, equation 3: bins ((m - 1) / M, m / M] of equal width, M = 15.
    """
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == labels
    bins = np.clip(np.ceil(confidence * num_bins).astype(int) - 1, 0, num_bins - 1)
    gaps = np.bincount(bins, confidence - is_right, minlength=num_bins)
    return float(np.abs(gaps).sum() / len(labels))


def real_accuracy(predicted: np.ndarray, real_labels: Sequence[Sequence[int]]) -> float:
    """ImageNet-ReaL: part of the images, 0..1, whose `predicted` class is one of its labels.

    predicted: int `(N,)`; real_labels: N lists of classes, an image with an empty one is left out.
    Source: Beyer et al. 2020, section 4.
    """
    judged = [(p, labels) for p, labels in zip(predicted, real_labels, strict=True) if labels]
    if not judged:
        return float("nan")
    return float(np.mean([p in labels for p, labels in judged]))
