"""The optimizers against NumPy, which weights decay, and what a saved one still knows."""

from dataclasses import replace

import keras
import numpy as np
import pytest

import keras_vit
from training.config import TrainConfig
from training.optimizer import is_decayed, layer_rates, make_optimizer
from training.schedule import WarmupDecay

SCHEDULE = WarmupDecay(0.01, 2, 8)
RATES = [0.005, 0.01, 0.01]  # its first steps, by hand
CONFIG = TrainConfig(weight_decay=0.1, layer_decay=0.5, clip_norm=1.0)


@pytest.fixture
def model():
    return keras_vit.create_model("vit_mu4", image_size=8, in_channels=1, num_classes=10)


def gradients(model, step) -> list[np.ndarray]:
    """Made up, of a norm that is clipped in the steps 0 and 2."""
    rng = np.random.default_rng(step)
    scale = [1.0, 1e-3, 0.1][step]
    return [(scale * rng.normal(size=v.shape)).astype("float32") for v in model.trainable_variables]


def values(variables) -> list[np.ndarray]:
    return [keras.ops.convert_to_numpy(v).astype("float64") for v in variables]


def clipped(grads) -> list[np.ndarray]:
    norm = np.sqrt(sum(np.sum(np.square(g.astype("float64"))) for g in grads))
    return [g * min(1.0, 1.0 / norm) for g in grads]


def expected_factors(model) -> list[tuple[float, float]]:
    """(learning rate factor, weight decay) of each variable of a model with one block, by hand."""
    factors = []
    for v in model.trainable_variables:
        top = v.path.split("/")[0]
        rate = {"patch_encoder": 0.25, "block_00": 0.5, "encoder_norm": 0.5, "head": 1.0}[top]
        factors.append((rate, 0.1 if v.path.endswith("kernel") else 0.0))
    return factors


def adamw_in_numpy(model, steps):
    """Loshchilov & Hutter 2019, algorithm 2, with the epsilon of Kingma & Ba 2015, end of
    section 2, as in Keras: it is added to the uncorrected root."""
    weights, factors = values(model.trainable_variables), expected_factors(model)
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for step in range(steps):
        for i, g in enumerate(clipped(gradients(model, step))):
            rate = RATES[step] * factors[i][0]
            weights[i] -= rate * factors[i][1] * weights[i]
            first[i] = 0.9 * first[i] + 0.1 * g
            second[i] = 0.999 * second[i] + 0.001 * g * g
            rate *= np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
            weights[i] -= rate * first[i] / (np.sqrt(second[i]) + 1e-8)
    return weights


def sgd_in_numpy(model, steps):
    """Momentum as Keras has it: the learning rate of each step is in the velocity."""
    weights, factors = values(model.trainable_variables), expected_factors(model)
    velocity = [np.zeros_like(w) for w in weights]
    for step in range(steps):
        for i, g in enumerate(clipped(gradients(model, step))):
            rate = RATES[step] * factors[i][0]
            weights[i] -= rate * factors[i][1] * weights[i]
            velocity[i] = 0.9 * velocity[i] - rate * g
            weights[i] += velocity[i]
    return weights


def assert_all_close(found, expected, **tolerance):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


# Float32 weights of about 1 after three steps of 0.01: differences are rounding.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.mark.parametrize("name, reference", [("adamw", adamw_in_numpy), ("sgd", sgd_in_numpy)])
def test_three_steps_equal_numpy(model, name, reference):
    expected = reference(model, 3)
    optimizer = make_optimizer(replace(CONFIG, optimizer=name), model, SCHEDULE)
    for step in range(3):
        optimizer.apply(gradients(model, step), model.trainable_variables)
    assert_all_close(values(model.trainable_variables), expected, **CLOSE)


def test_loss_scaling_changes_nothing_and_skips_a_step_that_overflows(model):
    expected = adamw_in_numpy(model, 3)
    inner = make_optimizer(CONFIG, model, SCHEDULE)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=1024.0)
    for step in range(3):
        grads = gradients(model, step)
        before = values(model.trainable_variables)
        optimizer.apply([g * np.float32(np.inf) for g in grads], model.trainable_variables)
        assert_all_close(values(model.trainable_variables), before, rtol=0)
        scale = float(optimizer.dynamic_scale)
        optimizer.apply([g * np.float32(scale) for g in grads], model.trainable_variables)
    assert scale == 128.0
    assert int(optimizer.iterations) == 3
    assert_all_close(values(model.trainable_variables), expected, **CLOSE)


def test_averaged_weights_are_the_running_mean(model):
    optimizer = make_optimizer(replace(CONFIG, ema=0.8), model, SCHEDULE)
    mean = None
    for step in range(3):
        optimizer.apply(gradients(model, step), model.trainable_variables)
        now = values(model.trainable_variables)
        mean = [0.8 * m + 0.2 * w for m, w in zip(mean or now, now, strict=True)]
    assert_all_close(values(optimizer._model_variables_moving_average), mean, **CLOSE)


