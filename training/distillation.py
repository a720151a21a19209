"""Distillation: the student learns from a teacher's answers too (Hinton et al. 2015; DeiT)."""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import keras
import tensorflow as tf
from keras import ops

from keras_vit.config import UserError
from keras_vit.weights.fetch import sha256
from training.config import TrainConfig
from training.data.preprocess import Preprocess
from training.run import Run, first_line


@dataclass(frozen=True)
class Distillation:
    """What a teacher adds to the loss (Touvron et al. 2021, section 4; DeiT's losses.py).

    teach: images `(B, H, W, C)`, as the student sees them, to the teacher's logits `(B, K)`.
    kind: "soft" or "hard".
    alpha: the teacher's part of the loss.
    tau: temperature of "soft".
    """

    teach: Callable
    kind: str
    alpha: float
    tau: float

    def loss(self, base, logits, taught, weights=None):
        """Scalar: the labels' loss `base` and that of the student's logits against the teacher's.

        Both logits float32 `(B, K)`; weights, of the examples, `(B,)`.
        """
        soft = self.kind == "soft"
        losses = soft_losses(logits, taught, self.tau) if soft else hard_losses(logits, taught)
        if weights is not None:
            losses *= ops.cast(weights, losses.dtype)
        return (1 - self.alpha) * base + self.alpha * ops.mean(losses)


def soft_losses(logits, taught, tau: float):
    """KL divergence at temperature tau times tau^2, `(B,)`; over K too, as DeiT divides."""
    ours, theirs = (ops.log_softmax(values / tau) for values in (logits, taught))
    divergence = ops.sum(ops.exp(theirs) * (theirs - ours), axis=-1)
    return divergence * tau**2 / logits.shape[-1]


def hard_losses(logits, taught):
    """Cross-entropy with the class that the teacher says, `(B,)`."""
    classes = ops.argmax(taught, axis=-1)
    return ops.sparse_categorical_crossentropy(classes, logits, from_logits=True)


def make_distillation(
    config: TrainConfig, preprocess: Preprocess, class_names: tuple[str, ...]
) -> Distillation | None:
    """As the config says, None without a teacher; in `strategy.scope()`, after the student.

    Raises: UserError: the teacher cannot be loaded, or cannot teach these images or classes.
    """
    if config.distillation == "none":
        return None
    model, own = open_teacher(config.teacher, class_names)
    check_fits(config.teacher, model, preprocess.channels, len(class_names))
    teach = teacher_of(without_softmax(model), preprocess, own or preprocess)
    return Distillation(
        teach, config.distillation, config.distillation_alpha, config.distillation_tau
    )


def teacher_digest(path: str) -> str:
    """sha256 of the teacher's model file. Raises: UserError: there is none."""
    file = Run(Path(path)).model_path if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise UserError(
            f"teacher={path!r}: {file} does not exist; name a .keras file or a finished run folder"
        )
    return sha256(file)


def open_teacher(path: str, class_names) -> tuple[keras.Model, Preprocess | None]:
    """The model, and how its images are prepared where a run says it."""
    if Path(path).is_dir():
        try:
            run = Run.open(path)
            model, own = run.load_model(), Preprocess.from_dict(run.read_preprocess())
        except UserError as error:
            raise UserError(f"teacher: {error}") from error
        if run.read_labels() != list(class_names):
            raise UserError(
                f"teacher={path!r}: its classes, labels.txt, must be the data's in the same order:"
                f" {', '.join(class_names[:10])}"
            )
        return model, own
    try:
        return keras.saving.load_model(path, compile=False), None
    except (OSError, ValueError, KeyError, TypeError, ImportError, zipfile.BadZipFile) as error:
        raise UserError(f"teacher={path!r} is no Keras model: {first_line(error)}") from error


def check_fits(path: str, model: keras.Model, channels: int, num_classes: int) -> None:
    takes, gives = (getattr(model, name, None) for name in ("input_shape", "output_shape"))
    is_images = isinstance(takes, tuple) and len(takes) == 4
    if not is_images or takes[::3] != (None, channels) or gives != (None, num_classes):
        raise UserError(
            f"teacher={path!r} takes {takes} and gives {gives}; it must take images"
            f" (None, height, width, {channels}) and give logits (None, {num_classes})"
        )


def without_softmax(model: keras.Model) -> keras.Model:
    """The same model, whose answers are logits where its last layer made probabilities of them."""
    last = model
    while isinstance(last, keras.Model):
        last = last.layers[-1]
    if getattr(last, "activation", None) is keras.activations.softmax:
        last.activation = keras.activations.linear
    return model


def teacher_of(model: keras.Model, seen: Preprocess, own: Preprocess) -> Callable:
    """`Distillation.teach` of a model: images normalised as `seen` become its `own`, of its size.

    A plain function: as an attribute, a model's weights would be the student's.
    """
    size = model.input_shape[1:3]
    values = (seen.mean, seen.std, own.mean, own.std)
    mean, std, own_mean, own_std = (tf.constant(value, tf.float32) for value in values)

    def teach(images):
        if (seen.mean, seen.std) != (own.mean, own.std):
            images = (images * std + mean - own_mean) / own_std
        if None not in size and images.shape[1:3] != size:
            images = tf.image.resize(images, size)
        return tf.cast(model(images, training=False), tf.float32)

    return teach


def with_heads(model: keras.Model) -> keras.Model:
    """The student in training: its answer, the logits for the labels, and those for the teacher.

    DeiT has a head for each, and answers with their mean; another student's one head is all three.
    """
    names = [layer.name for layer in model.layers]
    heads = model.get_layer("head_mean").input if "head_mean" in names else [model.output] * 2
    return keras.Model(model.input, [model.output, *heads], name=model.name)
