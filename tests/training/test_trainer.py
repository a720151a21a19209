"""One step is the same on any number of replicas and in any number of slices."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from training.config import TrainConfig
from training.distribution import make_strategy
from training.optimizer import SGD, AdamW
from training.trainer import SEED_STATE, Trainer

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(256, 8, 8, 1)).astype("float32")
LABELS = np.eye(10, dtype="float32")[RNG.integers(0, 10, 256)]
HELD_OUT = 33  # with a batch of 32 the last has one image


def strategy_of(replicas: int):
    if replicas == 1:
        return tf.distribute.get_strategy()
    return make_strategy(TrainConfig(strategy="mirrored", devices=replicas))


def train(replicas=1, accumulate=1, steps=10, optimizer=SGD, precision="float32", **overrides):
    keras.utils.set_random_seed(0)
    strategy = strategy_of(replicas)
    with strategy.scope():
        model = keras_vit.create_model(
            "vit_mu4", image_size=8, in_channels=1, num_classes=10, dtype=precision, **overrides
        )
        count = len(model.trainable_variables)
        rule = optimizer(
            [1.0] * count, [0.01] * count, learning_rate=0.01, global_clipnorm=0.1, use_ema=True
        )
        if precision == "mixed_float16":
            rule = keras.optimizers.LossScaleOptimizer(rule)
        trainer = Trainer(model.inputs, model.outputs).prepare(accumulate)
        trainer.compile(
            rule,
            keras.losses.CategoricalCrossentropy(from_logits=True),
            weighted_metrics=["accuracy"],
            auto_scale_loss=False,
        )
    data = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS))
    data = data.batch(64, drop_remainder=True).repeat()
    held_out = tf.data.Dataset.from_tensor_slices((IMAGES[:HELD_OUT], LABELS[:HELD_OUT])).batch(32)
    history = trainer.fit(
        data, steps_per_epoch=steps, validation_data=held_out, shuffle=False, verbose=0
    ).history
    return trainer, {name: values[0] for name, values in history.items()}, held_out


def weights(trainer):
    return np.concatenate([v.numpy().ravel() for v in trainer.trainable_variables])


@pytest.fixture(scope="module")
def plain():
    return train()


@pytest.mark.parametrize(("replicas", "accumulate"), [(2, 1), (4, 1), (1, 4), (2, 2)])
def test_replicas_and_slices_change_nothing(plain, replicas, accumulate):
    """With clipping, weight decay and averages; four slices of 16 are one batch of 64."""
    trainer, logs, held_out = train(replicas, accumulate)
    np.testing.assert_allclose(weights(trainer), weights(plain[0]), rtol=0, atol=1e-6)
    for name, value in plain[1].items():
        assert logs[name] == pytest.approx(value, abs=1e-5), name
    averages = [v.numpy() for v in plain[0].optimizer._model_variables_moving_average]
    for ours, theirs in zip(
        trainer.optimizer._model_variables_moving_average, averages, strict=True
    ):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-6)
    predictions = trainer.predict(held_out, verbose=0)
    np.testing.assert_allclose(predictions, plain[0].predict(held_out, verbose=0), atol=1e-5)


@pytest.mark.parametrize(("replicas", "accumulate"), [(1, 1), (1, 4), (2, 2)])
def test_computing_again_changes_nothing(plain, replicas, accumulate):
    trainer, logs, _ = train(replicas, accumulate, remat="block")
    np.testing.assert_allclose(weights(trainer), weights(plain[0]), rtol=0, atol=1e-6)
    assert logs["loss"] == pytest.approx(plain[1]["loss"], abs=1e-5)


def test_validation_counts_each_image_once(plain):
    """The last batch has one image; Keras would give it the weight of its batch."""
    trainer, logs, held_out = plain
    logits = trainer.predict(held_out, verbose=0)
    scores = trainer.evaluate(held_out, return_dict=True, verbose=0)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)(LABELS[:HELD_OUT], logits)
    right = np.mean(logits.argmax(axis=1) == LABELS[:HELD_OUT].argmax(axis=1))
    assert scores["loss"] == pytest.approx(float(loss), abs=1e-5)
    assert scores["accuracy"] == pytest.approx(right, abs=1e-6)


def test_what_fills_a_batch_counts_nothing(plain):
    trainer = plain[0]
    settings = {"batch_size": 20, "return_dict": True, "verbose": 0}
    filled = np.r_[np.ones(27), np.zeros(13)]
    scores = trainer.evaluate(IMAGES[:40], LABELS[:40], sample_weight=filled, **settings)
    plain_scores = trainer.evaluate(IMAGES[:27], LABELS[:27], return_dict=True, verbose=0)
    for name, value in plain_scores.items():
        assert scores[name] == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_clip_acts_on_the_gradient_of_the_whole_batch(replicas):
    """Keras clips each replica's own: with two the update would be up to twice as long."""
    before, after = (weights(train(replicas, steps=n, optimizer=plain_sgd)[0]) for n in (1, 2))
    assert np.linalg.norm(after - before) == pytest.approx(0.01 * 0.1, rel=1e-3)


def plain_sgd(rates, decays, **settings):
    return SGD(rates, [0.0] * len(decays), **(settings | {"use_ema": False}))


def test_float16_scales_the_loss_on_every_replica():
    one, two = (train(replicas, precision="mixed_float16", steps=5)[0] for replicas in (1, 2))
    scale = [trainer.optimizer.dynamic_scale.numpy() for trainer in (one, two)]
    assert scale[0] == scale[1] > 1
    np.testing.assert_allclose(weights(one), weights(two), atol=1e-3)


def test_adam_reaches_the_same_loss_on_two_replicas():
    losses = [train(replicas, steps=50, optimizer=AdamW)[1]["loss"] for replicas in (1, 2)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_each_replica_draws_its_own_masks():
    trainer, _, _ = train(2, drop_path=0.5, dropout=0.1)
    trainer.spread_seeds()
    seeds = [v.value for v in trainer.non_trainable_variables if v.path.endswith(SEED_STATE)]
    for seed in seeds:
        first, second = (value.numpy() for value in seed.values)
        assert first[0] != second[0] and first[1] == second[1]


def test_the_first_bad_step_is_kept():
    trainer, _, _ = train(2)
    assert int(trainer.bad_step.numpy()) == -1 and int(trainer.steps_done.numpy()) == 10
    bad = IMAGES[:64].copy()
    bad[50] = np.nan  # on the second replica
    data = tf.data.Dataset.from_tensors((bad, LABELS[:64])).repeat()
    trainer.fit(data, steps_per_epoch=3, verbose=0)
    assert int(trainer.bad_step.numpy()) == 10


def test_steps_of_a_checkpoint_are_passed_over_without_data():
    trainer, _, _ = train()
    before = weights(trainer)
    trainer.start_at(3, replayed=3)
    trainer.fit(tf.data.Dataset.from_tensors((IMAGES, LABELS)), steps_per_epoch=3, verbose=0)
    np.testing.assert_array_equal(weights(trainer), before)
