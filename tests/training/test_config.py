"""What a config refuses, and that it can be made without TensorFlow."""

import subprocess
import sys

import pytest

from training.config import COMMANDS, EvaluateConfig, PredictConfig, TFRecordConfig, TrainConfig

WRONG = [
    ("epochs", 0, "greater than 0"),
    ("epochs", -3, "greater than 0"),
    ("batch_size", 0, "greater than 0"),
    ("learning_rate", 0.0, "greater than 0"),
    ("clip_norm", -1.0, "at least 0"),
    ("warmup_steps", -1, "at least 0"),
    ("randaugment_layers", -1, "at least 0"),
    ("peak_tflops", 0.0, "greater than 0"),
    ("tensorboard_images", -1, "at least 0"),
    ("early_stopping", 0, "greater than 0"),
    ("dropout", 1.0, "at least 0 and less than 1"),
    ("drop_path", -0.1, "at least 0 and less than 1"),
    ("patch_dropout", 1.5, "at least 0 and less than 1"),
    ("ema", 1.0, "at least 0 and less than 1"),
    ("label_smoothing", 1.0, "at least 0 and less than 1"),
    ("max_skipped", -0.1, "at least 0 and less than 1"),
    ("warmup_epochs", -1.0, "at least 0"),
    ("weight_decay", -0.1, "at least 0"),
    ("randaugment", -1, "at least 0"),
    ("seed", -1, "at least 0 and less than 2**32"),
    ("seed", 2**32, "at least 0 and less than 2**32"),
    ("layer_decay", 0.0, "more than 0 and at most 1"),
    ("layer_decay", 1.1, "more than 0 and at most 1"),
    ("freeze", "-1", "none, backbone or a number of blocks"),
    ("freeze", "head", "none, backbone or a number of blocks"),
]


@pytest.mark.parametrize("name, value, wanted", WRONG)
def test_a_value_out_of_range_is_refused(name, value, wanted):
    with pytest.raises(ValueError) as error:
        TrainConfig(**{name: value})
    assert str(error.value) == f"{name}={value!r} must be {wanted}"


def test_evaluate_wants_a_batch():
    with pytest.raises(ValueError, match="batch_size=0 must be greater than 0"):
        EvaluateConfig(run="x", batch_size=0)


@pytest.mark.parametrize("name", ["top", "batch_size"])
def test_predict_counts_from_one(name):
    with pytest.raises(ValueError, match=f"{name}=0 must be greater than 0"):
        PredictConfig(run="x", images=("y",), **{name: 0})


def test_tfrecord_refuses_no_shards_and_no_seed():
    with pytest.raises(ValueError, match="shards=0 must be greater than 0"):
        TFRecordConfig(shards=0)
    with pytest.raises(ValueError, match="seed=-1 must be at least 0"):
        TFRecordConfig(seed=-1)


def test_configs_are_frozen_and_take_keywords_only():
    for config_class in COMMANDS.values():
        with pytest.raises(TypeError):
            config_class("digits")
    with pytest.raises(AttributeError):
        TrainConfig().epochs = 3


def test_reading_a_command_line_imports_neither_keras_nor_tensorflow():
    code = """
import sys
from training.cli import main
for words in (["--help"], ["--version"], ["train", "--help"], []):
    try:
        main(words)
    except SystemExit as exit:
        if exit.code:
            raise
if main(["train", "--epochs", "x"]) != 2:
    raise SystemExit(1)
heavy = {"tensorflow", "keras", "numpy", "keras_vit"} & set(sys.modules)
raise SystemExit(f"imported {heavy}" if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
