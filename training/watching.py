"""What a run shows while it goes on: pace and use of the devices, pictures, trackers."""

import importlib
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_vit import config_of, count_flops
from keras_vit.config import UserError
from training.config import TrainConfig
from training.data.preprocess import Preprocess
from training.progressive import make_stages


class Progress(keras.callbacks.Callback):
    """Adds what the clock says to the progress bar and the history.

    images_per_second; minutes_left; data_wait, the share of the epoch's training time in which
    steps waited for their batches; with `flops` mfu, the model FLOPs utilisation (Chowdhery et al.
    2022, appendix B). At the end of an epoch also learning_rate.

    Between the steps of one execution a GPU may still work while the program waits for a batch:
    with `steps_per_execution` data_wait is the most that it can be. `deterministic` has none.

    Put it before the callbacks that write the history.

    Args:
        batch_size: images a step.
        flops: of an epoch, what training on one of its images takes.
        peak_flops: a second, of all devices.
    """

    def __init__(
        self,
        batch_size: int,
        flops: Callable[[int], int] | None = None,
        peak_flops: float | None = None,
    ):
        super().__init__()
        self.batch_size, self.flops, self.peak_flops = batch_size, flops, peak_flops

    def on_train_begin(self, logs=None):
        self.start, self.done = time.monotonic(), 0
        self.left = None

    def on_epoch_begin(self, epoch, logs=None):
        if self.left is None:
            self.left = (self.params["epochs"] - epoch) * self.params["steps"]
        self.epoch, self.epoch_start, self.epoch_done = epoch, self._clock(), 0

    def on_train_batch_end(self, batch, logs=None):
        steps = self.model.steps_per_execution
        self.left -= steps
        if not self.model.replayed:
            self.done += steps
            self.epoch_done += steps
        self._add(logs)

    def on_epoch_end(self, epoch, logs=None):
        self._add(logs)
        logs["learning_rate"] = float(
            keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)
        )

    def on_test_begin(self, logs=None):
        self.test_start = self._clock()

    def on_test_end(self, logs=None):
        # The validation of an epoch is not training time.
        self.epoch_start += self._clock() - self.test_start

    def _clock(self) -> np.ndarray:
        """(now, how long all steps so far have waited), in seconds."""
        waited = self.model.waited
        return np.array([time.monotonic(), 0.0 if waited is None else waited.numpy()])

    def _add(self, logs) -> None:
        seconds, waited = (float(value) for value in self._clock() - self.epoch_start)
        seconds = max(seconds, 1e-9)
        pace = self.epoch_done * self.batch_size / seconds
        logs["images_per_second"] = round(pace, 1)
        if self.model.waited is not None:
            logs["data_wait"] = round(waited / seconds, 4)
        if self.flops:
            logs["mfu"] = round(pace * self.flops(self.epoch) / self.peak_flops, 4)
        left = (time.monotonic() - self.start) / max(self.done, 1) * self.left
        logs["minutes_left"] = round(left / 60, 1)


def make_progress(config: TrainConfig, trainer, steps: int) -> Progress:
    """As the config says; `steps` are those of an epoch."""
    if config.peak_tflops is None:
        return Progress(config.batch_size)
    devices = trainer.distribute_strategy.num_replicas_in_sync
    flops = training_flops(config, trainer, steps)
    return Progress(config.batch_size, flops, config.peak_tflops * 1e12 * devices)


def training_flops(config: TrainConfig, model: keras.Model, steps: int) -> Callable[[int], int]:
    """A function of an epoch: what training on one of its images takes, forward and backward."""
    stages, own = make_stages(config, steps), config_of(model)

    def flops(epoch: int) -> int:
        stage = [stage for stage in stages if stage.start <= epoch * steps][-1]
        # The backward pass has two products for each of the forward pass.
        return 3 * count_flops(replace(own, image_size=stage.image_size), training=True)

    return flops


def write_images(folder: Path, batches: Iterable, preprocess: Preprocess, count: int) -> None:
    """Image summaries of the first `count` images, as the model sees them."""
    images = batches.map(lambda images, *_: images).unbatch().take(count)
    with tf.summary.create_file_writer(str(folder)).as_default(step=0) as writer:
        for number, image in enumerate(images):
            pixels = image * preprocess.std + preprocess.mean
            tf.summary.image(f"training_images/{number}", tf.clip_by_value(pixels, 0, 1)[None])
        writer.close()


def check_trackers(config: TrainConfig) -> None:
    """Raises: UserError: a tracker that is asked for is not installed."""
    for name in TRACKERS:
        if getattr(config, name) is not None:
            try:
                importlib.import_module(name)
            except ImportError as error:
                raise UserError(f"--{name} needs a package: pip install {name}") from error


def make_trackers(config: TrainConfig, folder: Path) -> dict[str, keras.callbacks.Callback]:
    """Those that are asked for, by name."""
    return {
        name: tracker(config, folder)
        for name, tracker in TRACKERS.items()
        if getattr(config, name) is not None
    }


class Tracker(keras.callbacks.Callback):
    """Logs the settings and each epoch's numbers; a resumed run goes on with the same `id`."""

    def __init__(self, config: TrainConfig, folder: Path):
        super().__init__()
        self.config, self.folder = config, folder
        self.id = None

    def get_state(self) -> dict:
        return {"id": self.id}

    def set_state(self, state: dict) -> None:
        self.id = state["id"]


class WeightsAndBiases(Tracker):
    """To a project of Weights & Biases."""

    def on_train_begin(self, logs=None):
        import wandb

        self.logger = wandb.init(
            project=self.config.wandb,
            name=self.folder.name,
            dir=str(self.folder),
            config=asdict(self.config) if self.id is None else None,
            id=self.id,
            resume="allow",
        )
        self.id = self.logger.id

    def on_epoch_end(self, epoch, logs=None):
        self.logger.log({name: float(value) for name, value in logs.items()}, step=epoch)

    def on_train_end(self, logs=None):
        self.logger.finish()


class MLflow(Tracker):
    """To an experiment of MLflow."""

    def on_train_begin(self, logs=None):
        import mlflow

        mlflow.end_run()  # which a rollback may have left open
        mlflow.set_experiment(self.config.mlflow)
        run = mlflow.start_run(run_id=self.id, run_name=self.folder.name)
        if self.id is None:
            mlflow.log_params(asdict(self.config))
        self.id = run.info.run_id

    def on_epoch_end(self, epoch, logs=None):
        import mlflow

        mlflow.log_metrics({name: float(value) for name, value in logs.items()}, step=epoch)

    def on_train_end(self, logs=None):
        import mlflow

        mlflow.end_run()


TRACKERS = {"wandb": WeightsAndBiases, "mlflow": MLflow}
