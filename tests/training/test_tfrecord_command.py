"""`keras-vit tfrecord` as a user runs it: what it writes trains and evaluates like the source."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from training import cli
from training.data.sources import open_source


def refused(capsys, *words) -> str:
    capsys.readouterr()
    assert cli.main(["tfrecord", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()[-1]


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("records") / "digits"
    assert cli.main(["tfrecord", "--data", "digits", "--shards", "3", "--output", str(path)]) == 0
    return path


def test_every_image_is_there_once_with_its_label(records):
    assert len(list(records.glob("train-*-of-00003.tfrecord"))) == 3
    source, copy = open_source("digits", seed=0), open_source(f"tfrecord:{records}/*", seed=0)
    assert copy.class_names == source.class_names
    assert set(copy.splits) == {"train", "validation", "test"}
    split = source.splits["test"]
    assert copy.splits["test"].num_examples == split.num_examples
    found = [int(label) for _, label in copy.splits["test"].open(None)]
    np.testing.assert_array_equal(np.bincount(found), np.bincount(split.labels))


def test_evaluate_scores_records_like_their_source(records, tiny_run, tmp_path):
    def scores(*flags) -> dict:
        assert cli.main(["evaluate", str(run), *flags]) == 0
        return json.loads((run / "metrics.json").read_text())

    run = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    expected = scores()
    found = scores("--data", f"tfrecord:{records}/*.tfrecord")
    assert found["split"] == "test"
    assert found["confusion_matrix"] == expected["confusion_matrix"]
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6)


def test_the_command_says_what_to_do_next(tmp_path, capsys):
    path = tmp_path / "records"
    assert cli.main(["tfrecord", "--shards", "1", "--output", str(path)]) == 0
    out = capsys.readouterr().out
    assert "359 test" in out
    assert f"keras-vit train --data 'tfrecord:{path}/*.tfrecord'" in out


def test_photos_keep_their_bytes_and_broken_ones_are_named(photos, tmp_path, capsys):
    folder, path = tmp_path / "photos", tmp_path / "records"
    shutil.copytree(photos, folder)
    (folder / "train/rose/broken.jpg").write_text("no image")
    flags = ("--data", f"folder:{folder}", "--output", str(path), "--max-skipped", "0.1")
    assert cli.main(["tfrecord", *flags]) == 0
    assert "train/rose/broken.jpg: not an image" in capsys.readouterr().out
    split = open_source(f"tfrecord:{path}/*", seed=0).splits["validation"]
    stored = {image.numpy() for image, _ in split.open(None)}
    assert stored == {file.read_bytes() for file in (photos / "val").glob("*/*.jpg")}


def test_what_exists_is_kept(records, tmp_path, capsys):
    before = {path.name: path.read_bytes() for path in records.iterdir()}
    assert "exists; choose another or add --overwrite" in refused(capsys, "--output", records)
    assert {path.name: path.read_bytes() for path in records.iterdir()} == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("precious")
    flags = ("--output", tmp_path / "mine", "--overwrite", "--shards", 1)
    assert "holds no TFRecords; it is not overwritten" in refused(capsys, *flags)
    assert [path.name for path in tmp_path.glob("**/*")] == ["mine", "thesis.txt"]


def test_overwrite_replaces(records, tmp_path):
    path = tmp_path / "records"
    shutil.copytree(records, path)
    flags = ["--output", str(path), "--overwrite", "--shards", "2"]
    assert cli.main(["tfrecord", *flags]) == 0
    assert {file.name[-13:] for file in path.glob("*.tfrecord")} == {"0002.tfrecord"}


def test_mistakes_end_in_one_line(tmp_path, capsys):
    output = tmp_path / "records"
    flags = ("--output", output)
    assert "must be digits, folder:" in refused(capsys, "--data", "digit", *flags)
    assert "does not exist" in refused(capsys, "--data", "folder:nowhere", *flags)
    assert "shards=0 must be" in refused(capsys, "--shards", "0", *flags)
    assert not output.exists()
