"""`keras-vit features` and `keras-vit evaluate --probe`, as a user runs them."""

import json

import numpy as np
import pytest

import keras_vit
from keras_vit import create_model
from tests.check_layer import randomise
from training import cli
from training.run import Run


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A tiny random model in the google layout."""
    path = tmp_path_factory.mktemp("weights") / "mu.npz"
    keras_vit.save_weights(randomise(create_model("vit_mu8", image_size=32)), path, "google")
    return path


def run(capsys, *words):
    status = cli.main([str(word) for word in words])
    return status, capsys.readouterr()


def test_features_of_a_run(tiny_run, tmp_path, capsys):
    path = tmp_path / "f.npz"
    status, printed = run(capsys, "features", tiny_run, "--output", path)
    assert status == 0
    assert "32 features of 1797 images (" in printed.out
    content = np.load(path)
    assert content["features"].shape == (1797, 32)
    assert content["features"].dtype == np.float32
    assert content["class_names"].tolist() == Run.open(tiny_run).read_labels()
    assert set(content["splits"]) == {"train", "validation", "test"}
    assert set(content["files"]) == {""}
    # What was written classifies as the run itself does.
    model = Run.open(tiny_run).load_model()
    chosen = content["splits"] == "test"
    logits = model.get_layer("head")(content["features"][chosen]).numpy()
    accuracy = (logits.argmax(1) == content["labels"][chosen]).mean()
    assert run(capsys, "evaluate", tiny_run)[0] == 0
    scores = json.loads((tiny_run / "metrics.json").read_text())
    assert accuracy == pytest.approx(scores["top1"])


def test_features_of_photos_name_their_files(weights, photos, tmp_path, capsys):
    path = tmp_path / "f.npz"
    words = ("features", weights, "--data", f"folder:{photos}", "--output", path)
    assert run(capsys, *words)[0] == 0
    content = np.load(path)
    assert len(content["files"]) == len(content["features"]) == len(content["labels"])
    assert all(str(name).endswith(".jpg") for name in content["files"])
    before = path.read_bytes()
    status, printed = run(capsys, *words)
    assert status == 2
    assert "exists; choose another or add --overwrite" in printed.err
    assert path.read_bytes() == before


@pytest.mark.parametrize("probe", ["linear", "knn", "least-squares"])
def test_a_probe_of_weights(probe, weights, photos, capsys):
    words = ("evaluate", weights, "--data", f"folder:{photos}", "--probe", probe, "--shots", 2)
    status, printed = run(capsys, *words)
    assert status == 0
    assert f"{probe} probe, 2 images a class: " in printed.out
    assert "±" in printed.out
    status, printed = run(capsys, *words, "--json", "--seeds", 2)
    result = json.loads(printed.out.strip().splitlines()[-1])
    assert len(result["accuracies"]) == 2
    assert result["accuracy"] == pytest.approx(np.mean(result["accuracies"]))
    assert result["split"] == "validation"
    assert result["num_images"] == 8


def test_a_probe_of_a_run_is_kept_in_it(tiny_run, capsys):
    status, printed = run(capsys, "evaluate", tiny_run, "--probe", "knn")
    assert status == 0
    assert "knn probe, all training images: " in printed.out
    result = json.loads((tiny_run / "probe.json").read_text())
    assert (result["split"], result["data"], result["shots"]) == ("test", "digits", None)
    assert result["accuracy"] > 0.3


@pytest.mark.parametrize(
    "words, message",
    [
        ("evaluate {weights} --probe knn", "data: name the images, like --data folder:PATH"),
        ("features {weights}", "data: name the images, like --data folder:PATH"),
        ("evaluate {weights}", "run folder '{weights}' does not exist"),
        ("evaluate {run} --shots 3", "shots, image_size and json need --probe"),
        ("evaluate {run} --probe knn --split train", "the probe learns from train; measure on"),
        ("evaluate {run} --probe knn --shots 1000", "shots=1000: class number 0 has only"),
        ("features {run} --output no/where.npz", "output='no/where.npz': its folder does not"),
        ("features {run} --image-size 16", "image_size cannot be changed for a run"),
    ],
)
def test_mistakes_are_one_line(words, message, weights, tiny_run, capsys):
    names = {"weights": weights, "run": tiny_run}
    status, printed = run(capsys, *words.format(**names).split())
    assert status == 2
    assert message.format(**names) in printed.err
    assert printed.err.count("\n") == 1
