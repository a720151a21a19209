import io

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from keras_vit import UserError
from training.data.decode import decode_image
from training.data.sources import open_source


def image(seed: int, size=(6, 5), channels=3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*size, channels), np.uint8)


class Leaves(tfds.core.GeneratorBasedBuilder):
    """A set with oddly named features and no validation split."""

    VERSION = tfds.core.Version("1.0.0")
    SPLITS = {"train": 20, "test": 5}
    CHANNELS = 3

    def _info(self):
        features = {
            "photo": tfds.features.Image(shape=(None, None, self.CHANNELS)),
            "kind": tfds.features.ClassLabel(names=["oak", "elm"]),
        }
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

    def _split_generators(self, manager):
        return {
            name: self._generate_examples(1000 * i, count)
            for i, (name, count) in enumerate(self.SPLITS.items())
        }

    def _generate_examples(self, start, count):
        for i in range(count):
            yield i, {"photo": image(start + i, channels=self.CHANNELS), "kind": i % 2}


class GrayLeaves(Leaves):
    SPLITS = {"train": 6, "validation": 3}
    CHANNELS = 1


class Words(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
        return self.dataset_info_from_configs(features=features)

    def _split_generators(self, manager):
        return {"train": iter([(0, {"text": "x"})])}

    def _generate_examples(self):
        yield from ()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Sets on disk, as their own code prepared them, and no way to download."""
    path = str(tmp_path_factory.mktemp("tfds"))
    for builder in (Leaves, GrayLeaves, Words):
        builder(data_dir=path).download_and_prepare()
    return path


def open_tfds(name, data_dir, **settings):
    return open_source(f"tfds:{name}", data_dir=data_dir, **{"seed": 0, **settings})


def decoded(split) -> list:
    return sorted(
        (decode_image(contents, 3).numpy().tobytes(), int(label))
        for contents, label in split.open(None).as_numpy_iterator()
    )


def test_a_prepared_set_is_read_with_its_own_classes(data_dir):
    source = open_tfds("leaves", data_dir)
    assert source.class_names == ("oak", "elm")
    counts = {name: split.num_examples for name, split in source.splits.items()}
    assert counts == {"train": 16, "validation": 4, "test": 5}
    train, validation = decoded(source.splits["train"]), decoded(source.splits["validation"])
    expected = sorted((image(i).tobytes(), i % 2) for i in range(20))
    assert sorted(train + validation) == expected
    np.testing.assert_array_equal(
        sum(source.splits[name].class_counts(2) for name in ("train", "validation")), [10, 10]
    )


def test_a_validation_split_of_its_own_and_gray_images(data_dir):
    source = open_tfds("gray_leaves", data_dir)
    counts = {name: split.num_examples for name, split in source.splits.items()}
    assert counts == {"train": 6, "validation": 3}
    assert source.channels == 1


def test_the_fingerprint_tells_sets_apart(data_dir):
    first, again, other = (
        open_tfds(name, data_dir).fingerprint for name in ("leaves", "leaves:1.0.0", "gray_leaves")
    )
    assert first == again != other


def test_a_set_that_is_not_there_is_named(data_dir):
    with pytest.raises(UserError, match="tfds:no_such_set is not in data_dir=") as error:
        open_tfds("no_such_set", data_dir)
    assert "\n" not in str(error.value)


def test_a_set_that_is_no_classification_is_refused(data_dir):
    with pytest.raises(UserError, match="no image classification set: its features are text"):
        open_tfds("words", data_dir)


def test_images_stay_encoded_until_they_are_cropped(data_dir):
    contents, _ = next(iter(open_tfds("leaves", data_dir).splits["train"].open(None)))
    assert Image.open(io.BytesIO(contents.numpy())).format == "PNG"


class Imagenet2012(Leaves):
    """As ImageNet-1k: no test split, and a validation split that results are told on."""

    SPLITS = {"train": 100, "validation": 7}


def test_of_imagenet_the_official_validation_images_are_the_test(tmp_path):
    Imagenet2012(data_dir=tmp_path).download_and_prepare()
    source = open_source("tfds:imagenet2012", seed=0, data_dir=str(tmp_path))
    counts = {name: split.num_examples for name, split in source.splits.items()}
    assert counts == {"train": 99, "validation": 1, "test": 7}
    assert source.made_validation
