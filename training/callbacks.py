"""What happens beside the steps: progress, saving, stopping."""

import math
import time

import keras
import numpy as np

from keras_vit.config import UserError
from training.run import Run


class Progress(keras.callbacks.Callback):
    """Adds images_per_second, minutes_left and learning_rate to the progress bar and the history.

    Put it before the callbacks that write the history.

    Args:
        batch_size: images a step.
    """

    def __init__(self, batch_size: int):
        super().__init__()
        self.batch_size = batch_size

    def on_train_begin(self, logs=None):
        self.start, self.done = time.monotonic(), 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch_start, self.epoch_done = time.monotonic(), 0

    def on_train_batch_end(self, batch, logs=None):
        self.done += 1
        self.epoch_done += 1
        self._add(logs)

    def on_epoch_end(self, epoch, logs=None):
        self._add(logs)
        logs["learning_rate"] = float(
            keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)
        )

    def on_test_begin(self, logs=None):
        self.test_start = time.monotonic()

    def on_test_end(self, logs=None):
        # The validation of an epoch is not training time.
        self.epoch_start += time.monotonic() - self.test_start

    def _add(self, logs) -> None:
        now = time.monotonic()
        total = self.params["epochs"] * self.params["steps"]
        pace = self.epoch_done * self.batch_size / max(now - self.epoch_start, 1e-9)
        logs["images_per_second"] = round(pace, 1)
        left = (now - self.start) / self.done * (total - self.done)
        logs["minutes_left"] = round(left / 60, 1)


class StopOnNaN(keras.callbacks.Callback):
    """Ends training at the first loss that is not finite; saved models stay as they are."""

    def __init__(self, run: Run):
        super().__init__()
        self.run = run

    def on_train_batch_end(self, batch, logs=None):
        if not math.isfinite(logs["loss"]):
            step = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
            kept = f"{self.run.model_path} is the best before"
            raise UserError(
                f"the loss became {logs['loss']} at step {step}; a smaller --learning-rate, a"
                " longer --warmup-epochs or --precision float32 may help;"
                f" {kept if self.run.model_path.exists() else 'no model was saved yet'}"
            )


class SaveBest(keras.callbacks.Callback):
    """Keeps the model with the best validation accuracy (of equal ones the least loss).

    What is saved is the bare model, without optimizer: `keras.saving.load_model` opens it with
    nothing but `keras_vit` imported. With averaged weights put it after `SwapEMAWeights`.
    """

    def __init__(self, run: Run):
        super().__init__()
        self.run = run
        self.best = (-np.inf, -np.inf)

    def on_epoch_end(self, epoch, logs=None):
        score = (logs["val_accuracy"], -logs["val_loss"])
        if score > self.best:
            self.best = score
            self.run.save_model(bare(self.model), self.run.model_path)


class SaveLast(keras.callbacks.Callback):
    """Keeps the model after each epoch, with its optimizer, in checkpoints/last.keras."""

    def __init__(self, run: Run):
        super().__init__()
        self.run = run

    def on_epoch_end(self, epoch, logs=None):
        self.run.save_model(self.model, self.run.last_path)


def bare(model):
    """The same layers and weights as a model that was never compiled."""
    return keras.Model(model.inputs, model.outputs, name=model.name)


def make_callbacks(config, run: Run) -> list[keras.callbacks.Callback]:
    """The callbacks of a run; the order matters."""
    callbacks = [StopOnNaN(run), Progress(config.batch_size), SaveLast(run)]
    if config.ema is not None:  # what is saved after it are the averaged weights
        callbacks.append(keras.callbacks.SwapEMAWeights(swap_on_epoch=True))
    callbacks += [
        SaveBest(run),
        keras.callbacks.CSVLogger(run.history_path),
        keras.callbacks.TensorBoard(run.logs_path, write_graph=False),
    ]
    if config.early_stopping is not None:
        callbacks.append(
            keras.callbacks.EarlyStopping(
                "val_accuracy", mode="max", patience=config.early_stopping, verbose=1
            )
        )
    return callbacks
