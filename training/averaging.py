"""Averaged weights: what is measured and kept with `--ema`, while training goes on with its own."""

import contextlib

import keras


class Averaging(keras.callbacks.Callback):
    """Validates with the averages that the optimizer keeps.

    Keras's SwapEMAWeights swaps by adding and subtracting, which changes the weights a little.
    """

    def on_test_begin(self, logs=None):
        swap(self.model)

    def on_test_end(self, logs=None):
        swap(self.model)


@contextlib.contextmanager
def averaged(model):
    """The model with its averaged weights, where its optimizer keeps some."""
    used = inner_optimizer(model).use_ema
    if used:
        swap(model)
    try:
        yield model
    finally:
        if used:
            swap(model)


def swap(model) -> None:
    """Exchange the trained weights and their averages."""
    averages = inner_optimizer(model)._model_variables_moving_average
    for weight, average in zip(model.trainable_variables, averages, strict=True):
        kept = keras.ops.convert_to_numpy(weight)
        weight.assign(keras.ops.convert_to_numpy(average))
        average.assign(kept)


def inner_optimizer(model):
    """The optimizer that float16's loss scaling may wrap."""
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)
