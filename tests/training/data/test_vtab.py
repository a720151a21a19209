"""vtab:NAME on small sets of the same names and features, prepared on disk by TFDS itself."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vit import UserError
from training.data.decode import decode_image
from training.data.sources import open_source
from training.data.vtab import TASKS, VTAB, clevr_distance, kitti_distance


class Small(tfds.core.GeneratorBasedBuilder):
    """Base of sets that are told apart by number: image i is of level i."""

    VERSION = tfds.core.Version("3.0.0")
    SPLITS = {"train": 20, "validation": 4, "test": 5}

    def _info(self):
        features = {"image": tfds.features.Image(shape=(None, None, 3)), **self.labels()}
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

    def _split_generators(self, manager):
        return {name: self._generate_examples(count) for name, count in self.SPLITS.items()}

    def _generate_examples(self, count):
        for i in range(count):
            yield i, {"image": np.full((4, 5, 3), i, np.uint8), **self.values(i)}


class Dtd(Small):
    name = "dtd"

    def labels(self):
        return {"label": tfds.features.ClassLabel(names=["banded", "woven"])}

    def values(self, i):
        return {"label": i % 2}


class Clevr(Small):
    name = "clevr"

    def labels(self):
        objects = {"size": tfds.features.ClassLabel(num_classes=2),
                   "pixel_coords": tfds.features.Tensor(shape=(3,), dtype=np.float32)}  # fmt: skip
        return {"objects": tfds.features.Sequence(objects)}

    def values(self, i):
        return {"objects": [{"size": 0, "pixel_coords": [0, 0, 8 + k]} for k in range(3 + i % 8)]}


class Dsprites(Small):
    name = "dsprites"
    SPLITS = {"train": 40}

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(64, 64, 1)),
            "label_x_position": tfds.features.ClassLabel(num_classes=32),
            "label_orientation": tfds.features.ClassLabel(num_classes=40),
        }
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

    def _generate_examples(self, count):
        for i in range(count):
            image = np.zeros((64, 64, 1), np.uint8)
            image[i % 64] = 1
            yield i, {"image": image, "label_x_position": i % 32, "label_orientation": i}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("tfds"))
    for builder in (Dtd, Clevr, Dsprites):
        builder(data_dir=path).download_and_prepare()
    return path


def read(name, data_dir, split):
    source = open_source(f"vtab:{name}", seed=0, data_dir=data_dir)
    part = source.splits[split]
    examples = list(part.open(None))
    assert len(examples) == part.num_examples
    return source, [image for image, _ in examples], [int(label) for _, label in examples]


def test_there_are_nineteen():
    assert len(TASKS) == len(VTAB) == 19
    assert all(spec == f"vtab:{name}" for spec, name in zip(VTAB, TASKS, strict=True))


def test_a_set_with_splits_and_names_of_its_own(data_dir):
    source, images, labels = read("dtd", data_dir, "validation")
    assert source.class_names == ("banded", "woven")
    assert sorted(int(decode_image(image)[0, 0, 0]) for image in images) == [0, 1, 2, 3]
    assert sorted(labels) == [0, 0, 1, 1]
    assert source.flip
    assert {name: split.num_examples for name, split in source.splits.items()} == {
        "train": 20, "validation": 4, "test": 5,
    }  # fmt: skip


def test_at_most_eight_hundred_train(data_dir, monkeypatch):
    monkeypatch.setattr("training.data.vtab.NUM_TRAIN", 7)
    monkeypatch.setattr("training.data.vtab.NUM_VALIDATION", 3)
    assert len(read("dtd", data_dir, "train")[1]) == 7
    assert len(read("dtd", data_dir, "validation")[1]) == 3
    assert len(read("dtd", data_dir, "test")[1]) == 5


def test_counting_is_a_label(data_dir):
    source, images, labels = read("clevr_count", data_dir, "train")
    assert len(source.class_names) == 8
    assert len(labels) == 18  # 90 % of train
    assert labels == [int(decode_image(image)[0, 0, 0]) % 8 for image in images]
    assert not source.flip
    assert len(read("clevr_count", data_dir, "test")[1]) == 4  # clevr's own test has no labels


@pytest.mark.parametrize(
    "metres, label", [([7.9, 20], 0), ([8.2], 1), ([8.6], 2), ([9.4], 3), ([9.6], 4), ([11, 12], 5)]
)
def test_distances_are_cut_in_steps(metres, label):
    coords = tf.constant([[0.0, 0.0, z] for z in metres])
    assert int(clevr_distance({"objects": {"pixel_coords": coords}})) == label


@pytest.mark.parametrize(
    "objects, label",
    [
        ([(0, 5.0)], 0),
        ([(1, 15.0), (2, 30.0)], 1),
        ([(2, 30.0), (3, 2.0)], 2),
        ([(4, 2.0)], 3),
        ([], 3),
    ],
)
def test_only_vehicles_count(objects, label):
    kinds = tf.constant([kind for kind, _ in objects], tf.int64)
    location = tf.reshape(tf.constant([[0.0, 0.0, z] for _, z in objects], tf.float32), (-1, 3))
    assert int(kitti_distance({"objects": {"type": kinds, "location": location}})) == label


def test_sprites_are_white_and_their_labels_binned(data_dir):
    source, images, labels = read("dsprites_position", data_dir, "train")
    assert source.channels == 1
    assert np.unique(images).tolist() == [0, 255]
    rows = [int(np.argmax(image[:, 0, 0])) for image in images]
    assert labels == [row % 32 // 2 for row in rows]
    _, images, labels = read("dsprites_orientation", data_dir, "test")
    rows = [int(np.argmax(image[:, 0, 0])) for image in images]
    assert labels == [row * 16 // 40 for row in rows]


def test_mistakes_are_named(data_dir, monkeypatch):
    with pytest.raises(UserError, match="'vtab:cars' is no task; there are caltech101"):
        open_source("vtab:cars", seed=0)
    other = Dsprites(data_dir=data_dir)
    monkeypatch.setattr("training.data.vtab.prepared_builder", lambda *_: other)
    with pytest.raises(UserError, match="vtab:dtd: dtd on disk has no split validation"):
        open_source("vtab:dtd", seed=0, data_dir=data_dir)
