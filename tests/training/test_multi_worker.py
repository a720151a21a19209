"""Two real processes on loopback: the run of one device, and no run lost with a worker."""

import re
import subprocess
import sys

import pytest

from benchmarks.kills import same
from benchmarks.workers import cluster, command, finish, kill_one, listen
from training.run import Run

SHORT = ("--epochs", "2")

# `fit` of Keras alone, on two workers; argv: task, hosts.
PLAIN_KERAS = """
import json, os, sys
hosts = sys.argv[2].split(",")
task = {"type": "worker", "index": int(sys.argv[1])}
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": hosts}, "task": task})
import keras, numpy as np, tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
dataset = tf.data.Dataset.from_tensors((np.ones((4, 3)), np.ones((4, 1)))).repeat()
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
model.fit(dataset.with_options(options), steps_per_epoch=2, epochs=1, verbose=0)
"""


def run_alone(path):
    from training import cli

    assert cli.main([*command(path), *SHORT]) == 0
    return path


def rows(path):
    columns = ("loss", "accuracy", "val_loss", "val_accuracy")
    return [[float(row[name]) for name in columns] for row in Run(path).read_history()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    path = tmp_path_factory.mktemp("workers") / "run"
    finish(cluster([*command(path), *SHORT]))
    return path


def test_two_workers_are_one_device(undisturbed, tmp_path):
    """The last batch of the validation has one image: worker 0's, worker 1 has only filling."""
    alone = rows(run_alone(tmp_path / "alone"))
    for one, other in zip(alone, rows(undisturbed), strict=True):
        assert other == pytest.approx(one, abs=1e-5)
    assert len(list((undisturbed / "logs").rglob("events.out.tfevents.*"))) == 2  # the chief's


def test_a_dead_worker_ends_the_other_and_a_restart_goes_on(undisturbed, tmp_path):
    words = [*command(tmp_path / "run"), *SHORT]
    seconds, message = kill_one(words, victim=1, call=12)
    assert seconds < 60
    assert re.match(r"keras-vit train: another worker of the cluster is gone .*task:1.*", message)
    assert "start all of them again with --resume" in message
    finish(cluster([*words, "--resume"]))
    assert same(undisturbed, tmp_path / "run")


def test_keras_still_needs_replicated_model():
    """When this fails, `training/multi_worker.py` may no longer be needed: keras#20585."""
    import socket

    with socket.socket() as one, socket.socket() as other:
        hosts = ",".join(f"127.0.0.1:{listen(free)}" for free in (one, other))
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", PLAIN_KERAS, str(task), hosts],
            stderr=subprocess.PIPE,
            text=True,
        )
        for task in range(2)
    ]
    errors = [worker.communicate(timeout=120)[1] for worker in workers]
    assert all(worker.returncode for worker in workers), (
        "Keras's own fit works: drop the workaround"
    )
    assert any("PerReplica" in error for error in errors)
