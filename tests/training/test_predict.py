"""`keras-vit predict` as a user runs it, and each mistake with its message."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from training import cli
from training.data.pipeline import evaluation_dataset
from training.data.preprocess import Preprocess
from training.data.sources import open_source
from training.predict import file_dataset, find_images
from training.run import Run

ROOT = Path(__file__).resolve().parents[2]
PHOTO_FLAGS = ("--model", "vit_mu16", "--image-size", "48x32")  # as `photo_run`


def predict_json(capsys, *words) -> tuple[int, list[dict], str]:
    capsys.readouterr()
    status = cli.main(["predict", *map(str, words), "--json"])
    out, err = capsys.readouterr()
    return status, json.loads(out), err


def refused(capsys, *words) -> str:
    """The one line that a wrong command ends with."""
    capsys.readouterr()
    assert cli.main(["predict", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


@pytest.fixture
def image(tmp_path) -> Path:
    path = tmp_path / "an image [1].png"
    Image.new("L", (20, 30), 90).save(path)
    return path


def test_json_for_programs(tiny_run, image, capsys):
    status, rows, _ = predict_json(capsys, tiny_run, image, "--top", 3)
    assert status == 0
    (row,) = rows
    assert row["file"] == str(image)
    scores = [best["score"] for best in row["predictions"]]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    labels = Run.open(tiny_run).read_labels()
    for best in row["predictions"]:
        assert set(best) == {"class", "index", "score"}
        assert labels[best["index"]] == best["class"]


def test_more_classes_than_there_are_means_all(tiny_run, image, capsys):
    _, rows, _ = predict_json(capsys, tiny_run, image, "--top", 1000)
    scores = [best["score"] for best in rows[0]["predictions"]]
    assert len(scores) == 10
    assert sum(scores) == pytest.approx(1, abs=1e-5)


def test_a_table_for_people(tiny_run, image, capsys):
    assert cli.main(["predict", str(tiny_run), str(image), "--top", "2"]) == 0
    text = capsys.readouterr().out
    rows = [line.split("│")[1].strip() for line in text.splitlines() if "│" in line]
    assert "".join(rows).replace(" ", "") == str(image).replace(" ", "")
    assert text.count("%") == 2


def test_answers_equal_the_model(photo_run, photos, capsys):
    paths = find_images([str(photos / "val")])
    _, rows, _ = predict_json(capsys, photo_run, photos / "val", "--top", 3, "--batch-size", 5)
    run = Run.open(photo_run)
    (images,) = [
        images
        for _, images in file_dataset(paths, Preprocess.from_dict(run.read_preprocess()), 100)
    ]
    logits = run.load_model().predict(images, verbose=0)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    expected = powers / powers.sum(axis=1, keepdims=True)
    assert [row["file"] for row in rows] == [str(path) for path in paths]
    for row, probabilities in zip(rows, expected, strict=True):
        for best in row["predictions"]:
            assert best["score"] == pytest.approx(probabilities[best["index"]], abs=2e-6)


def test_the_same_pixels_everywhere(photo_run, photos, tmp_path, monkeypatch):
    """In train's validation, evaluate, predict and a run written again: bit for bit."""
    seen = {}

    def fit(self, *args, validation_data, **kwargs):
        batches = [(images, weights > 0) for images, _, weights in validation_data]
        seen["images"] = np.concatenate([images[counts] for images, counts in batches])
        raise KeyboardInterrupt

    monkeypatch.setattr("keras.Model.fit", fit)
    flags = ["--data", f"folder:{photos}", *PHOTO_FLAGS, "--output", str(tmp_path / "again")]
    assert cli.main(["train", *flags]) == 130

    source = open_source(f"folder:{photos}", seed=1)
    split = source.splits["validation"]
    paths = [
        photos / "val" / source.class_names[label] / name
        for name, label in zip(split.names, split.labels, strict=True)
    ]
    assert {"Portrait_6.jpg", "Landscape_7.jpg"} <= set(split.names)
    values = (Run.open(photo_run).read_preprocess(), Run(tmp_path / "again").read_preprocess())
    preprocess, again = (Preprocess.from_dict(value) for value in values)
    assert preprocess == again
    predicted = np.concatenate([images for _, images in file_dataset(paths, again, 3)])
    evaluation = evaluation_dataset(split, preprocess, batch_size=5)
    evaluated = np.concatenate([images for images, _ in evaluation])
    assert predicted.shape == (8, 48, 32, 3)
    np.testing.assert_array_equal(predicted, evaluated)
    np.testing.assert_array_equal(predicted, seen["images"])


