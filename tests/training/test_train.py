"""`keras-vit train` as a user runs it: tiny models on real digits and photos."""

import csv
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import yaml

import keras_vit
from benchmarks.kills import rows, same
from training import cli
from training.config import TrainConfig
from training.data.augment import AUGMENTATIONS
from training.data.sources import open_source
from training.making import class_weights, make_augmentation, make_model, steps_per_epoch
from training.run import Run

TINY = ("--model", "vit_mu4", "--batch-size", "128")


def train(path, *flags) -> Run:
    assert cli.main(["train", *TINY, "--output", str(path), *map(str, flags)]) == 0
    return Run.open(path)


def history(run: Run) -> list[dict]:
    """history.csv without the columns that are times."""
    return rows(run.path)


def test_deterministic_gives_the_same_history_and_weights_twice(tmp_path):
    """In processes of their own, as the switch is one of the whole process."""
    flags = "--data digits --epochs 2 --deterministic --dropout 0.1 --drop-path 0.2 --mixup 0.2"
    for name, seed in (("one", "0"), ("two", "0"), ("other", "1")):
        words = [*TINY, *flags.split(), "--seed", seed, "--output", str(tmp_path / name)]
        subprocess.run([sys.executable, "-m", "training", "train", *words], check=True)
    assert same(tmp_path / "one", tmp_path / "two")
    assert not same(tmp_path / "one", tmp_path / "other")


def test_a_run_folder_holds_all_that_the_design_says(tiny_run):
    names = {path.name for path in tiny_run.iterdir()}
    assert names >= {
        "config.yaml", "model.keras", "checkpoints", "labels.txt", "preprocess.json",
        "history.csv", "logs", "skipped_files.csv",
    }  # fmt: skip
    assert not [name for name in names if name.startswith(".")]  # no temporary file is left
    run = Run.open(tiny_run)
    assert run.read_labels() == list("0123456789")
    assert run.read_preprocess()["image_size"] == [8, 8]
    assert len(run.read_history()) == 1
    assert list((tiny_run / "logs").rglob("events.out.tfevents.*"))
    made_with = run.read_config()["made_with"]
    assert made_with["keras"] == keras.__version__
    assert len(made_with["data_fingerprint"]) == 64


def test_the_model_loads_without_the_training_package(tiny_run):
    code = (
        "import sys, keras, keras_vit\n"
        f"model = keras.saving.load_model({str(tiny_run / 'model.keras')!r})\n"
        "assert not any(name.startswith('training') for name in sys.modules)\n"
        "print(model.output_shape)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "(None, 10)\n", result.stderr


def test_the_same_seed_gives_the_same_history_and_another_another(tmp_path):
    flags = ("--epochs", 2, "--augment", "strong", "--dropout", 0.1, "--drop-path", 0.1)
    flags += ("--patch-dropout", 0.25)
    first, second = train(tmp_path / "a", *flags), train(tmp_path / "b", *flags)
    assert history(first) == history(second)
    for one, two in zip(first.load_model().weights, second.load_model().weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), two.numpy())
    assert history(train(tmp_path / "c", *flags, "--seed", 1)) != history(first)


def test_a_runs_own_config_repeats_it(tmp_path):
    first = train(tmp_path / "a", "--epochs", 1, "--ema", 0.9)
    config = str(first.path / "config.yaml")
    assert cli.main(["train", "--config", config, "--output", str(tmp_path / "b")]) == 0
    second = Run.open(tmp_path / "b")
    assert history(second) == history(first)
    settings = [run.read_config() | {"output": None} for run in (first, second)]
    assert settings[0] == settings[1]


def test_computing_again_gives_the_same_run(tmp_path):
    """With dropout: the masks of the second pass are those of the first."""
    flags = ("--epochs", 1, "--augment", "none", "--dropout", 0.2, "--drop-path", 0.1)
    plain, again = (
        train(tmp_path / remat, *flags, "--remat", remat) for remat in ("none", "block")
    )
    for one, other in zip(plain.load_model().weights, again.load_model().weights, strict=True):
        np.testing.assert_allclose(other.numpy(), one.numpy(), atol=1e-5)
    assert again.load_model().get_layer("block_00").remat == "block"


