"""`keras-vit evaluate RUN`: what a trained model is worth on held-out images."""

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_vit.config import UserError
from training import metrics
from training.config import EvaluateConfig
from training.data.pipeline import evaluation_dataset
from training.data.preprocess import Preprocess
from training.data.sources import IndexedSplit, Source, StreamSplit, open_source
from training.report import print_metrics, save_confusion_matrix
from training.run import Run


def main(config: EvaluateConfig) -> None:
    run = Run.open(config.run)
    settings, class_names = run.read_config(), run.read_labels()
    source = open_images(config, settings)
    name = choose_split(config, source)
    split = with_run_labels(source.splits[name], source.class_names, class_names)
    preprocess = Preprocess.from_dict(run.read_preprocess())
    model = run.load_model()

    start = time.monotonic()
    logits, labels = collect(
        model, evaluation_dataset(split, preprocess, batch_size=config.batch_size)
    )
    seconds = time.monotonic() - start

    result = score(logits, labels, class_names)
    if config.real_labels is not None:
        result["real"] = real_score(config.real_labels, logits)
    result |= {
        "data": config.data or settings["data"],
        "split": name,
        "num_images": len(labels),
        "images_per_second": round(len(labels) / seconds, 1),
    }
    run.write_metrics(result)
    title = f"{result['top1']:.1%} of {len(labels)} {name} images right"
    matrix = np.array(result["confusion_matrix"])
    run.write_picture(
        run.confusion_path, lambda path: save_confusion_matrix(matrix, class_names, title, path)
    )
    print_metrics(result)
    print(f"Written: {run.metrics_path}, {run.confusion_path}")


def open_images(config: EvaluateConfig, settings: dict) -> Source:
    """The images asked for, or the run's own, split as they were for training."""
    return open_source(
        config.data or settings["data"],
        seed=settings["seed"],
        validation_fraction=settings["validation_fraction"],
        max_skipped=settings["max_skipped"],
        data_dir=config.data_dir or settings["data_dir"],
    )


def choose_split(config: EvaluateConfig, source: Source) -> str:
    """The split asked for; else test, or validation where there is no test."""
    if config.split is None:
        return "test" if "test" in source.splits else "validation"
    if config.split not in source.splits:
        raise UserError(
            f"split={config.split} is not in the data; there are {', '.join(source.splits)}"
        )
    return config.split


def with_run_labels(
    split: IndexedSplit | StreamSplit, names: tuple[str, ...], run_names: list[str]
) -> IndexedSplit | StreamSplit:
    """The split with its labels renumbered to the run's class order, by name."""
    if list(names) == run_names:
        return split
    for name in names:
        if name not in run_names:
            raise UserError(
                f"class {name!r} of the data is unknown to the run, which knows"
                f" {', '.join(run_names[:10])}{'...' if len(run_names) > 10 else ''}"
            )
    index = np.array([run_names.index(name) for name in names], np.int32)
    if isinstance(split, IndexedSplit):
        return replace(split, labels=index[split.labels])
    table = tf.constant(index)
    return StreamSplit(
        split.num_examples,
        lambda seed: split.open(seed).map(lambda image, label: (image, tf.gather(table, label))),
    )


def collect(model, dataset: tf.data.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Logits float32 `(N, K)` and labels int32 `(N,)` of every image."""
    step = tf.function(lambda images: model(images, training=False), reduce_retracing=True)
    pairs = [(step(images).numpy(), labels.numpy()) for images, labels in dataset]
    logits, labels = zip(*pairs, strict=True)
    return np.concatenate(logits).astype(np.float32), np.concatenate(labels)


def score(logits: np.ndarray, labels: np.ndarray, class_names: list[str]) -> dict:
    """The content of `metrics.json`: plain values, None where a figure does not exist."""
    probabilities = metrics.softmax(logits)
    matrix = metrics.confusion_matrix(probabilities.argmax(axis=1), labels, len(class_names))
    table = metrics.per_class(matrix)
    result = {"top1": metrics.top_k_accuracy(probabilities, labels, 1)}
    if len(class_names) >= 5:
        result["top5"] = metrics.top_k_accuracy(probabilities, labels, 5)
    return result | {
        "loss": metrics.log_loss(probabilities, labels),
        "calibration_error": metrics.expected_calibration_error(probabilities, labels),
        "per_class": {
            name: {key: plain(values[i]) for key, values in table.items()}
            for i, name in enumerate(class_names)
        },
        "confusion_matrix": matrix.tolist(),
    }


def plain(value) -> float | int | None:
    """A NumPy number for JSON, which has no NaN."""
    value = value.item()
    return None if isinstance(value, float) and np.isnan(value) else value


def real_score(path: str, logits: np.ndarray) -> float:
    """The ReaL score from the label file: a list of class lists, one for each image in order."""
    try:
        lists = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"real_labels={path} cannot be read: {error}") from error
    if not isinstance(lists, list) or not all(isinstance(item, list) for item in lists):
        raise UserError(f"real_labels={path} must be a list of class lists, like real.json")
    if len(lists) != len(logits):
        raise UserError(
            f"real_labels={path} is for {len(lists)} images, the split has {len(logits)}"
        )
    return metrics.real_accuracy(logits.argmax(axis=1), lists)
