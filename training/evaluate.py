"""`keras-vit evaluate RUN`: what a trained model is worth on held-out images.

With `--probe` what its frozen features are worth, or those of any pretrained weights.
"""

import json
import sys
from dataclasses import replace

import numpy as np
import tensorflow as tf

from keras_vit.config import UserError
from training import metrics
from training.config import EvaluateConfig
from training.data.preprocess import Preprocess
from training.data.sources import IndexedSplit, Source, StreamSplit, open_source
from training.inference import Split, answers, open_backbone, say_skipped
from training.probe import probe
from training.real import real_labels_of
from training.report import confusion_figure, print_scores
from training.run import Run

# How images are split where no run says it.
FRESH = {"seed": 0, "validation_fraction": 0.2, "max_skipped": 0.05, "data_dir": None}


def main(config: EvaluateConfig) -> None:
    if config.probe:
        return evaluate_probe(config)
    run = Run.open(config.run)
    settings, class_names = run.read_config(), run.read_labels()
    source = open_images(config, settings)
    name, splits = choose_splits(config, source, is_own(config, settings, source))
    splits = with_run_labels(splits, source.class_names, class_names)
    real_labels = None
    if config.real_labels is not None:
        real_labels = real_labels_of(config.real_labels, splits, len(class_names))
    preprocess = Preprocess.from_dict(run.read_preprocess())
    model = run.load_model()

    logits, labels, pace = answers(model, splits, preprocess, config.batch_size)
    scores = {
        "data": config.data or settings["data"],
        "split": name,
        "num_images": len(labels),
        "images_per_second": pace,
        **score(logits, labels, class_names),
    }
    if real_labels is not None:
        scores["real"] = metrics.real_accuracy(logits.argmax(axis=1), real_labels)
    title = f"{scores['top1']:.1%} of {len(labels)} images right ({name} of {scores['data']})"
    figure = confusion_figure(np.array(scores["confusion_matrix"]), class_names, title)
    run.write_metrics(scores)
    run.write_picture(
        run.confusion_path, lambda path: figure.savefig(path, format="png", bbox_inches="tight")
    )
    print_scores(scores)
    print(f"Written: {run.metrics_path}, {run.confusion_path}")


def evaluate_probe(config: EvaluateConfig) -> None:
    """Accuracy of a simple classifier on the frozen features of a run or of pretrained weights."""
    backbone = open_backbone(config.run, config.image_size)
    settings = backbone.run.read_config() if backbone.run else {**FRESH, "data": config.data}
    if settings["data"] is None:
        raise UserError("data: name the images, like --data folder:PATH; weights bring none")
    source = open_images(config, settings)
    name, splits = choose_splits(config, source, is_own=True)
    if name in ("train", "all"):
        raise UserError(f"split={name}: the probe learns from train; measure on another split")
    features = [
        answers(backbone.model, [split], backbone.preprocess, config.batch_size)[:2]
        for split in (source.splits["train"], *splits)
    ]
    scores = probe(config.probe, *features, shots=config.shots, seeds=config.seeds)
    result = {
        "weights": config.run,
        "data": settings["data"],
        "split": name,
        "num_images": len(features[1][1]),
        "probe": config.probe,
        "shots": config.shots,
        "accuracies": list(scores.accuracies),
        "accuracy": scores.mean,
        "interval": scores.interval,
    }
    if backbone.run:
        backbone.run.write_probe(result)
    if config.json:
        print(json.dumps(result))
        return
    shots = f"{config.shots} images a class" if config.shots else "all training images"
    print(
        f"{config.probe} probe, {shots}: {scores} of {result['num_images']} images right"
        f" ({name} of {settings['data']})"
    )


def open_images(config: EvaluateConfig, settings: dict) -> Source:
    """The images asked for, or the run's own, split as they were for training."""
    source = open_source(
        config.data or settings["data"],
        seed=settings["seed"],
        validation_fraction=settings["validation_fraction"],
        max_skipped=settings["max_skipped"],
        data_dir=config.data_dir or settings["data_dir"],
    )
    say_skipped(source)
    return source


