from dataclasses import replace

import numpy as np
import pytest

import keras_vit
from training.config import TrainConfig
from training.data.sources import IndexedSplit, Source
from training.defaults import resolve, small_patch


def source(count=800, image_size=None, flip=True):
    split = IndexedSplit(np.zeros(count, np.int32), read=None)
    return Source(
        name="x", class_names=("a", "b"), splits={"train": split}, channels=3,
        image_size=image_size, fingerprint="", flip=flip,
    )  # fmt: skip


@pytest.mark.parametrize("image_size", [None, (8, 8), (28, 28), (32, 32), (30, 50), (500, 375)])
@pytest.mark.parametrize("count", [10, 200, 5000, 1_000_000])
def test_what_is_chosen_can_be_built(image_size, count):
    config = resolve(TrainConfig(), source(count, image_size))
    keras_vit.find_config(config.model, image_size=config.image_size)
    assert config.epochs >= 20
    assert 0 < config.batch_size
    for name in ("model", "image_size", "epochs", "batch_size", "learning_rate", "warmup_epochs"):
        assert getattr(config, name) is not None


def test_what_the_user_set_stays():
    config = TrainConfig(
        model="vit_mu8", image_size=(16, 32), epochs=3, batch_size=5, learning_rate=0.5,
        warmup_epochs=0.0, augment="strong", flip=True, crop_scale=0.1, mixup=0.0,
    )  # fmt: skip
    assert resolve(config, source(image_size=(8, 8), flip=False)) == config


def test_small_images_keep_their_size_and_photos_do_not():
    assert resolve(TrainConfig(), source(image_size=(32, 32))).image_size == (32, 32)
    assert resolve(TrainConfig(), source(image_size=(500, 375))).image_size[0] > 64
    assert resolve(TrainConfig(), source(image_size=None)).image_size[0] > 64


def test_a_batch_is_smaller_than_the_data():
    assert resolve(TrainConfig(), source(200)).batch_size == 8
    assert resolve(TrainConfig(), source(800)).batch_size == 25
    assert resolve(TrainConfig(), source(800, (32, 32))).batch_size == 64


def test_images_that_may_not_be_mirrored_are_not():
    assert resolve(TrainConfig(), source(flip=False)).flip is False
    assert resolve(TrainConfig(), source(flip=True)).flip is None  # the preset's


def test_a_preset_that_the_user_names_is_taken_whole():
    tiny = source(image_size=(8, 8))
    assert resolve(TrainConfig(), tiny).crop_scale == 0.85
    assert resolve(TrainConfig(augment="strong"), tiny).crop_scale is None


def test_the_rate_is_scaled_only_if_asked_and_only_once():
    plain = resolve(TrainConfig(learning_rate=1.0, batch_size=64), source())
    assert plain.learning_rate == 1.0
    scaled = resolve(
        TrainConfig(learning_rate=1.0, batch_size=64, scale_learning_rate=True), source()
    )
    assert scaled.learning_rate == 0.25
    assert resolve(scaled, source()) == scaled


def test_resolving_again_changes_nothing():
    for data in (source(), source(image_size=(8, 8), flip=False), source(image_size=(32, 32))):
        config = resolve(TrainConfig(), data)
        assert resolve(config, data) == config
        assert resolve(replace(config, seed=1), data) == replace(config, seed=1)


@pytest.mark.parametrize(
    ("size", "rows", "patch"),
    [((32, 32), 8, 4), ((28, 28), 8, 2), ((8, 8), 4, 2), ((7, 7), 8, 1), ((30, 50), 8, 2)],
)
def test_the_patch_divides_both_sides(size, rows, patch):
    assert small_patch(size, rows) == patch
