from dataclasses import asdict, replace

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
    resolved = resolve(config, source(image_size=(8, 8), flip=False))
    for name, value in asdict(config).items():
        if value is not None:
            assert getattr(resolved, name) == value, name


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


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Opened weights of a model made for 518 pixels, in patches of 14."""
    model = keras_vit.create_model("vit_mu14", image_size=518, gelu="erf")
    path = tmp_path_factory.mktemp("weights") / "hub"
    squash = {
        "mean": [0.1] * 3, "std": [0.2] * 3, "resize": "squash", "crop_fraction": 1.0,
        "interpolation": "bilinear",
    }  # fmt: skip
    keras_vit.save_weights(model, path, "huggingface", squash)
    return keras_vit.open_weights(path)


def test_with_weights_the_size_is_theirs_but_at_most_224(weights):
    config = resolve(TrainConfig(), source(image_size=(32, 32)), weights)
    assert config.image_size == (224, 224)
    assert config.model is None
    assert config.recipe == "small"
    assert (config.resize, config.interpolation) == ("squash", "bilinear")
    assert resolve(config, source(image_size=(32, 32)), weights) == config
    kept = resolve(TrainConfig(image_size=(28, 14), resize="crop"), source(), weights)
    assert (kept.image_size, kept.resize) == ((28, 14), "crop")


def test_the_papers_recipe(weights):
    """vit_jax configs/common.py: SGD, no decay, no smoothing, 0.03 at batch 512, 384 pixels."""
    config = resolve(TrainConfig(recipe="paper-finetune", batch_size=128), source(), weights)
    assert config.image_size == (378, 378)  # 27 patches of 14
    assert (config.optimizer, config.weight_decay, config.clip_norm) == ("sgd", 0.0, 1.0)
    assert (config.label_smoothing, config.layer_decay) == (0.0, 1.0)
    assert config.learning_rate == pytest.approx(0.03 / 4)
    own = TrainConfig(recipe="paper-finetune", learning_rate=0.5, weight_decay=0.1)
    own = resolve(own, source(), weights)
    assert (own.learning_rate, own.weight_decay) == (0.5, 0.1)


def test_the_small_recipe_lets_lower_blocks_learn_less(weights):
    config = resolve(TrainConfig(recipe="small"), source(800), weights)
    assert (config.optimizer, config.layer_decay, config.learning_rate) == ("adamw", 0.75, 1e-4)
    assert config.epochs == 10
    # Another optimizer than the recipe's brings its own rate.
    assert resolve(TrainConfig(optimizer="sgd"), source(), weights).learning_rate == 0.03
