import keras
import numpy as np
import pytest

from keras_vit import UserError
from training.callbacks import Progress, SaveBest, SaveLast, StopOnNaN, bare, make_callbacks
from training.config import TrainConfig
from training.run import Run


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run")


@pytest.fixture
def model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["accuracy"])
    return model


def test_the_best_epoch_is_kept_and_of_equal_ones_the_least_loss(run, model):
    keep = SaveBest(run)
    keep.set_model(model)
    kept = []
    for accuracy, loss in [(0.5, 1.0), (0.6, 1.0), (0.6, 0.9), (0.6, 0.95), (0.55, 0.1)]:
        mark = len(kept) + 1.0
        model.layers[0].bias.assign([mark, mark])
        keep.on_epoch_end(0, {"val_accuracy": accuracy, "val_loss": loss})
        kept.append(float(keras.saving.load_model(run.model_path).layers[-1].bias[0]))
    assert kept == [1.0, 2.0, 3.0, 3.0, 3.0]


def test_the_best_model_is_bare_and_the_last_has_its_optimizer(run, model):
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    for callback in (SaveBest(run), SaveLast(run)):
        callback.set_model(model)
        callback.on_epoch_end(0, {"val_accuracy": 1.0, "val_loss": 0.0})
    assert not keras.saving.load_model(run.model_path).compiled
    assert int(keras.saving.load_model(run.last_path).optimizer.iterations) == 1
    assert bare(model)(np.ones((1, 3))).numpy().tolist() == model(np.ones((1, 3))).numpy().tolist()


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_training_and_names_the_step(run, model, loss):
    stop = StopOnNaN(run)
    stop.set_model(model)
    stop.on_train_batch_end(0, {"loss": 1.0})
    with pytest.raises(
        UserError, match=f"the loss became {loss} at step 0; .*no model was saved yet"
    ):
        stop.on_train_batch_end(0, {"loss": loss})


def test_progress_goes_into_the_history(run, model):
    history = model.fit(
        np.ones((12, 3)), np.ones((12, 2)), batch_size=4, epochs=2, verbose=0,
        validation_data=(np.ones((4, 3)), np.ones((4, 2))), callbacks=[Progress(4)],
    ).history  # fmt: skip
    assert all(pace > 0 for pace in history["images_per_second"])
    assert history["minutes_left"][-1] == 0
    np.testing.assert_allclose(history["learning_rate"], 0.1)


def test_averaged_weights_are_what_the_best_model_keeps_and_the_last_does_not(run):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(
        keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9), "mse", metrics=["accuracy"]
    )
    weights = [model.layers[0].kernel.numpy()]
    record = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: weights.append(model.layers[0].kernel.numpy())
    )
    data = np.random.default_rng(0).normal(size=(12, 3)), np.ones((12, 2))
    config = TrainConfig(ema=0.9, batch_size=4)
    model.fit(
        *data, batch_size=4, shuffle=False, verbose=0, validation_data=data,
        callbacks=[record, *make_callbacks(config, run)],
    )  # fmt: skip
    average = weights[1]  # Keras starts the average at the first updated weights
    for weight in weights[2:]:
        average = 0.9 * average + 0.1 * weight
    best = keras.saving.load_model(run.model_path).layers[-1].kernel.numpy()
    last = keras.saving.load_model(run.last_path).layers[-1].kernel.numpy()
    np.testing.assert_allclose(best, average, rtol=1e-5)
    np.testing.assert_allclose(last, weights[-1], rtol=1e-6)


def test_early_stopping_waits_for_the_accuracy(run):
    callbacks = make_callbacks(TrainConfig(early_stopping=3, batch_size=1), run)
    (stop,) = [c for c in callbacks if isinstance(c, keras.callbacks.EarlyStopping)]
    assert (stop.monitor, stop.patience) == ("val_accuracy", 3)
    assert not any(
        isinstance(c, keras.callbacks.EarlyStopping)
        for c in make_callbacks(TrainConfig(batch_size=1), run)
    )