def is_own(config: EvaluateConfig, settings: dict, source: Source) -> bool:
    """Whether these are the images of the run; warns if they are, but not as they were."""
    is_same = source.fingerprint == settings["made_with"]["data_fingerprint"]
    by_name = config.data in (None, settings["data"])
    if by_name and not is_same:
        print(
            f"Warning: {settings['data']} has changed since the run was trained; its held-out"
            " images may be among those the model has seen",
            file=sys.stderr,
        )
    return by_name or is_same


def choose_splits(config: EvaluateConfig, source: Source, is_own: bool) -> tuple[str, list[Split]]:
    """The name of what is measured and its splits.

    By default test; where there is none validation, but of new images all, unless they bring a
    validation split of their own: the model was trained on none of them.

    Raises: UserError: no such split, or one without images.
    """
    name = config.split
    if name is None and "test" in source.splits:
        name = "test"
    elif name is None:
        name = "all" if source.made_validation and not is_own else "validation"
    if name != "all" and name not in source.splits:
        there = ", ".join(source.splits)
        raise UserError(f"split={name} is not in the data; there are {there} and all")
    splits = [split for key, split in source.splits.items() if name in ("all", key)]
    if not sum(split.num_examples for split in splits):
        raise UserError(f"split={name} holds no images")
    return name, [split for split in splits if split.num_examples]


def with_run_labels(
    splits: list[Split], names: tuple[str, ...], run_names: list[str]
) -> list[Split]:
    """The splits with their labels renumbered to the run's class order, by name.

    Classes that the run knows and the data lack are said on stderr.
    Raises: UserError: a class that the run does not know.
    """
    if list(names) == run_names:
        return splits
    index_of = {name: index for index, name in enumerate(run_names)}
    for name in names:
        if name not in index_of:
            raise UserError(f"class {name!r} of the data is unknown to the run: {few(run_names)}")
    missing = [name for name in run_names if name not in names]
    if missing:
        print(f"Without images: {few(missing)}", file=sys.stderr)
    index = np.array([index_of[name] for name in names], np.int32)
    return [renumbered(split, index) for split in splits]


def renumbered(split: Split, index: np.ndarray) -> Split:
    if isinstance(split, IndexedSplit):
        return replace(split, labels=index[split.labels])
    return StreamSplit(
        split.num_examples,
        lambda key: split.open(key).map(lambda image, label: (image, tf.gather(index, label))),
    )


def few(names: list[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def score(logits: np.ndarray, labels: np.ndarray, class_names: list[str]) -> dict:
    """Every figure of `metrics.json`: plain values, None where one does not exist.

    `precision`, `recall` and `f1` are means over the classes that have the figure.
    """
    probabilities = metrics.softmax(logits)
    matrix = metrics.confusion_matrix(logits.argmax(axis=1), labels, len(class_names))
    table = metrics.per_class(matrix)
    result = {"top1": metrics.top_k_accuracy(logits, labels, 1)}
    if len(class_names) >= 5:
        result["top5"] = metrics.top_k_accuracy(logits, labels, 5)
    return result | {
        "loss": metrics.log_loss(logits, labels),
        "calibration_error": metrics.expected_calibration_error(probabilities, labels),
        **{key: float(np.nanmean(table[key])) for key in ("precision", "recall", "f1")},
        "per_class": [
            {"class": name, **{key: plain(values[i]) for key, values in table.items()}}
            for i, name in enumerate(class_names)
        ],
        "confusion_matrix": matrix.tolist(),
    }


def plain(value) -> float | int | None:
    """A NumPy number for JSON, which has no NaN."""
    value = value.item()
    return None if isinstance(value, float) and np.isnan(value) else value