def test_unreadable_files_have_their_reason_and_the_others_their_answer(
    tiny_run, image, tmp_path, capsys
):
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name in ("b.png", "d.jpg", "f.png"):
        shutil.copy(image, folder / name)
    (folder / "a.jpg").write_bytes(b"")
    (folder / "c.png").write_bytes(image.read_bytes()[:40])
    (folder / "e.jpg").write_text("no image")
    (folder / "g.png").symlink_to("nowhere")
    status, rows, err = predict_json(capsys, tiny_run, folder, "--batch-size", 2)
    assert status == 2
    assert err.splitlines()[-1] == "keras-vit predict: 4 of 7 files could not be read"
    assert [Path(row["file"]).name[0] for row in rows] == list("abcdefg")
    errors = {Path(row["file"]).name: row["error"] for row in rows if "error" in row}
    assert errors["a.jpg"] == "the file is empty"
    assert errors["e.jpg"] == "not an image"
    assert "No such file" in errors["g.png"]
    assert set(errors) == {"a.jpg", "c.png", "e.jpg", "g.png"}
    answers = [row["predictions"] for row in rows if "predictions" in row]
    assert len(answers) == 3 and answers[0] == answers[1] == answers[2]


def test_the_table_names_unreadable_files_too(tiny_run, image, tmp_path, capsys):
    (tmp_path / "broken.jpg").write_text("[red]")
    assert cli.main(["predict", str(tiny_run), str(tmp_path / "*g")]) == 2
    out, err = capsys.readouterr()
    assert "not read: not an image" in out and "%" in out
    assert err.splitlines()[-1] == "keras-vit predict: 1 of 2 files could not be read"


def test_hostile_files(tiny_run, shared, capsys):
    status, rows, _ = predict_json(capsys, tiny_run, shared / "data/nasty/made")
    assert status == 2
    assert all(("error" in row) != ("predictions" in row) for row in rows)
    assert len(rows) == len(find_images([str(shared / "data/nasty/made")]))


def test_folders_globs_and_files_each_once(tmp_path):
    for name in ("b/2.JPG", "b/c/1.png", "a.jpg", ".hidden.jpg", ".git/x.jpg", "b/.x.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\xff\xd8\xff")
    (tmp_path / "labels.csv").write_text("a,b")
    (tmp_path / "really.txt").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "b/loop").symlink_to(tmp_path / "b")

    def names(*patterns):
        found = find_images(str(tmp_path / pattern) for pattern in patterns)
        return [path.relative_to(tmp_path).as_posix() for path in found]

    everything = ["a.jpg", "b/2.JPG", "b/c/1.png", "really.txt"]
    assert names("") == everything
    assert names("**/*.png") == ["b/c/1.png"]
    assert sorted(names("*")) == everything
    assert names("a.jpg", "b", "a.jpg", "") == ["a.jpg", "b/2.JPG", "b/c/1.png", "really.txt"]
    assert names("labels.csv") == ["labels.csv"]  # who names it, gets an answer about it
    assert names(".hidden.jpg") == [".hidden.jpg"]


def test_a_name_with_brackets_is_a_file_before_it_is_a_glob(image):
    assert find_images([str(image)]) == [image]


def test_mistakes_end_in_one_line(tiny_run, tmp_path, image, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/readme.txt").write_text("nothing here")
    assert "'nowhere.jpg' does not exist" in refused(capsys, tiny_run, "nowhere.jpg")
    assert "'no*where' does not exist" in refused(capsys, tiny_run, "no*where")
    for folder in ("empty", "notes"):
        assert f"{folder}' holds no images" in refused(capsys, tiny_run, tmp_path / folder)
    assert "does not exist" in refused(capsys, tmp_path / "no run", image)
    assert "is no finished run" in refused(capsys, tmp_path / "empty", image)
    assert "top=0 must be greater than 0" in refused(capsys, tiny_run, image, "--top=0")


def test_a_run_whose_files_do_not_fit_is_refused(tiny_run, tmp_path, image, capsys):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    (run / "labels.txt").write_text("a\nb\n")
    assert "labels.txt has 2 classes" in refused(capsys, run, image)
    shutil.copy(tiny_run / "labels.txt", run)
    values = json.loads((run / "preprocess.json").read_text())
    (run / "preprocess.json").write_text(json.dumps(values | {"image_size": [8, 16]}))
    assert "preprocess.json gives (8, 16, 1)" in refused(capsys, run, image)
    (run / "preprocess.json").write_text(json.dumps(values | {"crop_fraction": 2}))
    assert "crop_fraction=2 is not allowed" in refused(capsys, run, image)
    (run / "preprocess.json").write_text("{")
    assert "preprocess.json is no JSON" in refused(capsys, run, image)
    shutil.copy(tiny_run / "preprocess.json", run)
    (run / "model.keras").write_bytes((tiny_run / "model.keras").read_bytes()[:1000])
    assert "model.keras cannot be loaded" in refused(capsys, run, image)


def test_stdout_is_json_and_stderr_one_line_in_a_real_process(tiny_run, tmp_path):
    odd = os.fsencode(tmp_path / "na\u00efve \u96ea ") + b"\xff.jpg"
    with open(odd, "wb") as file:
        file.write(b"no image")
    Image.new("RGB", (9, 9)).save(tmp_path / "fine.webp")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TF_")}
    done = subprocess.run(
        [sys.executable, "-m", "training", "predict", tiny_run, tmp_path, "--json"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
    )
    rows = json.loads(done.stdout)
    assert done.returncode == 2
    assert [os.fsencode(row["file"]) for row in rows if "error" in row] == [odd]
    assert done.stderr.decode() == "keras-vit predict: 1 of 2 files could not be read\n"
