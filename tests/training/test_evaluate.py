"""`keras-vit evaluate` as a user runs it, and each mistake with its message."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics
import tensorflow as tf
from PIL import Image

from training import cli
from training.data.pipeline import evaluation_dataset
from training.data.preprocess import Preprocess
from training.data.sources import open_source
from training.evaluate import score, with_run_labels
from training.run import Run


def evaluate(run, *words) -> dict:
    assert cli.main(["evaluate", str(run), *map(str, words)]) == 0
    return json.loads((run / "metrics.json").read_text())


def refused(capsys, *words) -> str:
    """The last line that a wrong command ends with."""
    capsys.readouterr()
    assert cli.main(["evaluate", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()[-1]


@pytest.fixture
def run(tiny_run, tmp_path) -> Path:
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


@pytest.fixture
def flower_run(photo_run, tmp_path) -> Path:
    return Path(shutil.copytree(photo_run, tmp_path / "run"))


def test_figures_equal_scikit_learn_on_the_model_s_answers(run):
    scores = evaluate(run, "--batch-size", 100)
    split = open_source("digits", seed=0).splits["test"]
    preprocess = Preprocess.from_dict(Run(run).read_preprocess())
    dataset = evaluation_dataset(split, preprocess, batch_size=1000)
    logits = Run(run).load_model().predict(dataset.map(lambda images, _: images), verbose=0)
    predicted = logits.argmax(axis=1)

    assert scores["data"] == "digits" and scores["split"] == "test"
    assert scores["num_images"] == len(split.labels) == sum(map(sum, scores["confusion_matrix"]))
    assert scores["top1"] == pytest.approx(np.mean(predicted == split.labels))
    top5 = sklearn.metrics.top_k_accuracy_score(split.labels, logits, k=5, labels=range(10))
    assert scores["top5"] == pytest.approx(top5)
    expected = sklearn.metrics.confusion_matrix(split.labels, predicted)
    np.testing.assert_array_equal(scores["confusion_matrix"], expected)
    powers = np.exp(logits.astype(np.float64))
    loss = sklearn.metrics.log_loss(split.labels, powers / powers.sum(axis=1, keepdims=True))
    assert scores["loss"] == pytest.approx(loss, rel=1e-5)
    assert [row["class"] for row in scores["per_class"]] == [str(i) for i in range(10)]
    assert scores["images_per_second"] > 0


def test_the_picture_and_the_tables(run, capsys):
    evaluate(run, "--split", "validation")
    text = capsys.readouterr().out
    for words in ("validation of digits", "top-1 accuracy", "Weakest classes", "metrics.json"):
        assert words in text
    with Image.open(run / "confusion_matrix.png") as image:
        assert image.format == "PNG" and min(image.size) > 500
    assert not list(run.glob(".*"))  # nothing half written


@pytest.mark.parametrize("split, count", [("train", 1151), ("validation", 287), ("all", 1797)])
def test_each_split(run, split, count):
    scores = evaluate(run, "--split", split)
    assert scores["split"] == split
    assert scores["num_images"] == pytest.approx(count, abs=3)


def test_validation_repeats_what_training_saw(run):
    """The accuracy that `train` chose the model by."""
    best = max(float(row["val_accuracy"]) for row in Run(run).read_history())
    assert evaluate(run, "--split", "validation")["top1"] == pytest.approx(best)


def test_figures_that_do_not_exist_are_null():
    logits = np.eye(4, dtype=np.float32)[[0, 0, 1]]
    scores = score(logits, np.array([0, 1, 1]), ["a", "b", "c", "d"])
    assert json.loads(json.dumps(scores, allow_nan=False)) == scores
    nothing = {"class": "c", "precision": None, "recall": None, "f1": None, "support": 0}
    assert scores["per_class"][2] == nothing
    assert scores["recall"] == 0.75 and scores["precision"] == 0.75  # of those that have one
    assert "top5" not in scores


def test_metrics_json_is_readable_by_people_too(run):
    evaluate(run)
    lines = (run / "metrics.json").read_text().splitlines()
    assert len(lines) < 50 and max(map(len, lines)) < 200


# Other images


def test_new_photos_are_all_measured_and_classes_go_by_name(flower_run, photos, tmp_path, capsys):
    """Class order differs, one class is missing, and no split is lost."""
    new = tmp_path / "new"
    shutil.copytree(photos / "train/tulip", new / "tulip")
    shutil.copytree(photos / "train/rose", new / "rose")
    (new / "rose/broken.jpg").write_text("no image")
    (flower_run / "config.yaml").write_text(
        (flower_run / "config.yaml").read_text().replace("max_skipped: 0.05", "max_skipped: 0.2")
    )
    scores = evaluate(flower_run, "--data", f"folder:{new}")
    err = capsys.readouterr().err
    assert scores["split"] == "all" and scores["num_images"] == 12
    assert [row["support"] for row in scores["per_class"]] == [0, 6, 6]  # daisy, rose, tulip
    assert "Without images: daisy" in err
    assert "1 of 13 files" in err and "rose/broken.jpg (not an image)" in err
    some = evaluate(flower_run, "--data", f"folder:{new}", "--split", "validation")
    assert some["num_images"] == 2


def test_new_data_with_a_validation_split_of_their_own(flower_run, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "other")
    shutil.copy(tmp_path / "other/val/rose/../tulip/Portrait_6.jpg", tmp_path / "other/train/rose")
    scores = evaluate(flower_run, "--data", f"folder:{tmp_path / 'other'}")
    assert scores["split"] == "validation" and scores["num_images"] == 8


def test_the_run_s_own_images_by_another_path_are_no_new_ones(photos, tmp_path, capsys):
    shutil.copytree(photos / "train", tmp_path / "here")
    flags = ["--model", "vit_mu16", "--image-size", "16", "--epochs", "1", "--augment", "none"]
    run = tmp_path / "run"
    data = f"folder:{tmp_path / 'here'}"
    assert cli.main(["train", "--data", data, *flags, "--output", str(run)]) == 0
    (tmp_path / "here").rename(tmp_path / "there")
    scores = evaluate(run, "--data", f"folder:{tmp_path / 'there'}")
    assert scores["split"] == "validation"
    assert "does not exist" in refused(capsys, run)

    (tmp_path / "there").rename(tmp_path / "here")
    shutil.copy(photos / "val/tulip/Portrait_6.jpg", tmp_path / "here/tulip")
    capsys.readouterr()
    assert evaluate(run)["split"] == "validation"
    assert f"Warning: {data} has changed since the run was trained" in capsys.readouterr().err


def test_labels_of_a_stream_go_by_name_too():
    from training.data.sources import StreamSplit

    labels = tf.data.Dataset.from_tensor_slices([0, 1, 1, 0])
    split = StreamSplit(4, lambda seed: labels.map(lambda label: (b"", label)))
    (same,) = with_run_labels([split], ("b", "a"), ["a", "x", "b"])
    assert [int(label) for _, label in same.open(None)] == [2, 0, 0, 2]


def test_gray_pixels_for_a_colour_model(flower_run, tmp_path):
    """sign_digits and digits share their class names: 8 x 8 gray arrays go into an RGB model."""
    run = Run(flower_run)
    run.write_labels(["0", "1", "2"])
    source = open_source("digits", seed=0)
    preprocess = Preprocess.from_dict(run.read_preprocess())
    images, _ = next(iter(evaluation_dataset(source.splits["test"], preprocess, batch_size=4)))
    assert images.shape == (4, 48, 32, 3)


# ImageNet-ReaL


def real_file(path: Path, lists) -> Path:
    path.write_text(json.dumps(lists))
    return path


def test_real_score_in_file_order(run, tmp_path):
    labels = open_source("digits", seed=0).splits["test"].labels.tolist()
    lists = [[label] if i % 3 else [] for i, label in enumerate(labels)]
    scores = evaluate(run, "--real-labels", real_file(tmp_path / "real.json", lists))
    assert 0 <= scores["real"] <= 1
    generous = [sorted({label, *range(10)}) for label in labels]
    scores = evaluate(run, "--real-labels", real_file(tmp_path / "real.json", generous))
    assert scores["real"] == 1


def test_real_score_by_imagenet_s_file_names(flower_run, photos, tmp_path):
    """A folder's order is by class; the lists' order is by the number in the name."""
    root, lists = tmp_path / "imagenet", [[0]] * 50
    for number, path in enumerate(sorted((photos / "val").glob("*/*.jpg"))):
        label = ("daisy", "rose", "tulip").index(path.parent.name)
        place = 7 * number % 50
        lists[place] = [label]
        folder = root / path.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / f"ILSVRC2012_val_{place + 1:08}.JPEG")
    flags = ("--data", f"folder:{root}", "--split", "all", "--real-labels", tmp_path / "real.json")
    real_file(tmp_path / "real.json", lists)
    scores = evaluate(flower_run, *flags)
    assert scores["real"] == scores["top1"]


def test_wrong_real_labels_are_refused(run, tmp_path, capsys):
    labels = open_source("digits", seed=0).splits["test"].labels.tolist()
    path = tmp_path / "real.json"

    def message(lists) -> str:
        return refused(capsys, run, "--real-labels", real_file(path, lists))

    assert "has 3 lists for 359 images" in message([[1]] * 3)
    assert "must be a list of lists" in message({"a": [1]})
    assert "has the class 10, the run 10" in message([[10]] * 359)
    assert "no label for any of the images" in message([[]] * 359)
    assert "only 0.0% of the images" in message([[(label + 1) % 10] for label in labels])
    path.write_text("[")
    assert "is no JSON" in refused(capsys, run, "--real-labels", path)
    assert "No such file" in refused(capsys, run, "--real-labels", tmp_path / "nowhere.json")


# Mistakes


def test_mistakes_end_in_one_line_and_lose_nothing(run, photos, tmp_path, capsys):
    evaluate(run)
    before = (run / "metrics.json").read_bytes()
    wrong = refused(capsys, run, "--data", f"folder:{photos}")
    assert "class 'daisy' of the data is unknown to the run: 0, 1, 2" in wrong
    assert "does not exist" in refused(capsys, tmp_path / "nowhere")
    assert "is no finished run" in refused(capsys, tmp_path)
    assert "data='photos' must be" in refused(capsys, run, "--data", "photos")
    assert "'tset' must be one of train" in refused(capsys, run, "--split", "tset")
    assert "batch_size=0 must be" in refused(capsys, run, "--batch-size", "0")
    assert (run / "metrics.json").read_bytes() == before


def test_a_split_that_the_data_lack(flower_run, capsys):
    assert refused(capsys, flower_run, "--split", "test").endswith(
        "split=test is not in the data; there are train, validation and all"
    )


def test_a_model_that_answers_nan_gets_no_score(run, capsys):
    model = Run(run).load_model()
    model.get_layer("head").set_weights(
        [np.full_like(value, np.nan) for value in model.get_layer("head").get_weights()]
    )
    model.save(run / "model.keras")
    assert "not finite for 359 of 359 images" in refused(capsys, run)
    assert not (run / "metrics.json").exists()
