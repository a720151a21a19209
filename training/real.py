"""The label file of ImageNet-ReaL (Beyer et al. 2020, "Are we done with ImageNet?").

`real.json` holds one list of classes for each of the 50,000 validation images, in the order of
their names: ILSVRC2012_val_00000001.JPEG and so on.
"""

import json
import re
from pathlib import Path

from keras_vit.config import UserError
from training.data.sources import IndexedSplit, StreamSplit

NUMBERED = re.compile(r"ILSVRC2012_val_(\d{8})\.\w+")


def real_labels_of(
    path: str, splits: list[IndexedSplit | StreamSplit], num_classes: int
) -> list[list[int]]:
    """The label list of every image of the splits, in their order.

    Files with ImageNet's names get the list of their number, wherever they lie. Otherwise there
    must be as many lists as images, in the same order.

    Raises: UserError: the file cannot be read, or does not fit the images.
    """
    lists = read(path, num_classes)
    names = [Path(name).name for split in splits for name in getattr(split, "names", ())]
    matches = [NUMBERED.fullmatch(name) for name in names]
    count = sum(split.num_examples for split in splits)
    if len(matches) == count and all(matches):
        numbers = [int(match[1]) for match in matches]
        if not 1 <= min(numbers) <= max(numbers) <= len(lists):
            raise UserError(f"real_labels={path} has {len(lists)} lists, none for {max(numbers)}")
        lists = [lists[number - 1] for number in numbers]
    elif len(lists) != count:
        raise UserError(f"real_labels={path} has {len(lists)} lists for {count} images")
    check_order(path, lists, splits)
    return lists


def read(path: str, num_classes: int) -> list[list[int]]:
    try:
        lists = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"real_labels={path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"real_labels={path} is no JSON: {error}") from error
    if not isinstance(lists, list) or not all(isinstance(item, list) for item in lists):
        raise UserError(f"real_labels={path} must be a list of lists of classes, like real.json")
    for label in (label for item in lists for label in item):
        if not isinstance(label, int) or not 0 <= label < num_classes:
            raise UserError(f"real_labels={path} has the class {label!r}, the run {num_classes}")
    return lists


def check_order(path: str, lists: list[list[int]], splits) -> None:
    """An image's own label is nearly always in its list; if not, the lists are of other images."""
    labels = [label for split in splits for label in labels_of(split)]
    judged = [label in item for label, item in zip(labels, lists, strict=True) if item]
    if not judged:
        raise UserError(f"real_labels={path} has no label for any of the images")
    share = sum(judged) / len(judged)
    if share < 0.5:
        raise UserError(
            f"real_labels={path} is for other images, or for another order: only {share:.1%} of the"
            " images have their own class in their list"
        )


def labels_of(split: IndexedSplit | StreamSplit):
    if isinstance(split, IndexedSplit):
        return split.labels.tolist()
    return split.open(None).map(lambda _, label: label).as_numpy_iterator()
