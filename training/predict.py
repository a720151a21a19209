"""`keras-vit predict RUN IMAGE...`: the classes of images, as a table or as JSON."""

import glob
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from keras_vit.config import UserError
from training.config import PredictConfig
from training.data.decode import reason
from training.data.preprocess import Preprocess, preprocess_image
from training.metrics import softmax
from training.run import Run


def main(config: PredictConfig) -> int:
    run = Run.open(config.run)
    paths = find_images(config.images)
    class_names = run.read_labels()
    preprocess = Preprocess.from_dict(run.read_preprocess())
    model = run.load_model()
    answers = predict_files(model, paths, preprocess, config.batch_size)
    rows = [describe(path, answer, class_names, config.top) for path, answer in answers]
    if config.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        print_table(rows)
    failed = sum("error" in row for row in rows)
    if failed:
        print(
            f"keras-vit predict: {failed} of {len(rows)} files could not be read", file=sys.stderr
        )
    return 2 if failed else 0


def find_images(patterns: tuple[str, ...]) -> list[Path]:
    """Files, the visible files below folders, and what globs match; sorted within each.

    Raises: UserError: one of them gives no file.
    """
    paths = []
    for pattern in patterns:
        path = Path(pattern).expanduser()
        if path.is_dir():
            found = [p for p in sorted(path.rglob("*")) if p.is_file() and not hidden(p, path)]
        elif path.exists():
            found = [path]
        else:
            found = [Path(p) for p in sorted(glob.glob(str(path), recursive=True))]
            found = [p for p in found if p.is_file()]
        if not found:
            what = "holds no files" if path.is_dir() else "does not exist"
            raise UserError(f"image {pattern!r} {what}")
        paths += found
    return paths


def hidden(path: Path, below: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(below).parts)


def predict_files(
    model, paths: list[Path], preprocess: Preprocess, batch_size: int
) -> list[tuple[Path, np.ndarray | str]]:
    """Each path with its class probabilities `(K,)`, or with the reason why it has none."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def prepare(path):
        return preprocess_image(tf.io.read_file(path), preprocess)

    def read(path: Path):
        try:
            return prepare(os.fsencode(path)), None
        except tf.errors.OpError as error:
            return None, reason(error)

    answers = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(paths), batch_size):
            batch = paths[start : start + batch_size]
            images, reasons = zip(*pool.map(read, batch), strict=True)
            readable = [image for image in images if image is not None]
            scores = iter(
                softmax(model(tf.stack(readable), training=False).numpy()) if readable else []
            )
            answers += [(p, why or next(scores)) for p, why in zip(batch, reasons, strict=True)]
    return answers


def describe(path: Path, answer, class_names: list[str], top: int) -> dict:
    """{"file", "predictions": [{"class", "score"}...]}, or {"file", "error"}. Scores are 0..1."""
    if isinstance(answer, str):
        return {"file": str(path), "error": answer}
    order = np.argsort(-answer, kind="stable")[:top]
    best = [{"class": class_names[i], "score": round(float(answer[i]), 6)} for i in order]
    return {"file": str(path), "predictions": best}


def print_table(rows: list[dict]) -> None:
    table = Table()
    table.add_column("file", overflow="fold")
    table.add_column("class")
    table.add_column("score", justify="right")
    for row in rows:
        if "error" in row:
            table.add_row(row["file"], f"[red]{row['error']}[/red]", "")
            continue
        names = "\n".join(best["class"] for best in row["predictions"])
        scores = "\n".join(f"{best['score']:.1%}" for best in row["predictions"])
        table.add_row(row["file"], names, scores)
    Console().print(table)
