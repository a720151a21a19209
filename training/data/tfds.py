"""`tfds:NAME`: any image classification set of TensorFlow Datasets, from disk or downloaded."""

import hashlib

import tensorflow as tf

from keras_vit.config import UserError
from training.data.sources import Source, StreamSplit

VALIDATION_NAMES = ("validation", "valid", "val")
# Their test labels are secret: results are told on the validation split, which a run must not see.
# A hundredth of train stands in for it, as in vit_jax and big_vision (train[:99%]).
REPORTED_ON_VALIDATION = ("imagenet2012", "places365_small")


def open_tfds(name: str, data_dir: str | None, validation_fraction: float) -> Source:
    """Open a set of TensorFlow Datasets.

    What is prepared in `data_dir` is used as it is, without its code or a network; else the set's
    own code downloads it. Images stay encoded until training crops them. A set without a validation
    split gives the end of its training split; ImageNet-1k the last hundredth, and its official
    validation images as "test".

    Args:
        name: as in `tfds.builder`: "cifar10", "imagenet2012:5.1.0", "cmaterdb/devanagari"...
        data_dir: where sets are kept; None for TFDS's own folder.
        validation_fraction: part of train that becomes validation where there is none.

    Raises: UserError: unknown or not to be had, no image classification, or no train split.
    """
    import tensorflow_datasets as tfds  # slow to import, and only wanted here

    builder = prepared_builder(tfds, name, data_dir)
    image_key, label_key = classification_keys(tfds, builder)
    if "train" not in builder.info.splits:
        raise UserError(f"tfds:{name} has no train split, only {', '.join(builder.info.splits)}")

    def split(spec: str) -> StreamSplit:
        read_config = tfds.ReadConfig(interleave_cycle_length=16, add_tfds_id=False)
        dataset = builder.as_dataset(
            split=spec,
            shuffle_files=False,
            read_config=read_config,
            decoders={image_key: tfds.decode.SkipDecoding()},
        ).map(lambda example: (example[image_key], tf.cast(example[label_key], tf.int32)))
        # TFDS files are shuffled when they are made; the pipeline's buffer does the rest.
        return StreamSplit(builder.info.splits[spec].num_examples, lambda key: dataset)

    names = list(builder.info.splits)
    validation = next((known for known in VALIDATION_NAMES if known in names), None)
    test = "test" if "test" in names else None
    cut = round(100 * (1 - validation_fraction))
    if builder.name in REPORTED_ON_VALIDATION:
        validation, test, cut = None, validation, 99
    splits = {
        "train": split("train" if validation else f"train[:{cut}%]"),
        "validation": split(validation or f"train[{cut}%:]"),
    }
    if test:
        splits["test"] = split(test)
    height, width, channels = builder.info.features[image_key].shape
    facts = f"{builder.info.full_name} {[(n, builder.info.splits[n].num_examples) for n in names]}"
    return Source(
        name=name.replace("/", "-").replace(":", "-"),
        class_names=tuple(builder.info.features[label_key].names),
        splits=splits,
        channels=1 if channels == 1 else 3,
        image_size=(height, width) if height and width else None,
        made_validation=validation is None,
        fingerprint=hashlib.sha256(facts.encode()).hexdigest(),
    )


def prepared_builder(tfds, name: str, data_dir: str | None):
    """The set's builder with its files on disk. Raises: UserError."""
    where = data_dir or tfds.core.constants.DATA_DIR
    try:
        builder = tfds.builder(name, data_dir=data_dir, try_gcs=False)
        if not builder.is_prepared():
            builder.download_and_prepare()
    except Exception as error:  # every builder has its own ways to fail
        first = str(error).strip().split("\n")[0]
        raise UserError(
            f"tfds:{name} is not in data_dir={where} and cannot be made there:"
            f" {type(error).__name__}: {first}"
        ) from error
    return builder


def classification_keys(tfds, builder) -> tuple[str, str]:
    """Names of the image and of the label feature. Raises: UserError: not one of each."""
    features = builder.info.features
    images = [key for key, value in features.items() if type(value) is tfds.features.Image]
    labels = [key for key, value in features.items() if type(value) is tfds.features.ClassLabel]
    if not images or not labels:
        raise UserError(
            f"tfds:{builder.name} is no image classification set: its features are"
            f" {', '.join(features)}"
        )
    return images[0], "label" if "label" in labels else labels[0]
