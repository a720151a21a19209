"""tf.data pipelines: an endless one for training, an exact one for evaluation.

Training example number i of the endless stream belongs to epoch i // n; its place in that epoch,
its crop, its colours, all come from (seed, i) by stateless operations. So the same seed gives the
same batches on any number of threads, and an indexed stream can be entered anywhere.
"""

import numpy as np
import tensorflow as tf

from training.data.augment import Augmentation, augment_image
from training.data.mix import mix_batch
from training.data.preprocess import Preprocess, preprocess_image
from training.data.sources import IndexedSplit, StreamSplit

SHUFFLE_BUFFER = 4096  # images of a stream, still encoded
AUTOTUNE = tf.data.AUTOTUNE


def training_dataset(  # noqa: PLR0913, every one is a setting of the run
    split: IndexedSplit | StreamSplit,
    preprocess: Preprocess,
    augmentation: Augmentation,
    *,
    num_classes: int,
    batch_size: int,
    seed: int,
    class_weights: np.ndarray | None = None,
    cache: bool = False,
) -> tf.data.Dataset:
    """Endless training batches; every image comes once an epoch, batches may cross epochs.

    Args:
        split: what to train on.
        preprocess, augmentation: what each image becomes.
        num_classes, batch_size, seed: as named.
        class_weights: float `(num_classes,)`; adds sample weights, for mixed labels the weighted
            mean of their classes' weights.
        cache: keep the images in memory as they are stored (encoded), so that a slow disk is read
            only once.

    Returns: batches of (float32 images `(B, H, W, C)`, float32 labels `(B, num_classes)`), and
        float32 weights `(B,)` with `class_weights`.
    """
    examples = endless(split, seed, cache)

    def augment(number, image, label):
        example_seed = tf.stack([tf.constant(seed, tf.int64), number])
        image = augment_image(image, augmentation, preprocess, example_seed)
        return image, tf.one_hot(label, num_classes)

    def mix(number, batch):
        images, labels = batch
        mix_seed = tf.stack([tf.constant(~seed, tf.int64), number])
        images, labels = mix_batch(
            images, labels, augmentation.mixup, augmentation.cutmix, mix_seed
        )
        if class_weights is None:
            return images, labels
        weights = tf.linalg.matvec(labels, tf.constant(class_weights, tf.float32))
        return images, labels, weights

    batches = examples.map(augment, num_parallel_calls=AUTOTUNE, deterministic=True)
    batches = batches.batch(batch_size, drop_remainder=True)
    batches = batches.enumerate().map(mix, num_parallel_calls=AUTOTUNE, deterministic=True)
    return batches.prefetch(AUTOTUNE)


def endless(split: IndexedSplit | StreamSplit, seed: int, cache: bool) -> tf.data.Dataset:
    """(number in the stream int64, image as stored, int32 label), each epoch in its own order."""
    if isinstance(split, IndexedSplit):
        return _endless_indexed(split, seed, cache)

    examples = split.open(None).cache() if cache else split.open(seed)
    examples = examples.shuffle(SHUFFLE_BUFFER, seed=seed, reshuffle_each_iteration=True).repeat()
    return examples.enumerate().map(lambda number, example: (number, *example))


def _endless_indexed(split: IndexedSplit, seed: int, cache: bool) -> tf.data.Dataset:
    labels = tf.constant(split.labels)
    count = split.num_examples
    read = _cached(split) if cache else split.read

    def one(number):
        epoch, place = number // count, number % count
        key = tf.stack([tf.constant(seed, tf.int64), epoch])
        index = tf.random.experimental.index_shuffle(place, key, count - 1)
        return number, read(index), tf.gather(labels, index)

    numbers = tf.data.Dataset.range(np.iinfo(np.int64).max)
    return numbers.map(one, num_parallel_calls=AUTOTUNE, deterministic=True)


def _cached(split: IndexedSplit):
    """`split.read` from memory: all images as stored, read now, in parallel."""
    indices = tf.data.Dataset.range(split.num_examples)
    images = list(indices.map(split.read, num_parallel_calls=AUTOTUNE).as_numpy_iterator())
    kept = tf.constant(images)
    return lambda index: tf.gather(kept, index)


def evaluation_dataset(
    split: IndexedSplit | StreamSplit, preprocess: Preprocess, *, batch_size: int
) -> tf.data.Dataset:
    """Every example once, in the order of the split; the last batch may be smaller.

    Returns: batches of (float32 images `(B, H, W, C)`, int32 labels `(B,)`).
    """
    if isinstance(split, IndexedSplit):
        labels = tf.constant(split.labels)
        examples = tf.data.Dataset.range(split.num_examples).map(
            lambda index: (split.read(index), tf.gather(labels, index)), num_parallel_calls=AUTOTUNE
        )
    else:
        examples = split.open(None)
    images = examples.map(
        lambda image, label: (preprocess_image(image, preprocess), label),
        num_parallel_calls=AUTOTUNE,
    )
    return images.batch(batch_size).prefetch(AUTOTUNE)
