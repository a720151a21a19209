"""`vtab:NAME`: the 19 tasks of VTAB-1k (Zhai et al. 2019) from TensorFlow Datasets on disk.

800 images train, 200 validate, and the whole test split measures. Labels and splits are those of
google-research/task_adaptation `data/*.py`.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from keras_vit.config import UserError
from training.data.sources import Source, StreamSplit
from training.data.tfds import prepared_builder

NUM_TRAIN, NUM_VALIDATION = 800, 200
OWN = ("train", "validation", "test")  # splits that the set itself brings
TAIL = ("train[:90%]", "train[90%:]", "test")  # one without a validation split
FIFTHS = ("train[:60%]", "train[60%:80%]", "train[80%:]")  # one with nothing but train
TENTHS = ("train[:80%]", "train[80%:90%]", "train[90%:]")


def by_name(key: str = "label"):
    """A label that the set has as it is."""
    return lambda example: example[key]


def binned(key: str, old: int, new: int):
    """A label of `old` neighbouring values put together to `new` classes."""
    return lambda example: tf.cast(example[key], tf.int32) * new // old


def clevr_count(example):
    """Three to ten objects."""
    return tf.size(example["objects"]["size"]) - 3


def clevr_distance(example):
    """Distance of the nearest object, in six steps."""
    nearest = tf.reduce_min(example["objects"]["pixel_coords"][:, 2])
    return step(nearest, (8.0, 8.5, 9.0, 9.5, 10.0))


def kitti_distance(example):
    """Distance of the nearest car, van or truck: to 8 m, to 20 m, beyond; and none at all."""
    is_vehicle = example["objects"]["type"] < 3
    metres = tf.boolean_mask(example["objects"]["location"][:, 2], is_vehicle)
    nearest = tf.reduce_min(tf.concat([metres, [1000.0]], axis=0))
    return step(nearest, (8.0, 20.0, 999.0))


def step(value, bounds):
    """How many of the bounds lie below the value."""
    return tf.reduce_sum(tf.cast(tf.constant(bounds, tf.float32) < value, tf.int32))


@dataclass(frozen=True)
class Task:
    """A set of TFDS, its splits (train, validation, test) and what its label is.

    num_classes: None where the feature `label` has names of its own.
    scale: factor of the pixels; those of dsprites are 0 and 1.
    """

    tfds: str
    splits: tuple[str, str, str]
    label: Callable = by_name()
    num_classes: int | None = None
    scale: int = 1


TASKS = {
    # natural
    "caltech101": Task("caltech101", TAIL),
    "cifar100": Task("cifar100", TAIL),
    "dtd": Task("dtd", OWN),
    "flowers102": Task("oxford_flowers102", OWN),
    "pets": Task("oxford_iiit_pet", TAIL),
    "svhn": Task("svhn_cropped", TAIL),
    "sun397": Task("sun397", OWN),
    # specialised
    "patch_camelyon": Task("patch_camelyon", OWN),
    "eurosat": Task("eurosat/rgb", FIFTHS),
    "resisc45": Task("resisc45", FIFTHS),
    "retinopathy": Task("diabetic_retinopathy_detection/btgraham-300", OWN),
    # structured
    "clevr_count": Task("clevr", ("train[:90%]", "train[90%:]", "validation"), clevr_count, 8),
    "clevr_distance": Task(
        "clevr", ("train[:90%]", "train[90%:]", "validation"), clevr_distance, 6
    ),
    "dmlab": Task("dmlab", OWN),
    "kitti_distance": Task("kitti", OWN, kitti_distance, 4),
    "dsprites_position": Task("dsprites", TENTHS, binned("label_x_position", 32, 16), 16, 255),
    "dsprites_orientation": Task("dsprites", TENTHS, binned("label_orientation", 40, 16), 16, 255),
    "smallnorb_azimuth": Task(
        "smallnorb", ("train", "test[:50%]", "test[50%:]"), by_name("label_azimuth"), 18
    ),
    "smallnorb_elevation": Task(
        "smallnorb", ("train", "test[:50%]", "test[50%:]"), by_name("label_elevation"), 9
    ),
}
VTAB = tuple(f"vtab:{name}" for name in TASKS)


def open_vtab(name: str, data_dir: str | None) -> Source:
    """Open a task. Raises: UserError: an unknown name, or the set is not on disk."""
    import tensorflow_datasets as tfds  # slow to import, and only wanted here

    if name not in TASKS:
        raise UserError(f"data='vtab:{name}' is no task; there are {', '.join(TASKS)}")
    task = TASKS[name]
    builder = prepared_builder(tfds, task.tfds, data_dir)
    info = builder.info
    for spec in task.splits:
        if spec.split("[")[0] not in info.splits:
            raise UserError(f"vtab:{name}: {task.tfds} on disk has no split {spec.split('[')[0]}")

    def split(spec: str, most: int | None) -> StreamSplit:
        dataset = builder.as_dataset(
            split=spec,
            shuffle_files=False,
            read_config=tfds.ReadConfig(interleave_cycle_length=1),
            decoders=None if task.scale != 1 else {"image": tfds.decode.SkipDecoding()},
        )
        count = info.splits[spec].num_examples
        if most is not None:
            dataset, count = dataset.take(most), min(most, count)
        dataset = dataset.map(lambda example: (pixels(example["image"], task), label(example)))
        return StreamSplit(count, lambda seed: dataset)

    def label(example):
        return tf.cast(task.label(example), tf.int32)

    height, width, channels = info.features["image"].shape
    if task.num_classes is None:
        names = tuple(info.features["label"].names)
    else:
        names = tuple(str(number) for number in range(task.num_classes))
    splits = dict(
        zip(
            ("train", "validation", "test"),
            map(split, task.splits, (NUM_TRAIN, NUM_VALIDATION, None)),
            strict=True,
        )
    )
    return Source(
        name=f"vtab-{name}",
        class_names=names,
        splits=splits,
        channels=1 if channels == 1 else 3,
        image_size=(height, width) if height and width else None,
        # A mirrored scene has its objects at other places: structured tasks ask for these.
        flip=task.num_classes is None and name not in ("svhn", "dmlab"),
        fingerprint=hashlib.sha256(f"vtab {name} {info.full_name}".encode()).hexdigest(),
    )


def pixels(image, task: Task):
    """As stored, still encoded; of dsprites uint8 0 and 255."""
    return image if task.scale == 1 else tf.cast(image, tf.uint8) * task.scale
