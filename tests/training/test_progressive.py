"""Progressive resizing: each stage its size, exact resume, positions that learn in all of them."""

import shutil

import pytest
import tensorflow as tf

from benchmarks.kills import same
from training import cli
from training.config import TrainConfig
from training.data.pipeline import Entry
from training.progressive import Stage, make_stages, staged
from training.run import Run

WORDS = ("train", "--data", "digits", "--model", "vit_mu2", "--batch-size", "128")
STAGED = (*WORDS, "--progressive", "4", "6", "--epochs", "3", "--augment", "light")


def settings(**changes):
    return TrainConfig(**{"image_size": (8, 8), "epochs": 10, **changes})


@pytest.mark.parametrize(
    ("progressive", "epochs", "ends"),
    [
        (None, 10, [None]),
        (((4, 4),), 10, [25, None]),
        (((4, 4), (6, 6)), 10, [15, 35, None]),
        (((4, 4), (6, 6)), 1, [5, None]),  # too few epochs for all
    ],
)
def test_stages_divide_the_epochs(progressive, epochs, ends):
    stages = make_stages(settings(progressive=progressive, epochs=epochs), steps=5)
    assert [stage.end for stage in stages] == ends
    assert [stage.start for stage in stages] == [0, *ends[:-1]]
    assert stages[-1].image_size == (8, 8)


@pytest.mark.parametrize("step", [0, 1, 3, 4, 9])
def test_batches_are_those_of_the_stage_from_any_step_on(step):
    def make(size, entry):
        return entry.numbers().map(lambda number: (number, tf.zeros(size)))

    stages = [Stage(0, 2, (1, 1)), Stage(2, 4, (2, 2)), Stage(4, None, (3, 3))]
    dataset = staged(stages, Entry(step), make).take(6)
    found = [(int(number), image.shape[0]) for number, image in dataset]
    assert found == [(n, 1 if n < 2 else 2 if n < 4 else 3) for n in range(step, step + 6)]


def test_a_run_goes_on_in_the_stage_that_it_was_in(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    words = [*STAGED, "--keep-checkpoints", "9", "--checkpoint-every", "4", "--output"]
    assert cli.main([*words, str(whole)]) == 0
    for kept in ("step_4.npz", "step_9.npz", "step_24.npz"):  # epochs have 9 steps
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(whole, broken)
        for path in (broken / "checkpoints").glob("*.npz"):
            if int(path.stem[5:]) > int(kept[5:-4]):
                path.unlink()
        assert cli.main([*words, str(broken), "--resume"]) == 0
        assert same(whole, broken)
    assert Run.open(whole).load_model().input_shape == (None, 8, 8, 1)


@pytest.mark.parametrize(
    "flags",
    [("--strategy", "mirrored", "--devices", "2"), ("--accumulate", "2", "--remat", "block")],
)
def test_stages_on_devices_and_in_slices_are_the_same(tmp_path, flags):
    rows = []
    for name, more in (("plain", ()), ("other", flags)):
        words = [*STAGED, "--learning-rate", "1e-3", *more, "--output", str(tmp_path / name)]
        assert cli.main(words) == 0
        rows.append([float(row["val_loss"]) for row in Run.open(tmp_path / name).read_history()])
    assert rows[0] == pytest.approx(rows[1], abs=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--progressive", "5"], "patch_size=2 must divide the image's height 5"),
        (["--progressive", "4", "--model", "mixer_s4"], "an MLP-Mixer cannot change its size"),
        (["--progressive", "none"], "'none' must be like 224 or 192x256"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(words, message, tmp_path, capsys):
    assert cli.main([*WORDS, "--epochs", "2", *words, "--output", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
