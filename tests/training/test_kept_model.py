"""What a run keeps: the best model is the one that the history speaks of, whatever happens."""

import csv
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

import keras_vit
from training import checkpoint, cli
from training import train as command
from training.config import TrainConfig
from training.data.pipeline import evaluation_dataset
from training.data.preprocess import Preprocess
from training.data.sources import IndexedSplit, open_source
from training.making import class_weights, make_metrics, make_model
from training.run import Run
from training.train import closing_words

TINY = ("--model", "vit_mu4", "--batch-size", "128", "--augment", "none")


def accuracy(run: Run) -> float:
    """Of the saved model on the validation images, computed here."""
    source = open_source("digits", seed=0)
    preprocess = Preprocess.from_dict(run.read_preprocess())
    model, right = run.load_model(), []
    for images, labels in evaluation_dataset(
        source.splits["validation"], preprocess, batch_size=50
    ):
        right.append(np.argmax(model(images), axis=-1) == labels.numpy())
    return float(np.mean(np.concatenate(right)))


@pytest.mark.parametrize(
    "flags",
    [
        ("--ema", "0.95", "--cache"),
        ("--ema", "0.8", "--precision", "float16", "--optimizer", "sgd", "--layer-decay", "0.8"),
    ],
)
def test_the_best_of_the_history_is_the_model_that_is_kept(tmp_path, flags):
    """With averaged weights too: what is validated is what is saved."""
    words = [*TINY, *flags, "--epochs", "3", "--balance", "--output", str(tmp_path / "run")]
    assert cli.main(["train", *words]) == 0
    run = Run.open(tmp_path / "run")
    best = max(float(row["val_accuracy"]) for row in run.read_history())
    assert accuracy(run) == pytest.approx(best, abs=1e-6)
    rows = [float(row["val_accuracy"]) for row in run.read_history()]
    if rows.index(best) == 2:  # the last epoch is the best: its averages are what is kept
        arrays, _ = checkpoint.newest(run.checkpoints_path)
        averages = [array for name, array in arrays.items() if name.endswith("_average")]
        for kept, mean in zip(run.load_model().trainable_variables, averages, strict=True):
            np.testing.assert_array_equal(kept, mean)


def test_ctrl_c_ends_in_one_line_and_leaves_a_whole_run(tmp_path):
    path = tmp_path / "run"
    words = ["train", *TINY, "--epochs", "100000", "--output", str(path)]
    errors = tmp_path / "errors.txt"
    with errors.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "training", *words], stdout=subprocess.DEVNULL, stderr=file
        )
        while not (path / "model.keras").exists() and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130, errors.read_text()
    assert errors.read_text().splitlines()[-1] == (
        f"keras-vit train: stopped, and saved. To go on: keras-vit train --resume --output {path}"
    )
    assert "Traceback" not in errors.read_text()
    assert Run.open(path).load_model().output_shape == (None, 10)


def test_a_run_is_replaced_only_if_asked_and_its_config_does_not_ask(tmp_path, monkeypatch):
    path = tmp_path / "run"
    path.mkdir()
    (path / "config.yaml").write_text("epochs: 1")
    (path / "old.txt").write_text("of the first run")
    words = ["train", *TINY, "--epochs", "1", "--output", str(path)]
    assert cli.main(words) == 2
    assert (path / "old.txt").exists()
    assert cli.main([*words, "--overwrite"]) == 0
    assert not (path / "old.txt").exists()
    config = str(path / "config.yaml")
    assert cli.main(["train", "--config", config, "--output", str(path)]) == 2
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "--config", config]) == 0
    assert Run.open("saved_models/digits-vit_mu4").read_labels() == list("0123456789")


def test_an_existing_folder_is_refused_before_the_data_are_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "open_source", None)
    (tmp_path / "notes.txt").write_text("")
    for flags, message in (
        ([], f"output='{tmp_path}' exists; choose another folder or add --overwrite"),
        (["--overwrite"], f"output='{tmp_path}' is no run folder; it is not overwritten"),
    ):
        assert cli.main(["train", "--output", str(tmp_path), *flags]) == 2
        assert capsys.readouterr().err == f"keras-vit train: {message}\n"


def test_a_class_without_training_images_gets_no_infinite_weight():
    source = open_source("digits", seed=0)
    labels = np.array([0, 0, 0, 2], np.int32)
    source = replace(
        source, class_names=("a", "b", "c"), splits={"train": IndexedSplit(labels, read=None)}
    )
    weights = class_weights(source)
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(weights[labels], [2 / 3, 2 / 3, 2 / 3, 2.0])


@pytest.mark.parametrize("num_classes, names", [(5, ["accuracy"]), (6, ["accuracy", "top5"])])
def test_top_5_is_measured_where_there_are_more_classes(num_classes, names):
    assert [metric.name for metric in make_metrics(num_classes)] == names


def test_the_last_words_name_the_epoch_that_was_kept(tmp_path, capsys):
    """Of equal accuracies the one with the least loss, as `SaveBest` does."""
    run = Run(tmp_path)
    with run.history_path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", "val_accuracy", "val_loss"])
        writer.writerows([[0, 0.5, 0.9], [1, 0.75, 0.8], [2, 0.75, 0.7], [3, 0.75, 0.75]])
    closing_words(run)
    out = capsys.readouterr().out
    assert f"Best validation accuracy 75.00% in epoch 3: {run.model_path}" in out
    assert f"keras-vit evaluate {run.path}" in out
    assert f"keras-vit predict {run.path} IMAGE..." in out


def test_a_warm_up_longer_than_the_run_is_refused(capsys):
    assert cli.main(["train", *TINY, "--epochs", "3", "--warmup-epochs", "4"]) == 2
    line = capsys.readouterr().err
    assert line == "keras-vit train: warmup_epochs=4 must be at most the 3 epochs\n"


def test_settings_of_the_model_reach_it():
    source = open_source("digits", seed=0)
    config = TrainConfig(
        model="vit_xxs4", image_size=(8, 8), dropout=0.1, drop_path=0.2, patch_dropout=0.25
    )
    model = make_model(config, source)
    found = {type(layer).__name__: layer.rate for layer in model.layers if hasattr(layer, "rate")}
    assert found == {"PatchDropout": 0.25, "Dropout": 0.1}
    blocks = [layer for layer in model.layers if layer.name.startswith("block_")]
    assert blocks[-1].get_config()["drop_path"] == pytest.approx(0.2)
    assert (
        model.count_params()
        == keras_vit.create_model(
            "vit_xxs4", image_size=8, in_channels=1, num_classes=10
        ).count_params()
    )
