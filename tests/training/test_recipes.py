"""Recipes are data: every one trains, and is found by its name."""

from typing import get_args, get_type_hints

import pytest

from training.config import TrainConfig
from training.recipes import RECIPES


def test_flags_offer_every_recipe():
    choices = get_type_hints(TrainConfig)["recipe"]
    assert set(get_args(get_args(choices)[0])) == set(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_recipe_sets_is_a_setting_that_can_be_given(name):
    recipe = RECIPES[name]
    config = TrainConfig(
        optimizer=recipe.optimizer,
        weight_decay=recipe.weight_decay,
        layer_decay=recipe.layer_decay,
        label_smoothing=recipe.label_smoothing,
        learning_rate=recipe.rate,
        augment=recipe.augment,
        crop_scale=recipe.crop_scale,
    )
    assert config.optimizer in ("adamw", "sgd")
    assert 0 <= recipe.warmup < 1
