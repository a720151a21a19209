"""A model's answers to whole splits, and the backbone of a run or a weight file."""

import sys
import time
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit.config import UserError
from training.data.pipeline import evaluation_dataset
from training.data.preprocess import Preprocess
from training.data.sources import IndexedSplit, Source, StreamSplit
from training.defaults import pretrained_size
from training.recipes import find_recipe
from training.report import progress
from training.run import Run

Split = IndexedSplit | StreamSplit


def answers(
    model, splits: list[Split], preprocess: Preprocess, batch_size: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Outputs float32 `(N, K)` and labels int32 `(N,)` of every image, and images/s.

    The pace counts reading and decoding, but not the first batch, which compiles, where there are
    more. Raises: UserError: outputs that are not finite.
    """
    step = tf.function(lambda images: model(images, training=False), reduce_retracing=True)
    parts = [evaluation_dataset(split, preprocess, batch_size=batch_size) for split in splits]
    total = sum(-(-split.num_examples // batch_size) for split in splits)
    outputs, labels, times = [], [], [time.monotonic()]
    for images, classes in progress(reduce(lambda a, b: a.concatenate(b), parts), total, "Images"):
        outputs.append(step(images).numpy())
        labels.append(classes.numpy())
        times.append(time.monotonic())
    first = 1 if len(labels) > 1 else 0
    count = sum(len(batch) for batch in labels[first:])
    pace = round(count / (times[-1] - times[first]), 1)
    outputs = np.concatenate(outputs).astype(np.float32)
    broken = (~np.isfinite(outputs)).any(axis=1).sum()
    if broken:
        raise UserError(f"the model's answer is not finite for {broken} of {len(outputs)} images")
    return outputs, np.concatenate(labels), pace


@dataclass(frozen=True)
class Backbone:
    """A model that ends before its head, and how its images are prepared.

    model: images `(B, H, W, C)` to features `(B, D)`.
    run: the run it is from, None of a weight file.
    """

    model: keras.Model
    preprocess: Preprocess
    run: Run | None


def open_backbone(path: str, image_size: tuple[int, int] | None = None) -> Backbone:
    """The backbone of a run folder, or of a weight file or URI.

    Args:
        path: run folder, or what `keras_vit.open_weights` takes.
        image_size: (height, width); None: the run's, or the weights' up to 224 pixels.

    Raises: UserError: neither, or a size that does not fit.
    """
    if (Path(path) / "config.yaml").is_file():
        if image_size is not None:
            raise UserError("image_size cannot be changed for a run; give its model.keras instead")
        run = Run.open(path)
        preprocess = Preprocess.from_dict(run.read_preprocess())
        return Backbone(before_head(run.load_model()), preprocess, run)
    weights = keras_vit.open_weights(path, image_size=image_size)
    size = image_size or pretrained_size(weights, find_recipe("scratch"))
    model = keras_vit.from_weights(weights, image_size=size, num_classes=0)
    if len(model.output_shape) != 2:
        raise UserError(f"{path}: pools no tokens, so that an image has no single feature vector")
    channels = weights.config.in_channels
    known = {"interpolation": "bicubic", **weights.preprocessing}
    return Backbone(model, Preprocess(image_size=size, channels=channels, **known), None)


def before_head(model: keras.Model) -> keras.Model:
    """The same weights, up to what enters the head."""
    return keras.Model(model.input, model.get_layer("head").input)


def say_skipped(source: Source) -> None:
    """One line on stderr about files that are left out, if any are."""
    if source.skipped:
        first = source.skipped[0]
        print(
            f"Left out: {len(source.skipped)} of {source.num_files} files, the first:"
            f" {first.path} ({first.reason})",
            file=sys.stderr,
        )
