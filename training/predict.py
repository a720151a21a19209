"""`keras-vit predict RUN IMAGE...`: the classes of images, as a table or as JSON."""

import glob
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from rich.table import Table

from keras_vit.config import UserError
from training.config import PredictConfig
from training.data.decode import reason
from training.data.folder import is_companion, walk
from training.data.preprocess import Preprocess, preprocess_image
from training.metrics import softmax
from training.report import console, progress
from training.run import Run


def main(config: PredictConfig) -> None:
    """Answer every readable file first; then say, by status 2, that others were not."""
    run = Run.open(config.run)
    paths = find_images(config.images)
    class_names = run.read_labels()
    preprocess = Preprocess.from_dict(run.read_preprocess())
    model = run.load_model()
    answers = predict_files(model, paths, preprocess, config.batch_size)
    rows = (
        describe(path, answer, class_names, config.top)
        for path, answer in zip(paths, answers, strict=True)
    )
    failed = print_json(rows) if config.json else print_table(rows, len(paths))
    if failed:
        raise UserError(f"{failed} of {len(paths)} files could not be read")


def find_images(patterns: Iterable[str]) -> list[Path]:
    """Files, the files below folders, and what globs match: sorted within each, each file once.

    Hidden files are passed over, and so is what people keep beside photos (`labels.csv`), unless
    it is named itself. Raises: UserError: one of the patterns gives no file.
    """
    paths = {}
    for pattern in patterns:
        path = Path(pattern).expanduser()
        try:
            found = files_of(path)
        except OSError as error:
            raise UserError(f"image {pattern!r} cannot be read: {error.strerror}") from error
        if not found:
            what = "holds no images" if path.is_dir() else "does not exist"
            raise UserError(f"image {pattern!r} {what}")
        for file in found:
            paths.setdefault(file.resolve(), file)
    return list(paths.values())


def files_of(path: Path) -> list[Path]:
    if path.is_dir():
        return [file for file in walk(path, set()) if not is_companion(file)]
    if path.exists():
        return [path]
    found = []
    for match in sorted(glob.glob(str(path), recursive=True)):
        match = Path(match)
        if match.is_dir():
            found += files_of(match)
        elif not is_companion(match):
            found.append(match)
    return found


def predict_files(
    model, paths: list[Path], preprocess: Preprocess, batch_size: int
) -> Iterator[np.ndarray | str]:
    """For each path its class probabilities float64 `(K,)`, or why the file could not be read."""
    step = tf.function(lambda images: model(images, training=False), reduce_retracing=True)
    read = reader(preprocess)
    answered = 0
    for positions, images in file_dataset(paths, preprocess, batch_size):
        for position, row in zip(positions.numpy(), softmax(step(images).numpy()), strict=True):
            yield from (problem(path, read) for path in paths[answered:position])
            yield row
            answered = position + 1
    yield from (problem(path, read) for path in paths[answered:])


def reader(preprocess: Preprocess):
    """A graph from the path of an image to what the model takes, float32 `(H, W, C)`."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def read(path):
        return preprocess_image(tf.io.read_file(path), preprocess)

    return read


def file_dataset(paths: list[Path], preprocess: Preprocess, batch_size: int) -> tf.data.Dataset:
    """Batches of (int64 position in `paths` `(B,)`, float32 images `(B, H, W, C)`), in order.

    Images are prepared exactly as in evaluation. Files that cannot be read are left out.
    """
    names = tf.constant([os.fsencode(path) for path in paths], tf.string)
    read = reader(preprocess)
    images = tf.data.Dataset.from_tensor_slices(names).enumerate()
    images = images.map(
        lambda position, path: (position, read(path)), num_parallel_calls=tf.data.AUTOTUNE
    )
    return images.ignore_errors().batch(batch_size).prefetch(tf.data.AUTOTUNE)


def problem(path: Path, read) -> str:
    """Why a file that `file_dataset` left out could not be read: it is tried once more."""
    try:
        read(os.fsencode(path))
    except tf.errors.OpError as error:
        return reason(error)
    return "could not be read at first; it has changed meanwhile"


def describe(path: Path, answer: np.ndarray | str, class_names: list[str], top: int) -> dict:
    """{"file", "predictions": [{"class", "index", "score"}...]} or {"file", "error"}.

    The best `top` classes, or all if there are fewer; scores are probabilities, 0..1.
    """
    if isinstance(answer, str):
        return {"file": str(path), "error": answer}
    order = np.argsort(-answer, kind="stable")[:top]
    best = [
        {"class": class_names[i], "index": int(i), "score": round(float(answer[i]), 6)}
        for i in order
    ]
    return {"file": str(path), "predictions": best}


def print_json(rows: Iterable[dict]) -> int:
    """One array on stdout, a line for each file, as soon as it is known. Returns the failures.

    ASCII only: a file name that is no UTF-8 comes back whole from `json.loads`.
    """
    failed = 0
    for number, row in enumerate(rows):
        print("," if number else "[", json.dumps(row), sep="\n", end="", flush=True)
        failed += "error" in row
    print("\n]")
    return failed


def print_table(rows: Iterable[dict], count: int) -> int:
    """A table on stdout. Returns the failures."""
    table = Table()
    table.add_column("file", overflow="fold")
    table.add_column("class", overflow="fold")
    table.add_column("score", justify="right")
    failed = 0
    for row in progress(rows, count, "Images"):
        best = row.get("predictions", [])
        names = "\n".join(item["class"] for item in best) or f"not read: {row['error']}"
        scores = "\n".join(f"{item['score']:.1%}" for item in best)
        table.add_row(row["file"], names, scores, end_section=len(best) > 1)
        failed += "error" in row
    console().print(table)
    return failed
