"""The embedded default: scikit-learn's 1797 real handwritten digits, 8x8 pixels, gray."""

import hashlib

import numpy as np
import tensorflow as tf

from training.data.sources import IndexedSplit, Source
from training.data.split import stratified_split

# The test set is part of what "digits" means: it does not change with a run's seed.
TEST_FRACTION, TEST_SEED = 0.2, 0


def open_digits(seed: int, validation_fraction: float) -> Source:
    """Digits 0 to 9: a fixed test set of 20 %, the rest split into train and validation.

    Args:
        seed: of the split into train and validation.
        validation_fraction: part of what is not test that becomes validation.
    """
    from sklearn.datasets import load_digits  # slow to import, and only wanted here

    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., None]  # 0..16 to 0..255
    labels = digits.target.astype(np.int32)
    _, groups = np.unique(images.reshape(len(images), -1), axis=0, return_inverse=True)
    rest, test = stratified_split(labels, groups, TEST_FRACTION, TEST_SEED)
    train, validation = stratified_split(labels[rest], groups[rest], validation_fraction, seed)
    parts = {"train": rest[train], "validation": rest[validation], "test": test}
    return Source(
        name="digits",
        class_names=tuple(str(digit) for digit in range(10)),
        splits={name: array_split(images[part], labels[part]) for name, part in parts.items()},
        channels=1,
        image_size=(8, 8),
        flip=False,
        fingerprint=hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest(),
    )


def array_split(images: np.ndarray, labels: np.ndarray) -> IndexedSplit:
    """A split of uint8 images `(N, H, W, C)` held in memory."""
    pixels = tf.constant(images)
    return IndexedSplit(labels, lambda index: tf.gather(pixels, index))
