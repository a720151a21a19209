"""From a trainer to the arrays of a checkpoint and back, bit for bit."""

import re

import keras
import numpy as np
import yaml

from keras_vit.config import UserError
from training.run import Run

# May differ between the first and the second half of a run without changing its numbers.
FREE = ("checkpoint_every", "keep_checkpoints", "on_nan", "cache", "max_skipped", "data_dir")
FREE += ("peak_tflops", "tensorboard_images", "tensorboard_histograms", "wandb", "mlflow")


def check_same_run(run: Run, settings: dict, facts: dict, class_names) -> None:
    """Raises: UserError: names the first thing in which the run to go on with differs."""
    old = run.read_config()
    old_facts = old.pop("made_with")
    compared = [(name, old.get(name), settings[name]) for name in settings if name not in FREE]
    for name in ("data_fingerprint", "weights_sha256", "teacher_sha256"):
        compared.append((name, old_facts.get(name), facts.get(name)))
    for name, then, now in compared:
        now = yaml.safe_load(yaml.safe_dump(now))  # as it would have been written
        if then != now:
            raise UserError(
                f"{name} was {then} in {run.path} and is {now} now; leave it as it was, or begin"
                " again from the weights with --resume-weights-only"
            )
    names = run.read_labels()
    if names != list(class_names):
        raise UserError(
            f"the classes of {run.path} were {', '.join(names[:10])} and are"
            f" {', '.join(list(class_names)[:10])} now; --resume-weights-only begins again"
        )


def variables_of(trainer) -> dict:
    """Weights, random state, optimizer, averages, loss scale: by names of their place and path."""
    kinds = {"weights": trainer.variables, "optimizer": trainer.optimizer.variables}
    return {
        f"{kind}/{number}/{place_of(variable, kind)}": variable
        for kind, variables in kinds.items()
        for number, variable in enumerate(variables)
    }


def place_of(variable, kind: str) -> str:
    """Its path, without the numbers that Keras gives to what is made twice in one process."""
    path = variable.path if kind == "weights" else variable.path.split("/", 1)[-1]
    return re.sub(r"(seed_generator)_\d+", r"\1", path)


def as_arrays(variables: dict) -> dict[str, np.ndarray]:
    """Their values."""
    return {name: keras.ops.convert_to_numpy(value) for name, value in variables.items()}


def restore(trainer, arrays: dict[str, np.ndarray]) -> None:
    """The state of the checkpoint, but for the metrics.

    Raises: UserError: it is another model's or optimizer's.
    """
    variables = variables_of(trainer)
    saved = {name: a for name, a in arrays.items() if not name.startswith("metrics/")}
    for name in [*variables, *saved]:
        ours = tuple(variables[name].shape) if name in variables else "nothing"
        theirs = saved[name].shape if name in saved else "nothing"
        if ours != theirs:
            raise UserError(f"the checkpoint has {theirs} for {name}, this run {ours}")
    for name, variable in variables.items():
        variable.assign(saved[name])


def restore_weights(trainer, arrays: dict[str, np.ndarray]) -> list[str]:
    """Only the weights that fit, by path and shape; returns the paths of those that did not."""
    saved = {
        name.split("/", 2)[2]: array
        for name, array in arrays.items()
        if name.startswith("weights/")
    }
    missing = []
    for variable in trainer.variables:
        place = place_of(variable, "weights")
        if place in saved and saved[place].shape == tuple(variable.shape):
            variable.assign(saved[place])
        else:
            missing.append(place)
    return missing


def metrics_of(trainer) -> dict[str, np.ndarray]:
    """Each variable of each metric as every replica has it, `(replicas, ...)`.

    Under several workers all of them must call it.
    """
    return {f"metrics/{n}": value.numpy() for n, value in enumerate(trainer.gather_metrics())}


def restore_metrics(trainer, arrays: dict[str, np.ndarray]) -> None:
    """As they were, replica by replica; of another number of replicas all go to the first."""
    replicas = trainer.distribute_strategy.num_replicas_in_sync
    values = []
    for number in range(len(trainer.metrics_variables)):
        value = arrays[f"metrics/{number}"]
        if len(value) != replicas:
            rest = np.zeros((replicas - 1, *value.shape[1:]), value.dtype)
            value = np.concatenate([value.sum(axis=0, keepdims=True), rest])
        values.append(value)
    trainer.assign_metrics(values)
