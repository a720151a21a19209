from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from training.data.augment import AUGMENTATIONS, Augmentation
from training.data.pipeline import (
    Entry,
    Part,
    evaluation_dataset,
    training_dataset,
    validation_dataset,
)
from training.data.preprocess import Preprocess, preprocess_image
from training.data.sources import IndexedSplit, StreamSplit, open_source

COUNT = 23
RAW = Preprocess(image_size=(4, 4), channels=1, mean=(0.0,), std=(1 / 255,))


def numbered(count=COUNT) -> IndexedSplit:
    """Image i has the level i everywhere, its label is i % 3."""
    images = tf.constant(
        np.arange(count, dtype=np.uint8)[:, None, None, None] * np.ones((4, 4, 1), np.uint8)
    )
    labels = (np.arange(count) % 3).astype(np.int32)
    return IndexedSplit(labels, lambda index: tf.gather(images, index))


def streamed(count=COUNT) -> StreamSplit:
    split = numbered(count)

    def open_split(key):
        numbers = tf.data.Dataset.range(count)
        return numbers.map(lambda i: (split.read(i), tf.gather(tf.constant(split.labels), i)))

    return StreamSplit(count, open_split)


def batches(split, number, augmentation=AUGMENTATIONS["none"], preprocess=RAW, **settings):
    settings = {"num_classes": 3, "batch_size": 4, "seed": 1, **settings}
    dataset = training_dataset(split, preprocess, augmentation, **settings)
    return [tuple(part.numpy() for part in batch) for batch in dataset.take(number)]


def order(some) -> list[int]:
    return [int(round(float(image.max()))) for batch in some for image in batch[0]]


@pytest.mark.parametrize("make", [numbered, streamed])
@pytest.mark.parametrize("cache", [False, True])
def test_each_image_comes_once_an_epoch_with_its_label(make, cache):
    some = batches(make(), 23, cache=cache)  # 4 epochs
    seen = order(some)
    for epoch in range(4):
        assert Counter(seen[epoch * COUNT : (epoch + 1) * COUNT]) == Counter(range(COUNT))
    assert len({tuple(seen[e * COUNT : (e + 1) * COUNT]) for e in range(4)}) == 4
    labels = np.concatenate([batch[1] for batch in some])
    np.testing.assert_array_equal(labels, np.eye(3)[np.array(seen) % 3])


