"""`tfrecord:GLOB`: sharded TFRecords, and the writer that makes them from any source.

A folder holds `SPLIT-00000-of-00008.tfrecord`... and `dataset.json` with the class names. Features
are those of TensorFlow's ImageNet files: `image/encoded` (bytes of the file) and
`image/class/label` (int64, from 0).
"""

import glob
import json
import re
import shutil
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_vit.config import UserError
from training.data.sources import IndexedSplit, Source, StreamSplit

SIDE_FILE = "dataset.json"
FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}
FILES_AT_ONCE = 16


def open_tfrecords(pattern: str) -> Source:
    """Open the shards that a glob matches.

    Raises: UserError: no match, no `dataset.json` beside them, or shards missing.
    """
    paths = sorted(Path(path) for path in glob.glob(str(Path(pattern).expanduser())))
    paths = [path for path in paths if path.name != SIDE_FILE]
    if not paths:
        raise UserError(f"tfrecord:{pattern} matches no file")
    facts = read_side_file(paths[0].parent / SIDE_FILE)
    splits = {}
    for name, count in facts["num_examples"].items():
        shards = [path for path in paths if path.name.startswith(f"{name}-")]
        if shards:
            check_shards(shards)
            splits[name] = StreamSplit(count, reader(shards, len(facts["class_names"])))
    for name in ("train", "validation"):
        if name not in splits:
            raise UserError(f"tfrecord:{pattern} matches no {name} shard ({name}-00000-of-...)")
    return Source(
        name=paths[0].resolve().parent.name,
        class_names=tuple(facts["class_names"]),
        splits=splits,
        channels=facts["channels"],
        image_size=tuple(facts["image_size"]) if facts["image_size"] else None,
        flip=facts["flip"],
        fingerprint=facts["fingerprint"],
    )


def read_side_file(path: Path) -> dict:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(
            f"{path} is missing; `keras-vit tfrecord` writes it beside the shards"
        ) from error
    except ValueError as error:
        raise UserError(f"{path} is no JSON: {error}") from error
    wanted = {"class_names", "num_examples", "channels", "image_size", "flip", "fingerprint"}
    for key in sorted(wanted.difference(facts)):
        raise UserError(f"{path}: {key!r} is missing")
    return facts


def check_shards(shards: list[Path]) -> None:
    """Every shard of a split is there. Raises: UserError."""
    wanted = re.search(r"-of-(\d+)", shards[0].name)
    if not wanted or len(shards) != int(wanted[1]):
        number = int(wanted[1]) if wanted else "an unknown number of"
        raise UserError(f"{shards[0].parent}: {len(shards)} of {number} shards of {shards[0].name}")


def reader(shards: list[Path], num_classes: int):
    """`StreamSplit.open` over these files: several at once, always in the same order."""
    names = [str(path) for path in shards]

    def parse(record):
        example = tf.io.parse_single_example(record, FEATURES)
        label = example["image/class/label"]
        in_range = tf.debugging.Assert(
            (label >= 0) & (label < num_classes), ["label out of range", label]
        )
        with tf.control_dependencies([in_range]):
            return example["image/encoded"], tf.cast(label, tf.int32)

    def open_split(key):
        order = tf.range(len(names), dtype=tf.int64)
        if key is not None:
            order = tf.random.experimental.index_shuffle(order, key, len(names) - 1)
        files = tf.data.Dataset.from_tensor_slices(tf.gather(names, order))
        records = files.interleave(
            tf.data.TFRecordDataset,
            cycle_length=min(FILES_AT_ONCE, len(names)),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)

    return open_split


def write_tfrecords(source: Source, directory: Path, shards: int, overwrite: bool = False) -> None:
    """Write every split of a source as `shards` files; encoded images stay byte for byte.

    All is written beside the folder and renamed at the end, so a kill leaves no half set.

    Raises: UserError: the folder exists, or with `overwrite` is none of TFRecords.
    """
    if directory.exists() and not overwrite:
        raise UserError(f"output={str(directory)!r} exists; choose another or add --overwrite")
    if directory.exists() and not (directory / SIDE_FILE).is_file():
        raise UserError(f"output={str(directory)!r} holds no TFRecords; it is not overwritten")
    temporary = directory.with_name(f".{directory.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for name, split in source.splits.items():
        write_split(temporary, name, split, min(shards, split.num_examples))
    facts = {
        "class_names": list(source.class_names),
        "num_examples": {name: split.num_examples for name, split in source.splits.items()},
        "channels": source.channels,
        "image_size": source.image_size,
        "flip": source.flip,
        "fingerprint": source.fingerprint,
    }
    text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    (temporary / SIDE_FILE).write_text(text, encoding="utf-8")
    if directory.exists():
        shutil.rmtree(directory)
    temporary.rename(directory)


def write_split(directory: Path, name: str, split: IndexedSplit | StreamSplit, shards: int) -> None:
    """Deal the examples out to the shards in a fixed random order, so that classes are mixed."""
    writers = [
        tf.io.TFRecordWriter(str(directory / f"{name}-{index:05d}-of-{shards:05d}.tfrecord"))
        for index in range(shards)
    ]
    for number, (image, label) in enumerate(stored_examples(split)):
        contents = image if isinstance(image, bytes) else tf.io.encode_png(image).numpy()
        features = {
            "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[contents])),
            "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        writers[number % shards].write(example.SerializeToString())
    for writer in writers:
        writer.close()


def stored_examples(split: IndexedSplit | StreamSplit):
    """(bytes or uint8 image, label) of every example, each class spread over the whole."""
    if isinstance(split, StreamSplit):
        yield from split.open(None).as_numpy_iterator()
        return
    order = np.random.default_rng(0).permutation(split.num_examples)
    images = tf.data.Dataset.from_tensor_slices(order.astype(np.int64)).map(
        split.read, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    yield from zip(images.as_numpy_iterator(), split.labels[order], strict=True)
