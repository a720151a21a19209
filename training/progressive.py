"""Progressive resizing: small images first, the full size last (Tan & Le 2021; FixRes)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import keras
import tensorflow as tf

from keras_vit import at_size
from training.config import Size, TrainConfig
from training.data.pipeline import Entry


@dataclass(frozen=True)
class Stage:
    """Steps `start` to `end` (not itself; None: to the last) of a run see images of this size."""

    start: int
    end: int | None
    image_size: Size


def make_stages(config: TrainConfig, steps: int) -> list[Stage]:
    """The stages of a run: equally many epochs of `steps` each, as nearly as it goes."""
    sizes = [*(config.progressive or ()), config.image_size]
    starts = [steps * round(config.epochs * k / len(sizes)) for k in range(len(sizes))]
    return [
        Stage(start, end, size)
        for start, end, size in zip(starts, [*starts[1:], None], sizes, strict=True)
        if start != end
    ]


def staged(
    stages: list[Stage], entry: Entry, make: Callable[[Size, Entry], tf.data.Dataset]
) -> tf.data.Dataset:
    """The batches of all stages from `entry` on; `make` gives those of one size."""
    whole = None
    for stage in stages:
        if stage.end is not None and stage.end <= entry.step:
            continue
        begin = max(entry.step, stage.start)
        part = make(stage.image_size, replace(entry, step=begin))
        part = part if stage.end is None else part.take(stage.end - begin)
        whole = part if whole is None else whole.concatenate(part)
    return whole


def choose_stage(model: keras.Model, stages: list[Stage]):
    """A function of (images, function): `function(view, images)` of the model at their size.

    Raises: UserError: a size that the model cannot have.
    """
    if len(stages) == 1:
        return lambda images, function: function(model, images)
    views = [at_size(model, stage.image_size) for stage in stages[:-1]] + [model]
    sizes = [view.input_shape[1:3] for view in views]

    def choose(images, function):
        # Where one stage is left the size is known; the same graph gives the same bits.
        images = tf.raw_ops.PlaceholderWithDefault(
            input=images, shape=(images.shape[0], None, None, images.shape[-1])
        )

        def branch(view):  # the whole of it, gradients too: those of recomputed layers need that
            shape = (images.shape[0], *view.input_shape[1:])
            return lambda: function(view, tf.ensure_shape(images, shape))

        same = tf.reduce_all(tf.equal(sizes, tf.shape(images)[1:3]), axis=1)
        return tf.switch_case(
            tf.argmax(same, output_type=tf.int32), [branch(view) for view in views]
        )

    return choose
