"""What happens beside the steps: saving and stopping."""

import signal

import keras
import numpy as np

from keras_vit.config import UserError
from training import checkpoint
from training.averaging import averaged
from training.resume import as_arrays, metrics_of, restore_metrics, variables_of
from training.run import Run
from training.signals import Signals, Stopped


class NonFiniteLoss(UserError):
    """The loss of `step` (from 0) was not finite."""

    def __init__(self, step: int, message: str):
        super().__init__(message)
        self.step = step


class History(keras.callbacks.Callback):
    """history.csv, a row an epoch, written whole each time."""

    def __init__(self, run: Run, writes: bool = True):
        super().__init__()
        self.run, self.writes = run, writes
        self.rows = []

    def on_epoch_end(self, epoch, logs=None):
        self.rows.append({"epoch": epoch, **{name: float(v) for name, v in logs.items()}})
        if self.writes:
            self.run.write_history(self.rows)

    def get_state(self) -> list[dict]:
        return self.rows

    def set_state(self, state: list[dict]) -> None:
        self.rows = list(state)


class SaveBest(keras.callbacks.Callback):
    """Keeps the model with the best validation accuracy (of equal ones the least loss).

    What is saved is the bare model, without optimizer, its weights averaged where they are:
    `keras.saving.load_model` opens it with nothing but `keras_vit` imported.
    """

    def __init__(self, run: Run, writes: bool = True):
        super().__init__()
        self.run, self.writes = run, writes
        self.best = (-np.inf, -np.inf)

    def on_epoch_end(self, epoch, logs=None):
        score = (logs["val_accuracy"], -logs["val_loss"])
        if score > self.best:
            self.best = score
            if self.writes:
                with averaged(self.model):
                    self.run.save_model(bare(self.model), self.run.model_path)

    def get_state(self) -> dict:
        return {"best": list(self.best)}

    def set_state(self, state: dict) -> None:
        self.best = tuple(state["best"])


class EarlyStopping(keras.callbacks.EarlyStopping):
    """Keras's, whose count a checkpoint keeps."""

    FIELDS = ("wait", "stopped_epoch", "best", "best_epoch")

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self.__dict__.update(getattr(self, "restored", {}))

    def get_state(self) -> dict:
        values = {name: getattr(self, name) for name in self.FIELDS}
        return values | {"best": None if self.best is None else float(self.best)}

    def set_state(self, state: dict) -> None:
        self.restored = state


class Checkpoints(keras.callbacks.Callback):
    """Saves the state after each epoch, every so many steps and when asked to stop; ends a run.

    Put it last, so that it saves what the others have become.

    Args:
        run: whose checkpoints.
        config: `TrainConfig`: checkpoint_every, keep_checkpoints.
        part: this worker's; the first one writes.
        signals: ask to stop.
        left_out: numbers of the batches that never come.
        others: callbacks with `get_state` and `set_state`, by name.
    """

    def __init__(self, run: Run, config, part, signals: Signals, left_out, others: dict):
        super().__init__()
        self.run, self.config, self.part, self.signals = run, config, part, signals
        self.left_out, self.others = list(left_out), others
        self.resumed = False
        self.metrics = None  # of the epoch that a checkpoint broke off

    def set_state(self, arrays: dict, facts: dict) -> None:
        """Go on from a checkpoint."""
        self.resumed = True
        self.metrics = arrays if facts["steps"] else None
        for name, other in self.others.items():
            if name in facts["callbacks"]:
                other.set_state(facts["callbacks"][name])

    def on_train_begin(self, logs=None):
        if self.config.on_nan == "rollback" and not self.resumed:
            self.save(0, 0)  # somewhere to go back to

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        if self.metrics is not None:
            restore_metrics(self.model, self.metrics)
            self.metrics = None

    def on_train_batch_begin(self, batch, logs=None):
        if self.signals.received is not None:
            self.model.wish.assign(1.0)

    def on_train_batch_end(self, batch, logs=None):
        if self.model.replayed:
            return
        self.check_loss()
        done = batch + 1
        if float(self.model.agreed.numpy()) > 0:  # all workers see it after the same step
            self.save(self.epoch, done)
            self.stop()
        every = self.config.checkpoint_every
        if every and done < self.params["steps"]:
            step = self.epoch * self.params["steps"] + done
            if step // every > (step - self.model.steps_per_execution) // every:
                self.save(self.epoch, done)

    def on_test_begin(self, logs=None):
        self.metrics_of_training = metrics_of(self.model)  # validation starts them anew

    def on_test_batch_end(self, batch, logs=None):
        # Several workers must agree first, which they do in the next step.
        if self.signals.received is not None and self.part.count == 1:
            with averaged(self.model):  # validation has swapped the averages in: back
                arrays = variables_of(self.model) | self.metrics_of_training
                self.write(self.epoch, self.params["steps"], arrays)
            self.stop()

    def on_epoch_end(self, epoch, logs=None):
        self.save(epoch + 1, 0)
        goes_on = epoch + 1 < self.params["epochs"] and not self.model.stop_training
        if self.signals.received is not None and self.part.count == 1 and goes_on:
            self.stop()

    def check_loss(self) -> None:
        bad = int(self.model.bad_step.numpy())
        if bad >= 0:
            old = checkpoint.checkpoints(self.run.checkpoints_path)
            kept = f"{old[-1]} is the state before" if old else "no checkpoint was saved yet"
            raise NonFiniteLoss(
                bad,
                f"the loss was not finite at step {bad}; a smaller --learning-rate, a longer"
                f" --warmup-epochs, --precision float32 or --on-nan rollback may help; {kept}",
            )

    def save(self, epoch: int, steps: int) -> None:
        # All workers read the metrics together, one writes.
        self.write(epoch, steps, variables_of(self.model) | metrics_of(self.model))

    def write(self, epoch: int, steps: int, arrays: dict) -> None:
        if self.part.index > 0:
            return
        facts = {
            "epoch": epoch,
            "steps": steps,
            "left_out": self.left_out,
            "callbacks": {name: other.get_state() for name, other in self.others.items()},
            "finished": epoch == self.params["epochs"] or self.model.stop_training,
        }
        step = epoch * self.params["steps"] + steps
        folder = self.run.checkpoints_path
        checkpoint.save(folder, step, as_arrays(arrays), facts, self.config.keep_checkpoints)

    def stop(self) -> None:
        raise Stopped(
            f"stopped, and saved. To go on: keras-vit train --resume --output {self.run.path}",
            128 + (self.signals.received or signal.SIGTERM),
        )


def bare(model):
    """The same layers and weights as a model that was never compiled."""
    return keras.Model(model.inputs, model.outputs, name=model.name)