def test_training_learns(tmp_path):
    rows = history(train(tmp_path / "run", "--epochs", 12, "--augment", "none"))
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"]) - 0.3
    assert float(rows[-1]["val_accuracy"]) > 0.5


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_trains_and_keeps_float32_weights(tmp_path, precision):
    run = train(tmp_path / "run", "--epochs", 6, "--precision", precision, "--augment", "none")
    losses = [float(row["loss"]) for row in run.read_history()]
    assert losses[-1] < losses[0] - 0.1
    model = run.load_model()
    assert model.get_layer("block_00").compute_dtype == precision
    assert {weight.dtype for weight in model.trainable_weights} == {"float32"}


def test_the_schedule_warms_up_and_comes_down(tmp_path):
    run = train(
        tmp_path / "run", "--epochs", 4, "--warmup-epochs", 2, "--learning-rate", 1e-3,
    )  # fmt: skip
    rates = [float(row["learning_rate"]) for row in run.read_history()]
    assert rates[0] < rates[1]
    assert rates[1] == pytest.approx(1e-3, rel=0.01)
    assert rates[1] > rates[2] > rates[3]


def test_balance_and_sgd_and_early_stopping_run_together(tmp_path):
    run = train(
        tmp_path / "run", "--epochs", 9, "--balance", "--optimizer", "sgd", "--early-stopping", 1,
        "--learning-rate", 1e-9, "--mixup", 0.5,
    )  # fmt: skip
    assert len(run.read_history()) < 9  # nothing is learnt at that rate


