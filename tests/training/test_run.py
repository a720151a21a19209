import json
import os

import keras
import numpy as np
import pytest

from keras_vit import UserError
from training.run import Run, unused_path


def tiny_model():
    inputs = keras.Input((4, 4, 1))
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(inputs)))


def test_a_new_run_is_an_empty_folder(tmp_path):
    run = Run.create(tmp_path / "a" / "b")
    assert sorted(p.name for p in run.path.iterdir()) == ["checkpoints"]


def test_an_existing_folder_is_not_replaced_unasked(tmp_path):
    (tmp_path / "config.yaml").write_text("epochs: 1")
    with pytest.raises(UserError, match="exists; choose another folder or add --overwrite"):
        Run.create(tmp_path)
    assert (tmp_path / "config.yaml").read_text() == "epochs: 1"
    Run.create(tmp_path, overwrite=True)
    assert not (tmp_path / "config.yaml").exists()


def test_what_is_no_run_is_never_overwritten(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"precious")
    with pytest.raises(UserError, match="is no run folder; it is not overwritten"):
        Run.create(tmp_path, overwrite=True)
    with pytest.raises(UserError, match="is no run folder; it is not overwritten"):
        Run.create(tmp_path / "photo.jpg", overwrite=True)
    assert (tmp_path / "photo.jpg").read_bytes() == b"precious"


def test_a_folder_that_cannot_be_made_is_a_users_mistake(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be made: Not a directory"):
        Run.create(tmp_path / "file" / "run")


@pytest.mark.parametrize("missing", ["config.yaml", "preprocess.json", "labels.txt", "model.keras"])
def test_only_a_finished_run_opens(tmp_path, missing):
    for name in {"config.yaml", "preprocess.json", "labels.txt", "model.keras"} - {missing}:
        (tmp_path / name).write_text("")
    with pytest.raises(UserError, match=f"is no finished run: {missing} is missing"):
        Run.open(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        Run.open(tmp_path / "none")


def test_labels_keep_their_order_and_any_name(tmp_path):
    run = Run.create(tmp_path / "run")
    names = ["Zitrone", "größe", "日本", "a b", "", "'quoted'", os.fsdecode(b"\xff")]
    run.write_labels(names)
    assert run.read_labels() == names


def test_a_label_with_a_line_break_is_refused(tmp_path):
    run = Run.create(tmp_path / "run")
    with pytest.raises(UserError, match=r"'a\\nb' holds a line break"):
        run.write_labels(["a\nb"])


def test_settings_and_metrics_read_back(tmp_path):
    run = Run.create(tmp_path / "run")
    run.write_config({"image_size": (48, 64), "data": "ü", "ema": None}, {"keras": "3"})
    assert run.read_config() == {
        "image_size": [48, 64], "data": "ü", "ema": None, "made_with": {"keras": "3"}
    }  # fmt: skip
    metrics = {"top1": 0.5, "per_class": {"ü": {"f1": None}}, "confusion_matrix": [[1, 0], [2, 3]]}
    run.write_metrics(metrics)
    assert json.loads(run.metrics_path.read_text(encoding="utf-8")) == metrics


def test_a_failing_write_leaves_the_old_file_whole(tmp_path):
    run = Run.create(tmp_path / "run")
    run.save_model(tiny_model(), run.model_path)
    before = run.model_path.read_bytes()

    class Broken:
        def save(self, path):
            path.write_bytes(before[:100])
            raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        run.save_model(Broken(), run.model_path)
    assert run.model_path.read_bytes() == before


def test_a_saved_model_gives_the_same_answers(tmp_path):
    run = Run.create(tmp_path / "run")
    model = tiny_model()
    run.save_model(model, run.model_path)
    again = keras.saving.load_model(run.model_path)
    images = np.random.default_rng(0).normal(size=(3, 4, 4, 1)).astype("float32")
    np.testing.assert_array_equal(model(images), again(images))


def test_the_first_unused_name_is_taken(tmp_path):
    assert unused_path("run", tmp_path) == tmp_path / "run"
    (tmp_path / "run").mkdir()
    (tmp_path / "run-2").mkdir()
    assert unused_path("run", tmp_path) == tmp_path / "run-3"
