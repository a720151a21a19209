import io
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit import UserError
from training.data.decode import decode_image
from training.data.sources import open_source
from training.data.tfrecord import write_tfrecords


@pytest.fixture(scope="module")
def digits():
    return open_source("digits", seed=0)


@pytest.fixture
def folder(digits, tmp_path):
    write_tfrecords(digits, tmp_path / "records", shards=3)
    return tmp_path / "records"


def open_records(folder, pattern="*.tfrecord"):
    return open_source(f"tfrecord:{folder}/{pattern}", seed=0)


def examples(split, key=None) -> list:
    return [(bytes(image), int(label)) for image, label in split.open(key).as_numpy_iterator()]


def test_nothing_is_lost_or_changed_on_the_way(digits, folder):
    records = open_records(folder)
    assert records.class_names == digits.class_names
    assert (records.channels, records.image_size, records.flip) == (1, (8, 8), False)
    assert records.fingerprint == digits.fingerprint
    for name, split in digits.splits.items():
        there = records.splits[name]
        assert there.num_examples == split.num_examples
        ours = sorted(
            (split.read(i).numpy().tobytes(), int(split.labels[i]))
            for i in range(split.num_examples)
        )
        pixels = there.open(None).map(lambda image, label: (decode_image(image, 1), label))
        theirs = sorted(
            (image.tobytes(), int(label)) for image, label in pixels.as_numpy_iterator()
        )
        assert theirs == ours
        np.testing.assert_array_equal(there.class_counts(10), split.class_counts(10))


def test_encoded_photos_stay_byte_for_byte(photos, tmp_path):
    source = open_source(f"folder:{photos}", seed=0)
    write_tfrecords(source, tmp_path / "records", shards=100)
    records = open_records(tmp_path / "records")
    for name, split in source.splits.items():
        ours = [(split.read(i).numpy(), int(split.labels[i])) for i in range(split.num_examples)]
        assert sorted(examples(records.splits[name])) == sorted(ours)


def test_order_is_fixed_without_a_seed_and_repeatable_with_one(folder):
    split = open_records(folder).splits["train"]
    assert examples(split) == examples(split)
    first, second = (examples(split, key=[1, epoch]) for epoch in (0, 1))
    assert first == examples(split, key=[1, 0])
    assert first != second
    assert sorted(first) == sorted(second)


def test_shards_mix_the_classes(folder):
    labels = [label for _, label in examples(open_records(folder).splits["train"])]
    assert len(set(labels[:60])) > 7


def test_an_existing_folder_is_kept_unless_asked(digits, folder):
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(UserError, match="exists; choose another or add --overwrite"):
        write_tfrecords(digits, folder, shards=1)
    assert sorted(path.name for path in folder.iterdir()) == before
    write_tfrecords(digits, folder, shards=1, overwrite=True)
    assert len(list(folder.glob("train-*"))) == 1


def test_a_folder_of_something_else_is_never_overwritten(digits, tmp_path):
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(UserError, match="holds no TFRecords; it is not overwritten"):
        write_tfrecords(digits, tmp_path, shards=1, overwrite=True)
    assert (tmp_path / "precious.txt").read_text() == "x"


def break_side_file(folder, change):
    path = folder / "dataset.json"
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: [p.unlink() for p in f.glob("*.tfrecord")], "matches no file"),
        (lambda f: (f / "dataset.json").unlink(), "dataset.json is missing; `keras-vit tfrecord`"),
        (lambda f: (f / "dataset.json").write_text("{"), "dataset.json is no JSON"),
        (lambda f: break_side_file(f, lambda d: d.pop("class_names")), "'class_names' is missing"),
        (lambda f: next(f.glob("train-*")).unlink(), "2 of 3 shards of train-"),
        (
            lambda f: [p.unlink() for p in f.glob("validation-*")],
            "matches no validation shard",
        ),
    ],
)
def test_what_is_missing_is_named(folder, damage, message):
    damage(folder)
    with pytest.raises(UserError, match=message):
        open_records(folder)


def test_a_label_out_of_range_stops_reading(folder):
    break_side_file(folder, lambda d: d.update(class_names=["0", "1"]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="label out of range"):
        examples(open_records(folder).splits["train"])


def test_records_of_others_need_only_the_side_file(tmp_path):
    """The features are those of TensorFlow's own ImageNet files."""
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "JPEG")
    for name in ("train", "validation"):
        with tf.io.TFRecordWriter(str(tmp_path / f"{name}-00000-of-00001")) as writer:
            features = {
                "image/encoded": tf.train.Feature(
                    bytes_list=tf.train.BytesList(value=[file.getvalue()])
                ),
                "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[1])),
                "image/height": tf.train.Feature(int64_list=tf.train.Int64List(value=[4])),
            }
            features = tf.train.Features(feature=features)
            writer.write(tf.train.Example(features=features).SerializeToString())
    facts = {
        "class_names": ["a", "b"], "num_examples": {"train": 1, "validation": 1}, "channels": 3,
        "image_size": None, "flip": True, "fingerprint": "x",
    }  # fmt: skip
    (tmp_path / "dataset.json").write_text(json.dumps(facts))
    source = open_records(tmp_path, "*-of-*")
    assert examples(source.splits["train"]) == [(file.getvalue(), 1)]