def test_a_folder_of_photos_trains_and_names_what_it_skips(photos, tmp_path, capsys):
    root = tmp_path / "photos"
    shutil.copytree(photos, root)
    (root / "train/rose/broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")
    run_path = tmp_path / "run"
    words = ["--data", f"folder:{root}", "--model", "vit_mu16", "--image-size", "32x48"]
    words += ["--epochs", "1", "--max-skipped", "0.1", "--output", str(run_path)]
    assert cli.main(["train", *words]) == 0
    assert "Skipped    1 of 27 files, the first: train/rose/broken.jpg" in capsys.readouterr().out
    with (run_path / "skipped_files.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["path", "reason"]
    assert rows[1][0] == "train/rose/broken.jpg"
    assert rows[1][1]


def test_two_hundred_photos_need_no_flag_but_the_folder(shared, tmp_path, monkeypatch):
    """Without a flag: what is chosen fits the data. Training itself is cut to one short epoch."""
    import training.train as command

    monkeypatch.setattr(command, "steps_per_epoch", lambda config, source: 1)
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "flowers"
    for name in ("rose", "tulip"):
        (root / name).mkdir(parents=True)
        for path in sorted((shared / "data/flowers5" / name).glob("*.jpg"))[:100]:
            shutil.copy(path, root / name)
    assert cli.main(["train", "--data", f"folder:{root}", "--epochs", "1"]) == 0
    (run,) = (tmp_path / "saved_models").iterdir()
    assert run.name.startswith("flowers-vit_")


def test_freezing_leaves_weights_as_they_are():
    data = open_source("digits", seed=0)
    config = TrainConfig(
        model="vit_mu4", image_size=(8, 8), freeze="backbone", precision="float32", dropout=0.0
    )
    trained = make_model(config, data).trainable_variables
    assert {variable.path for variable in trained} == {"head/kernel", "head/bias"}
    config = TrainConfig(model="vit_xxs4", image_size=(8, 8), freeze="2")
    model = make_model(config, data)
    frozen = [layer.name for layer in model.layers if layer.weights and not layer.trainable]
    assert frozen == ["patch_encoder", "block_00", "block_01"]


def test_a_frozen_part_is_unchanged_by_training(tmp_path):
    frozen = train(tmp_path / "run", "--epochs", 1, "--freeze", "backbone").load_model()
    keras.utils.set_random_seed(0)
    fresh = keras_vit.create_model("vit_mu4", image_size=8, in_channels=1, num_classes=10)
    for layer in frozen.layers:
        same = [
            np.array_equal(one, two)
            for one, two in zip(
                layer.get_weights(), fresh.get_layer(layer.name).get_weights(), strict=True
            )
        ]
        assert all(same) if layer.name != "head" else not any(same)


def test_single_settings_change_the_preset():
    config = TrainConfig(
        augment="strong", flip=False, mixup=0.0, randaugment=3, crop_scale=0.5, erasing=0.0
    )
    made = make_augmentation(config)
    strong = AUGMENTATIONS["strong"]
    assert (made.flip, made.mixup, made.erasing) == (False, 0.0, 0.0)
    assert (made.randaugment_layers, made.randaugment_magnitude) == (2, 3)
    assert made.crop_scale == (0.5, 1.0)
    assert (made.cutmix, made.color_jitter) == (strong.cutmix, strong.color_jitter)
    assert make_augmentation(TrainConfig(augment="light", randaugment=0)).randaugment_layers == 0


def test_class_weights_even_out_the_classes():
    data = open_source("digits", seed=0)
    counts = data.splits["train"].class_counts(10)
    weights = class_weights(data)
    np.testing.assert_allclose(weights * counts, counts.sum() / 10)
    assert (weights * counts).sum() / counts.sum() == pytest.approx(1.0)


def test_an_epoch_shows_about_every_image_once():
    data = open_source("digits", seed=0)
    for batch_size in (1, 7, 64, 100_000):
        steps = steps_per_epoch(TrainConfig(batch_size=batch_size), data)
        assert steps == max(1, round(data.splits["train"].num_examples / batch_size))


def test_a_diverging_run_keeps_its_best_model_and_says_why(tmp_path, capsys):
    path = tmp_path / "run"
    words = [*TINY, "--epochs", "3", "--optimizer", "sgd", "--learning-rate", "1e30"]
    words += ["--clip-norm", "none", "--warmup-epochs", "0", "--output", str(path)]
    assert cli.main(["train", *words]) == 2
    error = capsys.readouterr().err.strip().split("\n")[-1]
    assert error.startswith("keras-vit train: the loss was not finite at step ")
    assert "--learning-rate" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data", "folder:/no/where"], "data folder '/no/where' does not exist"),
        (["--model", "vit_xl16"], "model='vit_xl16' is unknown; did you mean 'vit_l16'?"),
        (["--model", "vit_ti16"], "patch_size=16 must divide the image's height 8"),
        (["--freeze", "9"], "freeze=9: vit_mu4 has only 1 blocks"),
        (["--augment", "light", "--erasing", "2"], "erasing=2.0 must be a probability, 0 to 1"),
        (["--validation-fraction", "1.5"], "validation_fraction=1.5 must be more than 0"),
        (["--crop-fraction", "0"], "crop_fraction=0.0"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(tmp_path, capsys, words, message):
    path = tmp_path / "run"
    assert cli.main(["train", *TINY, "--output", str(path), *words]) == 2
    lines = capsys.readouterr().err.strip().split("\n")
    assert len(lines) == 1
    assert message in lines[0]
    assert not path.exists()


def test_an_existing_run_is_kept(tiny_run, capsys):
    before = (tiny_run / "model.keras").read_bytes()
    assert cli.main(["train", *TINY, "--output", str(tiny_run)]) == 2
    assert "exists; choose another folder or add --overwrite" in capsys.readouterr().err
    assert (tiny_run / "model.keras").read_bytes() == before


def test_the_saved_config_is_plain_yaml(tiny_run):
    settings = yaml.safe_load((tiny_run / "config.yaml").read_text())
    assert settings["image_size"] == [8, 8]
    assert settings["batch_size"] and settings["epochs"] == 1
