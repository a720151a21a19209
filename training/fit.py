"""The fit of a run: from its newest checkpoint on, past signals, bad batches and lost peers."""

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass

import keras
import tensorflow as tf

from keras_vit.config import UserError
from training import checkpoint
from training.averaging import Averaging
from training.callbacks import (
    Checkpoints,
    EarlyStopping,
    History,
    NonFiniteLoss,
    SaveBest,
)
from training.config import TrainConfig
from training.data.pipeline import Entry, Part
from training.distribution import part_of
from training.resume import restore
from training.run import Run
from training.signals import Signals, Stopped, listening
from training.trainer import Trainer
from training.watching import make_progress, make_trackers

MOST_LEFT_OUT = 10  # batches after one checkpoint: more are no bad batches but a bad setting
START = {"epoch": 0, "steps": 0, "left_out": [], "callbacks": {}, "finished": False}
LOST_PEER = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
)


@dataclass(frozen=True)
class Fit:
    """What a run trains with.

    trainer: compiled, its optimizer built.
    make_dataset: `Entry` to the training batches from there on.
    validation: batches, each example once.
    steps, validation_steps: of an epoch, and of its validation.
    """

    trainer: Trainer
    run: Run
    config: TrainConfig
    make_dataset: Callable[[Entry], object]
    validation: object
    steps: int
    validation_steps: int

    @property
    def part(self) -> Part:
        return part_of(self.trainer.distribute_strategy)


def fit(job: Fit) -> None:
    """Train until the last epoch, from where the run's newest checkpoint is.

    Raises:
        Stopped: by a signal or because another worker is gone; a restart with --resume goes on.
        UserError: the loss is not finite, or something cannot be written.
    """
    with listening() as signals, saying_that_a_peer_is_lost(job.part):
        arrays, facts = find_start(job)
        while True:
            try:
                return fit_from(job, arrays, facts, signals)
            except NonFiniteLoss as error:
                if job.config.on_nan == "stop":
                    raise
                bad = int(Entry(0, tuple(facts["left_out"])).number(error.step))
                arrays, before = checkpoint.newest(job.run.checkpoints_path)
                left_out = sorted({*before["left_out"], *facts["left_out"], bad})
                if len(left_out) - len(before["left_out"]) > MOST_LEFT_OUT:
                    raise UserError(f"{error}; {MOST_LEFT_OUT} batches were left out") from error
                facts = before | {"left_out": left_out}
                print(f"Rolled back to step {step_of(job, facts)}, without batch {bad}", flush=True)


def find_start(job: Fit) -> tuple[dict, dict]:
    """(arrays, facts) of the newest checkpoint; of the very start where there is none."""
    found = checkpoint.newest(job.run.checkpoints_path)
    arrays, facts = found or ({}, START)
    step = step_of(job, facts)
    check_agreement(job, step)
    if found:
        print(f"Resumed    after step {step} (epoch {facts['epoch'] + 1})", flush=True)
    return arrays, facts


def step_of(job: Fit, facts: dict) -> int:
    return facts["epoch"] * job.steps + facts["steps"]


def fit_from(job: Fit, arrays: dict, facts: dict, signals: Signals) -> None:
    """Train from one checkpoint on."""
    trainer, config = job.trainer, job.config
    callbacks = make_callbacks(job, facts, signals)
    if arrays:
        restore(trainer, arrays)
        callbacks[-1].set_state(arrays, facts)
    if facts["finished"]:
        return
    trainer.spread_seeds()
    step = step_of(job, facts)
    trainer.start_at(step, facts["steps"])
    trainer.fit(
        job.make_dataset(Entry(step, tuple(facts["left_out"]))),
        initial_epoch=facts["epoch"],
        epochs=config.epochs,
        steps_per_epoch=job.steps,
        validation_data=job.validation,
        validation_steps=job.validation_steps,
        shuffle=False,  # is the pipeline's work
        verbose=verbosity(job.part),
        callbacks=callbacks,
    )


def make_callbacks(job: Fit, facts: dict, signals: Signals) -> list[keras.callbacks.Callback]:
    """The callbacks of a run; the order matters."""
    config, run, writes = job.config, job.run, job.part.index == 0
    history, best = History(run, writes), SaveBest(run, writes)
    others = {"history": history, "best": best}
    callbacks = [make_progress(config, job.trainer, job.steps)]
    if config.ema:
        callbacks.append(Averaging())
    callbacks += [best, history]
    if writes:
        trackers, histograms = make_trackers(config, run.path), config.tensorboard_histograms
        board = keras.callbacks.TensorBoard(run.logs_path, int(histograms), write_graph=False)
        others |= trackers
        callbacks += [board, *trackers.values()]
    if config.early_stopping is not None:
        others["early_stopping"] = EarlyStopping(
            "val_accuracy", mode="max", patience=config.early_stopping, verbose=int(writes)
        )
        callbacks.append(others["early_stopping"])
    return [*callbacks, Checkpoints(run, config, job.part, signals, facts["left_out"], others)]


def verbosity(part: Part) -> int:
    """A bar on a terminal, a line an epoch in a file, and only from one worker."""
    if part.index > 0:
        return 0
    return 1 if sys.stdout.isatty() else 2


def check_agreement(job: Fit, step: int) -> None:
    """Raises: UserError: the workers do not all see the same checkpoint."""
    if job.part.count == 1:
        return
    strategy = job.trainer.distribute_strategy
    total = int(strategy.reduce("SUM", tf.constant(step, tf.int64), axis=None))
    if total != step * strategy.num_replicas_in_sync:
        raise UserError(
            f"this worker's newest checkpoint is of step {step}, others have another one:"
            f" output={str(job.run.path)!r} must be on a disk that all workers share"
        )


@contextlib.contextmanager
def saying_that_a_peer_is_lost(part: Part):
    """Of TensorFlow's errors when another worker of the cluster does not answer any more."""
    try:
        yield
    except LOST_PEER as error:
        if part.count == 1:
            raise
        lines = str(error).strip().splitlines()
        reason = " ".join([line for line in lines if "/job:" in line] or lines[:1])[:300]
        raise Stopped(
            f"another worker of the cluster is gone ({type(error).__name__}: {reason}); start all"
            " of them again with --resume: the run goes on from its last checkpoint",
            1,
        ) from error
