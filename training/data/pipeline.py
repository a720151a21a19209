"""tf.data pipelines: an endless one for training, an exact one for evaluation.

Training example number i of the endless stream belongs to epoch i // n; its place in that epoch,
its crop, its colours, all come from (seed, i) by stateless operations. So the same seed gives the
same batches on any number of threads and machines, and the stream can be entered anywhere.
"""

import functools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from training.data.augment import Augmentation, augment_image
from training.data.mix import mix_batch
from training.data.preprocess import Preprocess, preprocess_image
from training.data.sources import IndexedSplit, StreamSplit

SHUFFLE_BUFFER = 4096  # images of a stream, still encoded
AUTOTUNE = tf.data.AUTOTUNE


@dataclass(frozen=True)
class Part:
    """The part of every global batch that one worker makes: number `index` of `count` alike."""

    index: int = 0
    count: int = 1


@dataclass(frozen=True)
class Entry:
    """Where a stream of training batches is entered.

    step: how many batches came before.
    left_out: numbers of batches that never come, ascending; later ones take their place.
    """

    step: int = 0
    left_out: tuple[int, ...] = ()

    def numbers(self) -> tf.data.Dataset:
        """The numbers of the batches that do come, int64, without end."""
        steps = tf.data.Dataset.range(self.step, np.iinfo(np.int64).max)
        return steps.map(lambda step: self.number(step))

    def number(self, step):
        """Number of the batch of this step, int64."""
        step = tf.cast(step, tf.int64)
        gaps = np.array(self.left_out, np.int64) - np.arange(len(self.left_out))
        return step + tf.searchsorted(gaps, [step], "right", tf.int64)[0]


@dataclass(frozen=True)
class Wanted:
    """The examples of a stream that one worker makes: these places of each batch that comes.

    repeats: how often an image comes in a batch, far from its other copies (Hoffer et al. 2020).
    """

    batch_size: int
    places: np.ndarray
    entry: Entry
    repeats: int = 1

    @property
    def distinct(self) -> int:
        """Images of a batch; its place p has the same one as p + distinct."""
        return -(-self.batch_size // self.repeats)

    def numbers(self) -> tf.data.Dataset:
        """Int64 numbers of the examples, each of its own augmentation."""
        return self.entry.numbers().flat_map(
            lambda batch: tf.data.Dataset.from_tensor_slices(batch * self.batch_size + self.places)
        )


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
    repeats: int = 1,
    part: Part = Part(),
    entry: Entry = Entry(),
) -> tf.data.Dataset:
    """Endless training batches; every image comes once an epoch, batches may cross epochs.

    Args:
        split: what to train on.
        preprocess, augmentation: what each image becomes.
        num_classes, seed: as named.
        batch_size: of the global batch; `part.count` divides it.
        class_weights: float `(num_classes,)`; adds sample weights, for mixed labels the weighted
            mean of their classes' weights.
        cache: keep the images in memory as they are stored (encoded), so that a slow disk is read
            only once.
        repeats: how often an image comes in a batch, each time augmented anew (Hoffer et al.
            2020; DeiT: 3); a pass over all images takes as many times the steps.
        part: what of each batch is made here: all parts together are the batches of one machine.
        entry: where the stream begins.

    Returns: batches of (float32 images `(B, H, W, C)`, float32 labels `(B, num_classes)`), and
        float32 weights `(B,)` with `class_weights`; B is `batch_size / part.count`.
    """
    mixes = augmentation.mixup > 0 or augmentation.cutmix > 0
    # An image is mixed with the one before it in the global batch: a part needs that one too.
    borrowed = int(mixes and part.count > 1)
    own = batch_size // part.count
    places = (np.arange(-borrowed, own) + part.index * own) % batch_size
    examples = training_examples(split, seed, cache, Wanted(batch_size, places, entry, repeats))

    def augment(number, image, label):
        example_seed = tf.stack([tf.constant(seed, tf.int64), number])
        image = augment_image(image, augmentation, preprocess, example_seed)
        return image, tf.one_hot(label, num_classes)

    def mix(number, batch):
        partners = tuple(value[:-1] for value in batch) if borrowed else None
        images, labels = (value[borrowed:] for value in batch)
        mix_seed = tf.stack([tf.constant(~seed, tf.int64), number])
        images, labels = mix_batch(
            images, labels, augmentation.mixup, augmentation.cutmix, mix_seed, partners
        )
        if class_weights is None:
            return images, labels
        weights = tf.linalg.matvec(labels, tf.constant(class_weights, tf.float32))
        return images, labels, weights

    batches = examples.map(augment, num_parallel_calls=AUTOTUNE, deterministic=True)
    batches = batches.batch(len(places), drop_remainder=True)
    batches = tf.data.Dataset.zip(entry.numbers(), batches)
    batches = batches.map(mix, num_parallel_calls=AUTOTUNE, deterministic=True)
    return batches.prefetch(AUTOTUNE)


