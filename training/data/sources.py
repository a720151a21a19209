"""Where images come from: what every source gives, and which spec opens which source."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from keras_vit.config import UserError


@dataclass(frozen=True)
class IndexedSplit:
    """A split with random access.

    labels: int32 `(num_examples,)` class indices.
    read: scalar int64 index to encoded bytes (scalar `tf.string`) or uint8 `(H, W, C)`; graph code.
    names: of the files, where the images are files.
    """

    labels: np.ndarray
    read: Callable[[tf.Tensor], tf.Tensor]
    names: tuple[str, ...] = ()

    @property
    def num_examples(self) -> int:
        return len(self.labels)

    def class_counts(self, num_classes: int) -> np.ndarray:
        """Examples of each class, int64 `(num_classes,)`."""
        return np.bincount(self.labels, minlength=num_classes)


@dataclass(frozen=True)
class StreamSplit:
    """A split that is read from one end to the other.

    open: an int64 key `(2,)` of the order, or None for the order of the files, to a
        `tf.data.Dataset` of one pass over (encoded bytes or uint8 `(H, W, C)`, int32 label); graph
        code. The same key always gives the same order.
    """

    num_examples: int
    open: Callable[[tf.Tensor | None], tf.data.Dataset]

    def class_counts(self, num_classes: int) -> np.ndarray:
        """Examples of each class, int64 `(num_classes,)`; reads the split once."""
        labels = list(self.open(None).map(lambda _, label: label).as_numpy_iterator())
        return np.bincount(labels, minlength=num_classes)


@dataclass(frozen=True)
class Skipped:
    """A file that is no readable image, relative to the data folder, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Source:
    """A labelled image set.

    name: short name, for the default run folder.
    class_names: in index order.
    splits: "train", "validation" and, where the data have one, "test".
    channels: 1 (gray) or 3 (RGB).
    image_size: (height, width) where all images share it, else None.
    flip: whether a mirrored image is still the same class: not so for digits.
    made_validation: whether "validation" was set aside here; False: the data bring it.
    skipped: files left out; num_files: files looked at.
    fingerprint: sha256 of what the data are: the same on every machine.
    """

    name: str
    class_names: tuple[str, ...]
    splits: dict[str, IndexedSplit | StreamSplit]
    channels: int
    image_size: tuple[int, int] | None
    fingerprint: str
    flip: bool = True
    made_validation: bool = False
    skipped: tuple[Skipped, ...] = ()
    num_files: int = 0


def open_source(
    spec: str,
    *,
    seed: int,
    validation_fraction: float = 0.2,
    max_skipped: float = 0.05,
    data_dir: str | None = None,
) -> Source:
    """Open the images that `--data` names.

    Args:
        spec: "digits", "folder:PATH", "tfds:NAME", "tfrecord:GLOB" or "vtab:NAME".
        seed: of the split into train and validation, where the data bring none.
        validation_fraction: part of each class that such a split sets aside.
        max_skipped: part of a folder's files that may be unreadable.
        data_dir: where TensorFlow Datasets keeps its sets.

    Raises: UserError: an unknown spec, or what the source itself refuses.
    """
    kind, _, rest = spec.partition(":")
    if kind != "digits" and not rest or kind == "digits" and rest:
        kind = None
    if kind == "digits":
        from training.data.digits import open_digits

        return open_digits(seed, validation_fraction)
    if kind == "folder":
        from training.data.folder import open_folder

        return open_folder(rest, seed, validation_fraction, max_skipped)
    if kind == "tfds":
        from training.data.tfds import open_tfds

        return open_tfds(rest, data_dir, validation_fraction)
    if kind == "tfrecord":
        from training.data.tfrecord import open_tfrecords

        return open_tfrecords(rest)
    if kind == "vtab":
        from training.data.vtab import open_vtab

        return open_vtab(rest, data_dir)
    raise UserError(
        f"data={spec!r} must be digits, folder:PATH, tfds:NAME, tfrecord:GLOB or vtab:NAME"
    )
