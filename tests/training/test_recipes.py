"""Recipes are data: every one can be planned, says where it is from, and is found by its name."""

from pathlib import Path

import numpy as np
import pytest

import keras_vit
from keras_vit import UserError
from training.config import TrainConfig
from training.data.sources import IndexedSplit, Source
from training.defaults import resolve
from training.making import make_augmentation, make_schedule, steps_per_epoch
from training.recipes import find_recipe, list_recipes

IMAGENET, IMAGENET21K = 1_281_167, 14_197_122


def source(count=IMAGENET, image_size=None):
    split = IndexedSplit(np.zeros(count, np.int32), read=None)
    return Source(
        name="x", class_names=("a", "b"), splits={"train": split}, channels=3,
        image_size=image_size, fingerprint="",
    )  # fmt: skip


def resolved(name, data=None, **settings):
    needed = {"teacher": "x.keras"} if find_recipe(name).needs else {}
    return resolve(TrainConfig(recipe=name, **needed, **settings), data or source())


def test_deit_distilled_needs_a_teacher():
    with pytest.raises(UserError, match="recipe='deit-distilled' needs teacher"):
        resolve(TrainConfig(recipe="deit-distilled"), source())
    config = resolved("deit-distilled")
    assert config.distillation == "hard"
    assert keras_vit.find_config(config.model).distillation_token


def test_the_published_ones_are_there():
    grid = {f"augreg-{n}" for n in "none light1 light2 medium1 medium2 strong1 strong2".split()}
    paper = {"paper-jft", "paper-imagenet21k", "paper-imagenet", "paper-finetune"}
    others = {
        "simple-vit",
        "simple-vit-linear",
        "deit",
        "deit-distilled",
        "small",
        "small-data",
        "scratch",
    }
    assert set(list_recipes()) >= grid | paper | others


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_gives_a_run_that_can_be_made(name):
    data = source(IMAGENET21K if name == "paper-jft" else IMAGENET)
    config = resolved(name, data)
    recipe = find_recipe(name)
    assert recipe.source and recipe.expected
    keras_vit.find_config(config.model, image_size=config.image_size)
    make_augmentation(config)
    schedule = make_schedule(config, steps_per_epoch(config, data))
    assert schedule.warmup_steps < schedule.total_steps
    assert resolve(config, data) == config
    for key, value in recipe.settings.items():
        assert getattr(config, key) == value, key


def test_simple_vit_is_as_published():
    """Beyer et al. 2022; big_vision vit_s16_i1k.py: 112,603 steps at 100 % of the images."""
    config = resolved("simple-vit")
    schedule = make_schedule(config, steps_per_epoch(config, source()))
    assert schedule.total_steps == pytest.approx(112_603, rel=1e-3)
    assert (schedule.warmup_steps, schedule.peak, schedule.decay) == (10_000, 0.001, "cosine")
    model = keras_vit.find_config(config.model)
    assert (model.position_embedding, model.pooling, model.class_token) == (
        "sincos2d", "mean", False,
    )  # fmt: skip
    augmentation = make_augmentation(config)
    assert (augmentation.randaugment_layers, augmentation.randaugment_magnitude) == (2, 10)
    assert (augmentation.crop_scale, augmentation.mixup) == ((0.05, 1.0), 0.2)
    assert config.pre_logits and not resolved("simple-vit-linear").pre_logits


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("light1", (2, 0, 0.0)),
        ("light2", (2, 10, 0.2)),
        ("medium1", (2, 15, 0.2)),
        ("medium2", (2, 15, 0.5)),
        ("strong1", (2, 20, 0.5)),
        ("strong2", (2, 20, 0.8)),
    ],
)
def test_augreg_grid_is_as_published(name, figures):
    """Steiner et al. 2022, section 3.4: (layers, magnitude, Mixup)."""
    found = make_augmentation(resolved(f"augreg-{name}"))
    assert (found.randaugment_layers, found.randaugment_magnitude, found.mixup) == figures


@pytest.mark.parametrize(
    ("name", "decay", "schedule", "rate", "clip"),
    [
        ("paper-jft", 0.1, "linear", 8e-4, 0.0),
        ("paper-imagenet21k", 0.03, "linear", 1e-3, 0.0),
        ("paper-imagenet", 0.3, "cosine", 3e-3, 1.0),
    ],
)
def test_the_papers_pre_training_is_as_published(name, decay, schedule, rate, clip):
    """Dosovitskiy et al. 2021, table 3."""
    config = resolved(name)
    assert (config.weight_decay, config.schedule) == (decay, schedule)
    assert (config.learning_rate, config.clip_norm) == (rate, clip)
    assert (config.batch_size, config.warmup_steps) == (4096, 10_000)


def test_the_rate_of_deit_follows_the_batch():
    assert resolved("deit").learning_rate == pytest.approx(1e-3)
    assert resolved("deit", batch_size=256).learning_rate == pytest.approx(2.5e-4)
    assert resolved("deit").repeated_augmentation == 3


def test_what_the_user_says_wins():
    config = resolved(
        "simple-vit", model="vit_ti16", warmup_epochs=2.0, clip_norm=0.0, pre_logits=False
    )
    assert (config.model, config.warmup_epochs, config.warmup_steps) == ("vit_ti16", 2.0, None)
    assert (config.clip_norm, config.pre_logits) == (0.0, False)
    whole = resolved("simple-vit", augment="light")
    assert (whole.crop_scale, whole.randaugment, whole.mixup) == (None, None, None)


@pytest.mark.parametrize(
    ("size", "model"),
    [((32, 32), "r_vit_xs4"), ((64, 64), "r_vit_xs8"), ((28, 28), "r_vit_xs4"),
     ((30, 50), "vit_xs2"), ((8, 8), "vit_xxs2"), (None, "r_vit_xs16")],
)  # fmt: skip
def test_the_stem_of_small_data(size, model):
    config = resolved("small-data", source(3000, size))
    assert config.model == model
    keras_vit.find_config(config.model, image_size=config.image_size)


def test_a_recipe_of_ones_own(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("base: deit\nepochs: 7\nimage-size: 192x256\nsource: me\n")
    config = resolved(str(path))
    assert (config.epochs, config.image_size, config.weight_decay) == (7, (192, 256), 0.05)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source: me\nexpected: much\nepoch: 3", "did you mean epochs?"),
        ("source: me\nexpected: much\nepochs: x", "must be a whole number"),
        ("source: me\nexpected: much\nepochs: 0", "epochs=0 must be greater than 0"),
        ("epochs: 3", "says no source"),
        ("1: 3", "no setting '1'"),
        ("base: deti", "did you mean deit?"),
    ],
)
def test_a_wrong_recipe_is_named(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        find_recipe(str(path))
    assert message in str(error.value)


def test_a_warm_up_longer_than_the_run_is_refused():
    config = resolved("simple-vit", source(2000))
    with pytest.raises(UserError, match="warmup_steps=10000 must be at most the 180 steps"):
        make_schedule(config, steps_per_epoch(config, source(2000)))


def test_readme_names_every_recipe():
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    for name in list_recipes():
        assert name.split("-")[0] in readme
