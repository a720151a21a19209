"""Plans are made from shapes alone: nothing is read for a file that does not fit."""

from dataclasses import replace

import pytest

import keras_vit
from keras_vit import UserError, create_model, load_weights, open_weights
from keras_vit.weights.planning import Misfit, plan_variable, why_no_head
from tests.keras_vit.models import CONFIGS, TINY, VIT


@pytest.fixture
def weights(tmp_path):
    """An opened file that refuses to be read."""
    keras_vit.save_weights(create_model(VIT), tmp_path / "a.npz", "google")
    weights = open_weights(tmp_path / "a.npz")

    def read(name):
        raise AssertionError(f"{name} was read")

    return replace(weights, tensors=replace(weights.tensors, read=read))


@pytest.mark.parametrize("field, value", [("hidden_size", 48), ("num_layers", 3), ("mlp_dim", 40)])
def test_nothing_is_read_of_a_file_that_does_not_fit(field, value, weights):
    with pytest.raises(UserError, match="does not fit"):
        load_weights(create_model(keras_vit.ViTConfig(**{**TINY, field: value})), weights)


def test_a_step_says_what_it_changes(weights):
    name, shape = "patch_encoder/position_embedding", (1, 5, 24)
    config = keras_vit.ViTConfig(**{**TINY, "image_size": (8, 4)})
    step = plan_variable(name, shape, weights, config, "bicubic")
    assert step.change == "grid 2x6 to 2x2, bicubic"
    same = plan_variable(name, (1, 13, 24), weights, VIT, "bicubic")
    assert same.change is None


def test_a_variable_without_a_rule_is_missing(weights):
    with pytest.raises(Misfit) as error:
        plan_variable("pre_norm/gamma", (24,), weights, VIT, "bicubic")
    assert error.value.kind == "missing"


def test_a_broken_head_is_misshapen_not_skipped(weights):
    shapes = {**weights.tensors.shapes, "head/kernel": (23, 5)}
    broken = replace(weights, tensors=replace(weights.tensors, shapes=shapes))
    with pytest.raises(Misfit, match="head/kernel gives"):
        plan_variable("head/kernel", (24, 5), broken, VIT, "bicubic")


def test_a_head_for_another_pooling_is_not_taken(weights):
    reason = why_no_head("head/kernel", weights, CONFIGS["gap"])
    assert reason == "the file's head is for pooling=token, the model has mean"
    assert why_no_head("head/kernel", weights, VIT) is None
