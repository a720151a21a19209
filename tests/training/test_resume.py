"""Runs that end before their time and go on: whole commands, as a user types them."""

import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.kills import same
from training import checkpoint, cli
from training import train as command
from training.callbacks import Checkpoints
from training.run import Run

TINY = (
    *("--data", "digits", "--model", "vit_mu4", "--batch-size", "128", "--epochs", "3"),
    *("--dropout", "0.1", "--drop-path", "0.1", "--mixup", "0.2", "--ema", "0.9"),
)


def train(path, *words) -> int:
    return cli.main(["train", *words, "--output", str(path)])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "whole"
    assert train(path, *TINY) == 0
    return path


@pytest.mark.parametrize(("epoch", "step"), [(0, 1), (1, 5), (2, 9)])
def test_a_run_that_was_stopped_anywhere_ends_as_if_it_was_not(
    whole, tmp_path, monkeypatch, capsys, epoch, step
):
    def ask(self, batch, logs=None):
        if (self.epoch, batch + 1) == (epoch, step):
            self.signals.received = signal.SIGTERM
        original(self, batch, logs)

    original = Checkpoints.on_train_batch_begin
    monkeypatch.setattr(Checkpoints, "on_train_batch_begin", ask)
    path = tmp_path / "run"
    assert train(path, *TINY) == 143
    assert f"To go on: keras-vit train --resume --output {path}" in capsys.readouterr().err
    monkeypatch.undo()
    assert train(path, "--resume") == 0
    assert f"after step {9 * epoch + step}" in capsys.readouterr().out
    assert same(whole, path)


def test_a_killed_run_goes_on_on_another_number_of_devices(whole, tmp_path, monkeypatch):
    """In its own process: bit for bit on one device, equal to the last digits on two."""
    path = tmp_path / "run"
    command = [sys.executable, "-m", "training", "train", *TINY, "--checkpoint-every", "2"]
    process = subprocess.Popen(
        [*command, "--output", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not list(path.glob("checkpoints/step_*")) and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    other = tmp_path / "other"
    shutil.copytree(path, other)
    assert train(path, "--resume") == 0
    assert same(whole, path)
    no_masks = ("--strategy", "mirrored", "--devices", "2")
    assert train(other, "--resume", *no_masks) == 0
    losses = [float(Run(p).read_history()[0]["val_loss"]) for p in (path, other)]
    assert losses[0] == pytest.approx(losses[1], abs=0.2)  # masks are other ones


def test_a_finished_run_is_left_alone(whole, tmp_path, capsys):
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    assert train(path, "--resume") == 0
    assert "Best validation accuracy" in capsys.readouterr().out
    assert same(whole, path)


def test_resume_without_a_run_begins_one(tmp_path):
    path = tmp_path / "run"
    (path / "checkpoints").mkdir(parents=True)  # what a kill in the first moment leaves
    assert train(path, *TINY, "--epochs", "1", "--resume") == 0
    assert len(Run(path).read_history()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--batch-size", "64"), "batch_size was 128 in .* and is 64 now"),
        (("--model", "vit_mu2"), "model was vit_mu4 in .* and is vit_mu2 now"),
        (("--epochs", "9"), "epochs was 3 in .* and is 9 now"),
        (("--validation-fraction", "0.3"), "validation_fraction was 0.2 in .* and is 0.3 now"),
    ],
)
def test_another_run_is_refused_and_the_difference_named(whole, capsys, words, message):
    before = sorted(whole.rglob("*"))
    assert train(whole, "--resume", *words) == 2
    error = capsys.readouterr().err
    assert re.search(message, error) and "--resume-weights-only" in error
    assert len(error.splitlines()) == 1
    assert sorted(whole.rglob("*")) == before


def test_other_images_and_other_classes_are_refused(tmp_path, shared, capsys):
    photos = tmp_path / "photos"
    for name in ("a", "b"):
        (photos / name).mkdir(parents=True)
        for file in sorted((shared / "data/cifar10_subset/train/cat").glob("*.jpg"))[:8]:
            shutil.copy(file, photos / name / f"{name}{file.name}")
    path = tmp_path / "run"
    words = ("--data", f"folder:{photos}", "--model", "vit_mu8", "--epochs", "1")
    assert train(path, *words) == 0
    next((photos / "a").iterdir()).unlink()
    assert train(path, "--resume") == 2
    assert "data_fingerprint was" in capsys.readouterr().err


def test_weights_only_begins_again_with_other_settings(whole, tmp_path, capsys):
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    start = checkpoint.newest(path / "checkpoints")[0]
    words = [word if word != "3" else "1" for word in TINY]
    assert train(path, *words, "--batch-size", "64", "--resume-weights-only") == 0
    assert "from the run's last checkpoint" in capsys.readouterr().out
    assert (path / "checkpoints/before.npz").exists()
    assert Run(path).read_config()["batch_size"] == 64
    end = checkpoint.newest(path / "checkpoints")[0]
    assert (start["optimizer/0/iteration"], end["optimizer/0/iteration"]) == (27, 18)
    assert len(Run(path).read_history()) == 1


def spoil(monkeypatch, bad: int) -> None:
    """Make the images of one batch no numbers."""
    original = command.training_dataset

    def spoilt(*args, entry, **settings):
        numbers = entry.numbers()
        return tf.data.Dataset.zip(numbers, original(*args, entry=entry, **settings)).map(
            lambda number, batch: (
                tf.where(number == bad, np.nan, batch[0]),
                *batch[1:],
            )
        )

    monkeypatch.setattr(command, "training_dataset", spoilt)


def test_a_bad_batch_is_left_out_on_rollback(tmp_path, monkeypatch, capsys):
    spoil(monkeypatch, 12)
    path = tmp_path / "run"
    assert train(path, *TINY) == 2
    assert "the loss was not finite at step 12" in capsys.readouterr().err
    assert checkpoint.newest(path / "checkpoints")[1]["epoch"] == 1  # the last good one
    assert train(path, "--resume", "--on-nan", "rollback") == 0
    assert "Rolled back to step 9, without batch 12" in capsys.readouterr().out
    assert checkpoint.newest(path / "checkpoints")[1]["left_out"] == [12]
    assert len(Run(path).read_history()) == 3


def test_a_new_run_can_roll_back_to_its_start(tmp_path, monkeypatch, capsys):
    spoil(monkeypatch, 3)
    path = tmp_path / "run"
    assert train(path, *TINY, "--on-nan", "rollback") == 0
    assert "Rolled back to step 0, without batch 3" in capsys.readouterr().out
    assert checkpoint.newest(path / "checkpoints")[1]["left_out"] == [3]


def test_resume_empties_no_folder_of_other_files(tmp_path, capsys):
    (tmp_path / ".env").write_text("a secret")
    assert train(tmp_path, *TINY, "--resume") == 2
    assert "exists; choose another folder" in capsys.readouterr().err
    assert (tmp_path / ".env").read_text() == "a secret"
