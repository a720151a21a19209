"""`keras-vit evaluate-transfer`, as a user runs it: real child processes."""

import csv
import json

import pytest

import keras_vit
from keras_vit import create_model
from tests.check_layer import randomise
from training import cli, evaluate_transfer
from training.evaluate_transfer import summary


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "mu.npz"
    model = randomise(create_model("vit_mu4", image_size=8, in_channels=1))
    keras_vit.save_weights(model, path, "google")
    return path


def transfer(capsys, *words):
    status = cli.main(["evaluate-transfer", *map(str, words)])
    return status, capsys.readouterr()


def test_fine_tuning_leaves_runs_and_goes_on_where_it_stopped(
    weights, tmp_path, capsys, monkeypatch
):
    folder = tmp_path / "t"
    words = (weights, "--data", "digits", "--seeds", 2, "--epochs", 1, "--output", folder)
    status, printed = transfer(capsys, *words)
    assert status == 0
    assert (folder / "digits-seed1/model.keras").is_file()
    rows = list(csv.DictReader((folder / "results.csv").open()))
    assert [row["seed"] for row in rows] == ["0", "1"]
    (row,) = json.loads((folder / "transfer.json").read_text())["table"]
    assert row["accuracy"] == pytest.approx(sum(float(r["accuracy"]) for r in rows) / 2)
    assert row["interval"] is not None
    assert f"| digits | {row['num_images']} | 2 | " in printed.out
    called = []
    monkeypatch.setattr(evaluate_transfer, "child", called.append)
    assert transfer(capsys, *words)[0] == 0
    assert called == []
    status, printed = transfer(capsys, *words, "--seeds", 3)
    assert status == 2
    assert "was made with seeds=2, not 3; choose another folder" in printed.err


def test_a_set_that_fails_is_told_and_the_others_are_kept(weights, photos, tmp_path, capsys):
    folder = tmp_path / "t"
    data = ("digits", "folder:/nowhere", f"folder:{photos}")
    words = (weights, "--data", *data, "--method", "knn", "--shots", 2, "--output", folder)
    status, printed = transfer(capsys, *words)
    assert status == 2
    assert "folder:/nowhere: keras-vit evaluate: " in printed.err
    content = json.loads((folder / "transfer.json").read_text())
    assert [row["data"] for row in content["table"]] == [
        "digits",
        f"folder:{photos}",
        "mean of all",
    ]
    assert list(content["failures"]) == ["folder:/nowhere"]
    assert "| folder:/nowhere | failed: " in (folder / "transfer.md").read_text()


def test_the_mean_over_sets_has_an_interval_of_its_own():
    values = {"a": (0.5, 0.7), "b": (0.9, 0.9)}
    rows = [
        {"data": data, "seed": seed, "accuracy": value, "num_images": 10}
        for data, pair in values.items()
        for seed, value in enumerate(pair)
    ]
    *_, last = summary(rows)
    assert last["data"] == "mean of all"
    assert last["accuracy"] == pytest.approx(0.75)
    # Two measurements of the mean: 0.7 and 0.8; t of one degree of freedom is 12.706.
    assert last["interval"] == pytest.approx(12.706 * 0.05, rel=1e-3)


@pytest.mark.parametrize(
    "words, message",
    [
        ("--method finetune --shots 5", "shots needs a method that probes"),
        ("--seeds 0", "seeds=0 must be greater than 0"),
    ],
)
def test_mistakes_are_one_line(words, message, weights, tmp_path, capsys):
    status, printed = transfer(capsys, weights, *words.split(), "--output", tmp_path / "t")
    assert status == 2
    assert message in printed.err
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("text, data", [("[a, b]", ("a", "b")), ("vtab", ("vtab",))])
def test_a_yaml_file_may_name_many_sets(text, data, tmp_path):
    (tmp_path / "t.yaml").write_text(f"data: {text}\nseeds: 2\n")
    words = ["evaluate-transfer", "w.npz", "--config", str(tmp_path / "t.yaml")]
    config = cli.parse(words)[1]
    assert (config.weights, config.data, config.seeds) == ("w.npz", data, 2)


def test_a_folder_of_something_else_is_left_alone(weights, tmp_path, capsys):
    (tmp_path / "precious").write_text("x")
    status, printed = transfer(capsys, weights, "--output", tmp_path)
    assert status == 2
    assert "is not empty, and no transfer experiment" in printed.err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
