"""`folder:PATH`: one folder for each class, with or without train, val and test folders above."""

import hashlib
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_vit.config import UserError
from training.data.container import UNKNOWN, image_format
from training.data.decode import decode_image, reason
from training.data.sources import IndexedSplit, Skipped, Source
from training.data.split import stratified_split

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
    "testing": "test",
}
# What people keep beside their photos. Such a file is passed over unless its content is an image.
COMPANIONS = frozenset(
    ".csv .db .doc .docx .html .ini .json .log .md .npy .npz .pdf .pickle .pkl .py .rst .tsv .txt"
    " .xml .xlsx .yaml .yml .zip".split()
)


@dataclass(frozen=True)
class Image:
    """One readable image: where it lies, and what the scan learnt."""

    path: Path
    split: str  # "" where the folder has none
    class_name: str
    size: tuple[int, int]  # (height, width), upright
    num_bytes: int


def open_folder(
    directory: str, seed: int, validation_fraction: float, max_skipped: float
) -> Source:
    """Open a folder of photos.

    Every file is decoded once, so that training never meets a broken one: those become `skipped`.
    Folders may be nested (the top one names the class), names may hold anything, hidden ones are
    passed over, links are followed once. Without a validation folder the training images are split,
    stratified by class; identical files stay on one side.

    Args:
        directory: the folder.
        seed, validation_fraction: of that split.
        max_skipped: part of the files that may be unreadable.

    Raises: UserError: no folder, fewer than two classes, a class without images, too many
        unreadable files, a validation class that training lacks.
    """
    root = Path(directory).expanduser()
    if not root.is_dir():
        what = "is a file" if root.is_file() else "does not exist"
        raise UserError(f"data folder {str(root)!r} {what}; give a folder of class folders")
    found = list(labelled_files(root))
    print(f"Checking {len(found)} files in {root}", file=sys.stderr)
    images, skipped = scan(root, found)
    check_skipped(skipped, len(images) + len(skipped), max_skipped)
    class_names = check_classes(root, images)
    by_split = defaultdict(list)
    for image in images:
        by_split[image.split].append(image)
    if "" in by_split:
        by_split["train"] = by_split.pop("")
    splits = {name: file_split(members, class_names) for name, members in by_split.items()}
    groups = identical_groups(images)
    made_validation = "validation" not in splits
    if made_validation:
        members = by_split["train"]
        labels = splits["train"].labels
        own_groups = np.array([groups[image.path] for image in members])
        train, validation = stratified_split(labels, own_groups, validation_fraction, seed)
        splits["train"] = file_split([members[i] for i in train], class_names)
        splits["validation"] = file_split([members[i] for i in validation], class_names)
    else:
        warn_of_leaks(by_split, groups)
    if not splits["validation"].num_examples:
        raise UserError(f"data folder {str(root)!r} leaves no image for validation; add images")
    sizes = {image.size for image in images}
    return Source(
        name=root.resolve().name,
        class_names=class_names,
        splits=splits,
        channels=3,
        image_size=sizes.pop() if len(sizes) == 1 else None,
        made_validation=made_validation,
        skipped=tuple(skipped),
        num_files=len(images) + len(skipped),
        fingerprint=fingerprint(root, images),
    )


