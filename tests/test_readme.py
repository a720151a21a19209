"""README tells the truth: its commands, flags and Python run."""

import re
import shlex
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
    assert {"train", "evaluate", "predict"} <= {command.split()[1] for command in COMMANDS}


def test_the_python_example_runs():
    (code,) = [block for language, block in BLOCKS if language == "python"]
    images = np.random.default_rng(0).uniform(-1, 1, (1, 224, 224, 3)).astype("float32")
    names = {"images": images}
    exec(compile(code, "README.md", "exec"), names)
    assert names["values"]["block_03/attention_scores"].shape == (1, 6, 197, 197)


def test_every_make_target_named_exists():
    makefile = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"^make (\w+)", README, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_model_named_exists():
    for name in re.findall(r"\bvit_[a-z]+\d+\b", README):
        assert keras_vit.find_config(name, image_size=448)