@pytest.mark.parametrize("clip_norm, moved", [(1e-6, 1e-8), (None, None)])
def test_the_gradient_is_clipped_only_if_asked(model, clip_norm, moved):
    config = replace(CONFIG, optimizer="sgd", clip_norm=clip_norm, weight_decay=0.0)
    before = values(model.trainable_variables)
    make_optimizer(config, model, SCHEDULE).apply(gradients(model, 0), model.trainable_variables)
    after = values(model.trainable_variables)
    largest = max(np.abs(a - b).max() for a, b in zip(after, before, strict=True))
    assert largest < moved if moved else largest > 1e-3


@pytest.mark.parametrize("name, dtype", [("adamw", "float32"), ("sgd", "mixed_float16")])
def test_a_saved_model_goes_on_as_if_never_saved(tmp_path, name, dtype):
    model = keras_vit.create_model(
        "vit_mu4", image_size=8, in_channels=1, num_classes=10, dtype=dtype
    )
    config = replace(CONFIG, optimizer=name, ema=0.9)
    model.compile(
        make_optimizer(config, model, SCHEDULE), keras.losses.CategoricalCrossentropy(True)
    )
    images = np.random.default_rng(0).normal(size=(8, 8, 8, 1)).astype("float32")
    labels = np.eye(10, dtype="float32")[:8]
    model.train_on_batch(images, labels)
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    assert type(copy.optimizer) is type(model.optimizer)
    assert copy.optimizer.get_config() == model.optimizer.get_config()
    for each in (model, copy):
        each.train_on_batch(images, labels)
    assert int(copy.optimizer.iterations) == 2
    assert_all_close(values(copy.weights), values(model.weights), rtol=0)
    assert_all_close(values(copy.optimizer.variables), values(model.optimizer.variables), rtol=0)


FULL = {
    "image_size": 8,
    "in_channels": 1,
    "num_register_tokens": 2,
    "distillation_token": True,
    "layer_scale": 1e-4,
    "qk_norm": True,
    "pre_norm": True,
}


def test_only_kernels_decay():
    models = [
        keras_vit.create_model("vit_mu4", num_classes=10, **FULL),
        keras_vit.create_model(
            "vit_mu4", image_size=8, num_classes=10, pooling="attention", representation_size=8
        ),
        keras_vit.create_model("mixer_s16", image_size=32, num_classes=10, num_layers=1),
        keras_vit.create_model("r_vit_ti16", image_size=32, num_classes=10, num_layers=1),
    ]
    names = {(v.name, is_decayed(v)) for model in models for v in model.trainable_variables}
    assert names == {
        ("kernel", True),
        ("probe", True),  # a query like any other; timm decays its `latent` too
        ("bias", False),
        ("gamma", False),
        ("beta", False),
        ("class_token", False),
        ("distillation_token", False),
        ("register_tokens", False),
        ("position_embedding", False),
    }


def test_layer_decay_is_timm_s():
    """timm 0.75 on ViT-B: embedding 0.75 ** 13, last block and last norm 0.75, head 1."""
    model = keras_vit.create_model("vit_ti16", image_size=32, num_classes=10)
    variables = model.trainable_variables
    found = {}
    for v, rate in zip(variables, layer_rates(variables, 0.75), strict=True):
        found.setdefault(v.path.split("/")[0], set()).add(rate)
    blocks = {f"block_{i:02d}": {0.75 ** (12 - i)} for i in range(12)}
    assert found == blocks | {
        "patch_encoder": {0.75**13},
        "encoder_norm": {0.75},
        "head": {1.0},
    }


def test_what_lies_before_the_blocks_learns_slowest_and_what_lies_behind_as_fast_as_the_head():
    for model, last in (
        (keras_vit.create_model("vit_mu4", num_classes=10, **FULL), {"head", "head_distillation"}),
        (keras_vit.create_model("r_vit_ti16", image_size=32, num_layers=1), {"head"}),
        (
            keras_vit.create_model(
                "vit_mu4", image_size=8, pooling="attention", representation_size=8
            ),
            {"pool", "pre_logits", "head"},
        ),
    ):
        variables = model.trainable_variables
        for v, rate in zip(variables, layer_rates(variables, 0.5), strict=True):
            top = v.path.split("/")[0]
            if top in ("block_00", "encoder_norm"):
                assert rate == 0.5
            else:
                assert rate == (1.0 if top in last else 0.25), v.path


def test_frozen_layers_leave_the_others_their_rates(model):
    model.get_layer("patch_encoder").trainable = False
    paths = [v.path for v in model.trainable_variables]
    rates = dict(zip(paths, layer_rates(model.trainable_variables, 0.5), strict=True))
    assert not any(path.startswith("patch_encoder") for path in rates)
    assert rates["block_00/mlp/expand/kernel"] == rates["encoder_norm/gamma"] == 0.5
    assert rates["head/kernel"] == 1.0
