"""README tells the truth: its commands, flags and Python run."""

import re
import shlex
import warnings
from pathlib import Path

import numpy as np
import pytest

import keras_vit
from training.cli import parse

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line.split("#")[0].strip()
    for language, block in BLOCKS
    if language != "python"
    for line in block.splitlines()
    if line.startswith("keras-vit ")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command):
    name, config = parse(shlex.split(command)[1:])
    assert name in command


def test_there_are_commands_to_check():
    assert {"train", "evaluate", "predict", "weights", "features", "evaluate-transfer"} <= {
        command.split()[1] for command in COMMANDS
    }


PYTHON = [block for language, block in BLOCKS if language == "python"]


def run(code, **names):
    exec(compile(code, "README.md", "exec"), names)
    return names


def test_the_python_example_runs():
    (code,) = [block for block in PYTHON if "intermediates" in block]
    images = np.random.default_rng(0).uniform(-1, 1, (1, 224, 224, 3)).astype("float32")
    names = run(code, images=images)
    assert names["values"]["block_03/attention_scores"].shape == (1, 6, 197, 197)


def test_the_example_of_pretrained_weights_runs(tmp_path, monkeypatch, capsys):
    (code,) = [block for block in PYTHON if "from_weights" in block]
    assert len(PYTHON) == 2
    monkeypatch.chdir(tmp_path)
    small = keras_vit.create_model("vit_mu16", image_size=64, num_classes=7)
    keras_vit.save_weights(small, "B_16-i21k.npz", "google")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", keras_vit.weights.WeightsWarning)  # a head of zeros
        names = run(code)
    assert names["model"].output_shape == (None, 5)
    assert "grid 4x4 to 24x24, bilinear_corners" in capsys.readouterr().out
    assert keras_vit.open_weights("flowers_hf").config.num_classes == 5


def test_every_make_target_named_exists():
    makefile = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"^make (\w+)", README, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_model_named_exists():
    for name in re.findall(r"\bvit_[a-z]+\d+\b", README):
        assert keras_vit.find_config(name, image_size=448)