def training_examples(
    split: IndexedSplit | StreamSplit, seed: int, cache: bool, wanted: Wanted
) -> tf.data.Dataset:
    """(number in the stream int64, image as stored, int32 label) of the wanted ones."""
    if isinstance(split, StreamSplit):
        return _stream(split, seed, cache, wanted)

    count, batch_size, distinct = split.num_examples, wanted.batch_size, wanted.distinct
    example = _lookup(split, _cached(split) if cache else split.read)

    def one(number):
        image = number // batch_size * distinct + number % batch_size % distinct
        epoch, place = image // count, image % count
        index = tf.random.experimental.index_shuffle(place, order_key(seed, epoch), count - 1)
        return number, *example(index)

    return wanted.numbers().map(one, num_parallel_calls=AUTOTUNE, deterministic=True)


def order_key(seed: int, epoch):
    """Int64 `(2,)`, what the order of an epoch follows from."""
    return tf.stack([tf.constant(seed, tf.int64), epoch])


def _stream(split: StreamSplit, seed: int, cache: bool, wanted: Wanted) -> tf.data.Dataset:
    """Every worker reads all, still encoded, and keeps its places: the order is the buffer's."""
    distinct, entry = wanted.distinct, wanted.entry
    places = wanted.places % distinct
    kept = split.open(None).cache() if cache else None

    def epoch(number):
        key = order_key(seed, number)
        examples = split.open(key) if kept is None else kept
        # Of this graph alone: beside a seed of 0, shuffle takes no tensor as its own.
        tf.random.set_seed(1)
        buffer_seed = tf.random.stateless_uniform([], key, None, None, tf.int64)
        return examples.shuffle(SHUFFLE_BUFFER, buffer_seed, reshuffle_each_iteration=False)

    start = int(entry.number(entry.step)) * distinct
    first, skipped = divmod(start, split.num_examples)
    epochs = tf.data.Dataset.range(first, np.iinfo(np.int64).max)
    examples = epochs.flat_map(epoch).skip(skipped)
    windows = examples.window(distinct, drop_remainder=True).enumerate(start // distinct)
    left_out = tf.constant(entry.left_out, tf.int64)
    windows = windows.filter(lambda batch, _: ~tf.reduce_any(batch == left_out))

    def own(_, window):
        window = tf.data.Dataset.zip(*window)
        runs = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
        parts = [window.skip(int(run[0])).take(len(run)) for run in runs]
        return functools.reduce(tf.data.Dataset.concatenate, parts)

    numbered = tf.data.Dataset.zip(wanted.numbers(), windows.flat_map(own))
    return numbered.map(lambda number, example: (number, *example))


def _lookup(split: IndexedSplit, read):
    """A function from an index to (image as stored, int32 label)."""
    labels = tf.constant(split.labels)
    return lambda index: (read(index), tf.gather(labels, index))


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
    images = _examples(split).map(
        lambda image, label: (preprocess_image(image, preprocess), label),
        num_parallel_calls=AUTOTUNE,
    )
    return images.batch(batch_size).prefetch(AUTOTUNE)


def validation_dataset(
    split: IndexedSplit | StreamSplit,
    preprocess: Preprocess,
    *,
    num_classes: int,
    batch_size: int,
    part: Part = Part(),
) -> tf.data.Dataset:
    """Every example once, in batches that are all full: what fills the last one has weight 0.

    Returns: batches of (float32 images `(B, H, W, C)`, float32 labels `(B, num_classes)`, float32
        weights `(B,)`); B is `batch_size / part.count`.
    """
    own = batch_size // part.count

    def is_own(number, *_):
        return number % batch_size // own == part.index

    def prepare(image, label, weight):
        return preprocess_image(image, preprocess), tf.one_hot(label, num_classes), weight

    examples = _filled(split, split.num_examples + -split.num_examples % batch_size, is_own)
    examples = examples.map(prepare, num_parallel_calls=AUTOTUNE)
    return examples.batch(own, drop_remainder=True).prefetch(AUTOTUNE)


def _filled(split: IndexedSplit | StreamSplit, total: int, is_own) -> tf.data.Dataset:
    """(image as stored, int32 label, float32 weight): one's own of the split's and then repeats."""
    count = split.num_examples
    if isinstance(split, IndexedSplit):
        example = _lookup(split, split.read)

        def read(number):
            index = tf.minimum(number, count - 1)
            return *example(index), tf.cast(number < count, tf.float32)

        numbers = tf.data.Dataset.range(total).filter(is_own)
        return numbers.map(read, num_parallel_calls=AUTOTUNE)

    examples = split.open(None)
    examples = examples.concatenate(examples.take(1).repeat(total - count)).enumerate()
    return examples.filter(is_own).map(
        lambda number, example: (*example, tf.cast(number < count, tf.float32))
    )


def _examples(split: IndexedSplit | StreamSplit) -> tf.data.Dataset:
    """(image as stored, int32 label) of every example in the order of the split."""
    if isinstance(split, StreamSplit):
        return split.open(None)
    indices = tf.data.Dataset.range(split.num_examples)
    return indices.map(_lookup(split, split.read), num_parallel_calls=AUTOTUNE)
