import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from training import checkpoint
from training.averaging import averaged
from training.callbacks import (
    Checkpoints,
    EarlyStopping,
    History,
    NonFiniteLoss,
    SaveBest,
    bare,
)
from training.config import TrainConfig
from training.data.pipeline import Part
from training.optimizer import SGD
from training.run import Run
from training.signals import Signals, Stopped
from training.trainer import Trainer
from training.watching import Progress

CONFIG = TrainConfig(keep_checkpoints=2, checkpoint_every=2)


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run")


@pytest.fixture
def model():
    inputs = keras.Input((3,))
    trainer = Trainer(inputs, keras.layers.Dense(2)(inputs)).prepare()
    trainer.compile(
        SGD([1.0] * 2, [0.0] * 2, learning_rate=0.1, use_ema=True, ema_momentum=0.9),
        "mse",
        weighted_metrics=["accuracy"],
    )
    trainer.optimizer.build(trainer.trainable_variables)
    return trainer


def fit(model, callbacks, epochs=1, **settings):
    data = np.random.default_rng(0).normal(size=(12, 3)), np.ones((12, 2))
    return model.fit(
        *data, batch_size=4, shuffle=False, verbose=0, validation_data=data, epochs=epochs,
        callbacks=callbacks, **settings,
    )  # fmt: skip


def checkpoints(run, signals=None, index=0, others=None):
    return Checkpoints(run, CONFIG, Part(index, 1 + index), signals or Signals(), (), others or {})


def test_the_best_epoch_is_kept_and_of_equal_ones_the_least_loss(run, model):
    keep = SaveBest(run)
    keep.set_model(model)
    kept = []
    for accuracy, loss in [(0.5, 1.0), (0.6, 1.0), (0.6, 0.9), (0.6, 0.95), (0.55, 0.1)]:
        mark = len(kept) + 1.0
        averages = model.optimizer._model_variables_moving_average
        averages[1].assign([mark, mark])
        keep.on_epoch_end(0, {"val_accuracy": accuracy, "val_loss": loss})
        kept.append(float(keras.saving.load_model(run.model_path).layers[-1].bias[0]))
    assert kept == [1.0, 2.0, 3.0, 3.0, 3.0]


def test_the_best_model_is_bare(run, model):
    keep = SaveBest(run)
    fit(model, [keep])
    assert not keras.saving.load_model(run.model_path).compiled
    assert bare(model)(np.ones((1, 3))).numpy().tolist() == model(np.ones((1, 3))).numpy().tolist()


def test_only_the_chief_writes(run, model):
    others = {"history": History(run, False), "best": SaveBest(run, False)}
    fit(model, [*others.values(), checkpoints(run, index=1, others=others)])
    assert [path for path in run.path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_loss_that_is_no_number_ends_training_and_names_the_step(run, model, value):
    x = np.ones((12, 3), "float32")
    x[9] = value  # in the third batch
    with pytest.raises(NonFiniteLoss, match="not finite at step 2;.*step_0000000002.npz") as error:
        model.fit(
            x,
            np.ones((12, 2)),
            batch_size=4,
            shuffle=False,
            verbose=0,
            callbacks=[checkpoints(run)],
        )
    assert error.value.step == 2
    (path,) = checkpoint.checkpoints(run.checkpoints_path)
    assert all(np.isfinite(array).all() for array in checkpoint.load(path)[0].values())


def test_progress_and_history(run, model):
    history = History(run)
    fit(model, [Progress(4), history], epochs=2)
    rows = run.read_history()
    assert [row["epoch"] for row in rows] == ["0", "1"]
    assert all(float(row["images_per_second"]) > 0 for row in rows)
    assert float(rows[-1]["minutes_left"]) == 0
    np.testing.assert_allclose([float(row["learning_rate"]) for row in rows], 0.1)
    assert {"loss", "accuracy", "val_loss", "val_accuracy"} <= set(rows[0])
    again = History(run)
    again.set_state(json.loads(json.dumps(history.get_state())))
    assert again.rows == history.rows


def test_the_best_model_has_the_averaged_weights_and_training_its_own(run, model):
    weights = []
    record = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: weights.append(model.layers[-1].kernel.numpy())
    )
    fit(model, [record, SaveBest(run)])
    average = weights[0]  # Keras starts the average at the first updated weights
    for weight in weights[1:]:
        average = 0.9 * average + 0.1 * weight
    best = keras.saving.load_model(run.model_path).layers[-1].kernel.numpy()
    np.testing.assert_allclose(best, average, rtol=1e-5)


def test_swapping_averages_in_and_out_changes_no_bit(model):
    optimizer, kernel = model.optimizer, model.layers[-1].kernel
    optimizer._model_variables_moving_average[0].assign(np.full((3, 2), 1 / 3))
    before = kernel.numpy().copy()
    with averaged(model):
        np.testing.assert_array_equal(kernel.numpy(), np.full((3, 2), 1 / 3, "float32"))
    np.testing.assert_array_equal(kernel.numpy(), before)


def test_checkpoints_come_every_so_many_steps_and_after_each_epoch(run, model):
    written = []
    keep = checkpoints(run)
    write = keep.write
    keep.write = lambda *words: (written.append(words[:2]), write(*words))
    fit(model, [keep], epochs=3)
    assert written == [(0, 2), (1, 0), (1, 1), (2, 0), (2, 2), (3, 0)]
    names = [path.name for path in checkpoint.checkpoints(run.checkpoints_path)]
    assert names == ["step_0000000008.npz", "step_0000000009.npz"]
    arrays, facts = checkpoint.newest(run.checkpoints_path)
    assert facts["finished"] and facts["epoch"] == 3


@pytest.mark.parametrize("when", ["on_train_batch_begin", "on_test_batch_begin", "on_epoch_begin"])
def test_a_signal_saves_and_stops(run, model, when):
    signals = Signals()
    ask = keras.callbacks.LambdaCallback()
    setattr(ask, when, lambda number, logs=None: setattr(signals, "received", 15))
    with pytest.raises(Stopped, match="--resume --output") as stop:
        fit(model, [ask, checkpoints(run, signals)], epochs=3)
    assert stop.value.status == 143
    _, facts = checkpoint.newest(run.checkpoints_path)
    assert (facts["epoch"], facts["steps"]) == (0, 3 if "test" in when else 1)
    assert not facts["finished"]


def test_early_stopping_goes_on_counting(run, model):
    stop = EarlyStopping("val_accuracy", mode="max", patience=5)
    stop.set_state({"wait": 3, "stopped_epoch": 0, "best": 2.0, "best_epoch": 1})
    fit(model, [stop], epochs=9, initial_epoch=4)
    assert stop.stopped_epoch == 5  # two more of the five without a better one
    assert stop.get_state()["best"] == 2.0
    assert SimpleNamespace(**stop.get_state()).wait == 5