@pytest.mark.parametrize("make", [numbered, streamed])
def test_the_order_follows_the_seed(make):
    first, again, other = (order(batches(make(), 8, seed=s)) for s in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("make", [numbered, streamed])
@pytest.mark.parametrize(("size", "repeats"), [(6, 3), (8, 3), (4, 2), (4, 4)])
def test_repeats_come_in_one_batch_each_with_a_crop_of_its_own(make, size, repeats):
    distinct = -(-size // repeats)
    some = batches(make(), 2 * COUNT, batch_size=size, repeats=repeats)
    seen = np.array(order(some)).reshape(-1, size)
    for batch in seen:
        np.testing.assert_array_equal(
            batch[distinct:], np.resize(batch[:distinct], size)[distinct:]
        )
    once = seen[:, :distinct].ravel()[: COUNT * (2 * distinct)]
    assert set(Counter(once).values()) == {2 * distinct}  # of as many epochs
    parts = [
        batches(make(), 5, batch_size=size, repeats=repeats, part=Part(n, 2), entry=Entry(3, (5,)))
        for n in range(2)
    ]
    whole = [np.concatenate(pair) for pair in zip(*([b[0] for b in p] for p in parts), strict=True)]
    expected = [b[0] for b in batches(make(), 9, batch_size=size, repeats=repeats)]
    np.testing.assert_array_equal(whole, [expected[n] for n in (3, 4, 6, 7, 8)])


def test_repeats_are_augmented_each_for_itself(photos):
    source = open_source(f"folder:{photos}", seed=0)
    ((images, _),) = batches(
        source.splits["train"], 1, AUGMENTATIONS["light"], Preprocess(image_size=(24, 32)),
        batch_size=6, repeats=2,
    )  # fmt: skip
    for one, other in zip(images[:3], images[3:], strict=True):
        assert np.abs(one - other).max() > 0.05


def test_caching_changes_nothing_of_an_indexed_split():
    assert order(batches(numbered(), 8)) == order(batches(numbered(), 8, cache=True))


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_batches_are_bit_identical_for_a_seed(photos, name):
    source = open_source(f"folder:{photos}", seed=0)
    preprocess = Preprocess(image_size=(24, 32))
    first, second = (
        batches(source.splits["train"], 3, AUGMENTATIONS[name], preprocess) for _ in range(2)
    )
    for one, two in zip(first, second, strict=True):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)
    assert first[0][0].shape == (4, 24, 32, 3)


def test_an_image_is_changed_anew_in_each_epoch(photos):
    split = open_source(f"folder:{photos}", seed=0).splits["train"]
    one = replace(split, labels=split.labels[:1])
    images = [
        batch[0][0].tobytes()
        for batch in batches(
            one, 4, AUGMENTATIONS["light"], Preprocess(image_size=(16, 16)), batch_size=1
        )
    ]
    assert len(set(images)) == 4


def test_mixed_labels_and_their_weights():
    weights = np.array([1.0, 2.0, 4.0])
    mixing = Augmentation(mixup=1.0, cutmix=1.0)
    some = batches(numbered(), 12, mixing, class_weights=weights)
    mixed = 0
    for images, labels, sample_weights in some:
        assert images.dtype == labels.dtype == sample_weights.dtype == np.float32
        np.testing.assert_allclose(labels.sum(axis=1), 1.0, rtol=1e-5)
        np.testing.assert_allclose(sample_weights, labels @ weights, rtol=1e-5)
        mixed += ((labels > 0).sum(axis=1) > 1).sum()
    assert mixed > 10


def test_a_batch_larger_than_the_data_is_full():
    images, labels = batches(numbered(3), 1, batch_size=10)[0]
    assert images.shape[0] == labels.shape[0] == 10


@pytest.mark.parametrize("make", [numbered, streamed])
@pytest.mark.parametrize("batch_size", [1, 4, 23, 100])
def test_evaluation_sees_every_image_once_in_order(make, batch_size):
    parts = list(evaluation_dataset(make(), RAW, batch_size=batch_size))
    images = np.concatenate([images for images, _ in parts])
    labels = np.concatenate([labels for _, labels in parts])
    np.testing.assert_array_equal(np.round(images.max(axis=(1, 2, 3))), np.arange(COUNT))
    np.testing.assert_array_equal(labels, np.arange(COUNT) % 3)
    assert labels.dtype == np.int32
    assert [len(batch) for batch, _ in parts][:-1] == [batch_size] * ((COUNT - 1) // batch_size)


def test_evaluation_pixels_are_those_of_preprocess_image(photos):
    split = open_source(f"folder:{photos}", seed=0).splits["validation"]
    preprocess = Preprocess(image_size=(24, 32), interpolation="bicubic")
    images = np.concatenate([i for i, _ in evaluation_dataset(split, preprocess, batch_size=3)])
    for index, image in enumerate(images):
        np.testing.assert_array_equal(image, preprocess_image(split.read(index), preprocess))


def functions(dataset) -> str:
    """All operations of a dataset's graph, as text."""
    graph = tf.compat.v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())
    nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    return " ".join(node.op for node in nodes)


def test_no_python_runs_for_an_image(photos):
    split = open_source(f"folder:{photos}", seed=0).splits["train"]
    preprocess = Preprocess(image_size=(24, 32))
    training = training_dataset(
        split, preprocess, AUGMENTATIONS["strong"], num_classes=3, batch_size=4, seed=0
    )
    for dataset in (training, evaluation_dataset(split, preprocess, batch_size=4)):
        operations = functions(dataset)
        assert "DecodeJpeg" in operations or "DecodeAndCropJpeg" in operations
        assert "PyFunc" not in operations
    assert "DecodeAndCropJpeg" in functions(training)  # decoded only where it is cropped


@pytest.mark.parametrize("make", [numbered, streamed])
def test_parts_of_all_workers_are_the_batches_of_one(make):
    for strong in (AUGMENTATIONS["none"], Augmentation(mixup=0.8), Augmentation(cutmix=1.0)):
        whole = batches(make(), 13, strong, batch_size=12)
        for count in (2, 3):
            parts = [
                batches(make(), 13, strong, batch_size=12, part=Part(index, count))
                for index in range(count)
            ]
            for number, batch in enumerate(whole):
                for kind, values in enumerate(batch):
                    theirs = np.concatenate([part[number][kind] for part in parts])
                    np.testing.assert_array_equal(theirs, values)


@pytest.mark.parametrize("make", [numbered, streamed])
def test_a_stream_can_be_entered_anywhere(make):
    strong = Augmentation(mixup=0.8)
    whole = batches(make(), 20, strong)
    for first in (1, 5, 6, 17):
        rest = batches(make(), 20 - first, strong, entry=Entry(first))
        for ours, theirs in zip(whole[first:], rest, strict=True):
            np.testing.assert_array_equal(ours[0], theirs[0])
            np.testing.assert_array_equal(ours[1], theirs[1])


@pytest.mark.parametrize("make", [numbered, streamed])
def test_batches_that_are_left_out_never_come(make):
    strong = Augmentation(mixup=0.8)
    whole = batches(make(), 12, strong)
    wanted = [batch for number, batch in enumerate(whole) if number not in (2, 3, 7)]
    for first in (0, 2, 4):
        found = batches(make(), 9 - first, strong, entry=Entry(first, (2, 3, 7)))
        for ours, theirs in zip(wanted[first:], found, strict=True):
            np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.parametrize("make", [numbered, streamed])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_validation_counts_every_image_once(make, count):
    parts = [
        validation_dataset(make(22), RAW, num_classes=3, batch_size=8, part=Part(index, count))
        for index in range(count)
    ]
    steps = [list(part.as_numpy_iterator()) for part in parts]
    assert {len(batches) for batches in steps} == {3}
    in_order = [batch for step in zip(*steps, strict=True) for batch in step]
    images, labels, weights = (np.concatenate(values) for values in zip(*in_order, strict=True))
    assert weights.tolist() == [1.0] * 22 + [0.0] * 2
    assert images[:22, 0, 0, 0].round().tolist() == list(range(22))
    assert labels[:22].argmax(axis=1).tolist() == [number % 3 for number in range(22)]