def labelled_files(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Every file with its split ("" for none) and class ("" for none), in a fixed order."""
    seen = {root.resolve()}
    for parent, split in split_folders(root).items():
        classes = visible_folders(parent)
        if split == "test" and not classes:
            print(f"{parent} has no class folders: its images are not used", file=sys.stderr)
            continue
        if not classes:
            raise UserError(f"data folder {str(parent)!r} has no class folders")
        for folder in classes:
            yield from ((path, split, folder.name) for path in walk(folder, seen))
        yield from ((path, split, "") for path in visible(parent) if path.is_file())


def split_folders(root: Path) -> dict[Path, str]:
    """The folders that hold class folders, each with its split; "" where there are no splits."""
    splits = {path: SPLIT_NAMES.get(path.name.lower()) for path in visible_folders(root)}
    if "train" in splits.values():
        for path, split in splits.items():
            if split is None:
                raise UserError(
                    f"data folder {str(root)!r} has a train folder and also {path.name!r}, which is"
                    " neither val nor test; move it away"
                )
        return splits
    if splits and all(splits.values()):
        raise UserError(f"data folder {str(root)!r} has {min(splits).name!r} but no train folder")
    return {root: ""}


def visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def visible_folders(folder: Path) -> list[Path]:
    return [path for path in visible(folder) if path.is_dir()]


def walk(folder: Path, seen: set[Path]) -> Iterator[Path]:
    """Files below a folder, sorted; what was `seen` already, by another name, is passed over."""
    if folder.resolve() in seen:
        return
    seen.add(folder.resolve())
    for path in visible(folder):
        if path.is_dir():
            yield from walk(path, seen)
        elif path.resolve() not in seen:
            seen.add(path.resolve())
            yield path


@tf.function(input_signature=[tf.TensorSpec([], tf.string)])
def _decoded_size(path):
    return tf.shape(decode_image(tf.io.read_file(path)))[:2]


def is_companion(path: Path) -> bool:
    """Whether a file is none of the images in its folder: by its ending, and then its content."""
    if path.suffix.lower() not in COMPANIONS:
        return False
    with path.open("rb") as file:
        return int(image_format(file.read(16))) == UNKNOWN


def scan(root: Path, found) -> tuple[list[Image], list[Skipped]]:
    """Decode every file once, in threads (TensorFlow lets go of Python's lock)."""

    def check(item) -> Image | Skipped | None:
        path, split, class_name = item
        name = path.relative_to(root).as_posix()
        try:
            if is_companion(path):
                return None
            if not class_name:
                return Skipped(name, "lies in no class folder")
            height, width = _decoded_size(os.fsencode(path)).numpy()
            return Image(path, split, class_name, (int(height), int(width)), path.stat().st_size)
        except tf.errors.OpError as error:
            return Skipped(name, reason(error))
        except OSError as error:
            return Skipped(name, error.strerror)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(check, found))
    images = [result for result in results if isinstance(result, Image)]
    skipped = [result for result in results if isinstance(result, Skipped)]
    return images, skipped


def check_skipped(skipped: list[Skipped], num_files: int, max_skipped: float) -> None:
    if len(skipped) > max_skipped * num_files:
        first = "; ".join(f"{item.path}: {item.reason}" for item in skipped[:3])
        raise UserError(
            f"{len(skipped)} of {num_files} files are no readable images, more than"
            f" max_skipped={max_skipped:g} allows: {first}"
        )


def check_classes(root: Path, images: list[Image]) -> tuple[str, ...]:
    """The class names, sorted; every one has an image to train on."""
    in_training = {image.class_name for image in images if image.split in ("", "train")}
    parents = [path for path, split in split_folders(root).items() if split in ("", "train")]
    names = {folder.name for parent in parents for folder in visible_folders(parent)}
    for name in sorted(names - in_training):
        raise UserError(f"class folder {name!r} in {str(root)!r} holds no readable image")
    for image in images:
        if image.class_name not in names:
            raise UserError(
                f"class {image.class_name!r} is in {image.split} but not in train of {str(root)!r}"
            )
    if len(names) < 2:
        raise UserError(
            f"data folder {str(root)!r} has only the class {min(names)!r}; two are needed"
        )
    return tuple(sorted(names))


def file_split(images: list[Image], class_names: tuple[str, ...]) -> IndexedSplit:
    index_of = {name: index for index, name in enumerate(class_names)}
    paths = tf.constant([os.fsencode(image.path) for image in images], tf.string)
    labels = np.array([index_of[image.class_name] for image in images], np.int32)
    names = tuple(image.path.name for image in images)
    return IndexedSplit(labels, lambda index: tf.io.read_file(tf.gather(paths, index)), names)


def identical_groups(images: list[Image]) -> dict[Path, int]:
    """A number for each path; equal numbers are files with equal bytes."""
    by_size = defaultdict(list)
    for image in images:
        by_size[image.num_bytes].append(image.path)
    keys = {}
    for size, paths in by_size.items():
        for path in paths:  # only files of one size can be equal
            keys[path] = (size, file_hash(path) if len(paths) > 1 else "")
    numbers = {}
    return {path: numbers.setdefault(key, len(numbers)) for path, key in keys.items()}


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def warn_of_leaks(by_split: dict[str, list[Image]], groups: dict[Path, int]) -> None:
    """Say how many of the user's own held-out files are also in training."""
    in_training = {groups[image.path] for image in by_split["train"]}
    for name in ("validation", "test"):
        count = sum(groups[image.path] in in_training for image in by_split.get(name, []))
        if count:
            print(f"Warning: {count} {name} files are also in train", file=sys.stderr)


def fingerprint(root: Path, images: list[Image]) -> str:
    """sha256 of relative names and byte sizes: tells another data set, not another machine."""
    lines = [f"{image.path.relative_to(root).as_posix()}\0{image.num_bytes}" for image in images]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
