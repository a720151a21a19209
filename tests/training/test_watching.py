"""What a run shows while it goes on, and that looking changes nothing."""

import sys
import time
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorflow.python.data.experimental.ops import testing

import keras_vit
from benchmarks.kills import same
from training import cli
from training.callbacks import Checkpoints
from training.config import TrainConfig
from training.data.preprocess import Preprocess
from training.distribution import distribute, make_strategy
from training.run import Run
from training.trainer import Trainer
from training.watching import Progress, make_progress, training_flops, write_images

WORDS = ("train", "--data", "digits", "--model", "vit_mu2", "--batch-size", "256")
WORDS += ("--epochs", "2", "--augment", "strong", "--dropout", "0.1")


def train(path, *words) -> Run:
    assert cli.main([*WORDS, "--output", str(path), *words]) == 0
    return Run(path)


def events(folder) -> EventAccumulator:
    return EventAccumulator(str(folder), {"images": 0, "tensors": 0}).Reload()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return train(tmp_path_factory.mktemp("runs") / "plain")


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    words = ("--peak-tflops", "0.1", "--tensorboard-images", "3", "--tensorboard-histograms")
    return train(tmp_path_factory.mktemp("runs") / "watched", *words, "--cache")


def test_looking_changes_no_bit(plain, watched):
    assert same(plain.path, watched.path)


def test_the_history_has_the_share_of_waiting_and_on_request_the_utilisation(plain, watched):
    assert "mfu" not in plain.read_history()[0]
    flops = 3 * keras_vit.count_flops(
        keras_vit.find_config("vit_mu2", image_size=8, in_channels=1, num_classes=10)
    )
    for row in watched.read_history():
        assert 0 < float(row["data_wait"]) < 1
        expected = float(row["images_per_second"]) * flops / 0.1e12
        assert float(row["mfu"]) == pytest.approx(expected, abs=1e-4)


def test_tensorboard_has_scalars_images_and_histograms(plain, watched):
    scalars = {"epoch_data_wait", "epoch_mfu", "epoch_images_per_second", "epoch_loss"}
    tags = set(events(watched.logs_path / "train").Tags()["tensors"])
    assert tags >= scalars
    histograms = {tag for tag in tags if tag.endswith("/histogram")}
    assert len(histograms) == len(watched.load_model().weights)
    images = events(watched.logs_path).Tags()["tensors"]
    assert images == [f"training_images/{number}" for number in range(3)]
    assert not list(plain.logs_path.glob("events*"))
    plain_tags = events(plain.logs_path / "train").Tags()["tensors"]
    assert not [tag for tag in plain_tags if "histogram" in tag]


def test_images_are_shown_with_the_colours_that_they_have(tmp_path):
    preprocess = Preprocess(image_size=(2, 3), mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3))
    colours = np.array([[51, 102, 204], [0, 255, 51]], "float32") / 255
    images = np.broadcast_to(colours[:, None, None], (2, 2, 3, 3))
    normal = ((images - preprocess.mean) / preprocess.std).astype("float32")
    batches = tf.data.Dataset.from_tensors((normal, [0, 1])).repeat()
    write_images(tmp_path, batches, preprocess, 2)
    found = events(tmp_path)
    for number in range(2):
        (event,) = found.Tensors(f"training_images/{number}")
        pixels = tf.io.decode_png(event.tensor_proto.string_val[2]).numpy()
        np.testing.assert_allclose(pixels / 255, images[number], atol=1 / 255)


class Slow(keras.layers.Layer):
    """Takes so long a step, so that no busy machine makes its data look slow."""

    def __init__(self, milliseconds):
        super().__init__()
        self.milliseconds = milliseconds

    def call(self, inputs):
        def sleep(values):
            time.sleep(self.milliseconds / 1000)
            return values

        return tf.ensure_shape(tf.numpy_function(sleep, [inputs], inputs.dtype), inputs.shape)

    def compute_output_shape(self, input_shape):
        return input_shape


def waiting(data, step=0, replicas=1, steps_per_execution=1, held_out=0) -> dict:
    """The last logs of two epochs of 12 steps; times of a batch and a step in milliseconds."""
    config = TrainConfig(strategy="mirrored", devices=replicas) if replicas > 1 else None
    strategy = make_strategy(config) if config else tf.distribute.get_strategy()
    with strategy.scope():
        inputs = keras.Input((3,))
        trainer = Trainer(inputs, keras.layers.Dense(2)(Slow(step)(inputs))).prepare()
        trainer.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    batches = tf.data.Dataset.from_tensors((np.ones((4, 3)), np.ones((4, 2)))).repeat()
    validation = batches.take(2).apply(testing.sleep(1000 * held_out))
    logs = trainer.fit(
        distribute(strategy, batches.apply(testing.sleep(1000 * data)), 4), steps_per_epoch=12,
        epochs=2, verbose=0, shuffle=False, validation_data=distribute(strategy, validation, 4),
        validation_steps=2, callbacks=[Progress(4)],
    ).history  # fmt: skip
    return {name: values[-1] for name, values in logs.items()}


@pytest.mark.parametrize(("replicas", "steps"), [(1, 1), (1, 3), (2, 1), (2, 3)])
def test_steps_that_wait_for_slow_data_are_seen(replicas, steps):
    slow = waiting(60, 0, replicas, steps)["data_wait"]
    assert slow > 0.5
    assert waiting(0, 60, replicas, steps)["data_wait"] < slow / 2


def test_the_waits_of_validation_are_not_those_of_training():
    assert waiting(0, 50, held_out=200)["data_wait"] < 0.5


def test_each_stage_of_progressive_resizing_has_its_own_operations():
    config = TrainConfig(image_size=(8, 8), progressive=((4, 4),), epochs=4)
    model = keras_vit.create_model("vit_mu2", image_size=8, num_classes=10, patch_dropout=0.5)
    flops, own = training_flops(config, model, steps=5), keras_vit.config_of(model)
    small, large = (
        3 * keras_vit.count_flops(replace(own, image_size=(side, side)), training=True)
        for side in (4, 8)
    )
    assert [flops(epoch) for epoch in range(4)] == [small, small, large, large]
    assert large < 3 * keras_vit.count_flops(own)


def test_the_peak_is_that_of_all_devices():
    config = TrainConfig(image_size=(8, 8), epochs=1, batch_size=4, peak_tflops=2.0)
    strategy = make_strategy(TrainConfig(strategy="mirrored", devices=4))
    with strategy.scope():
        model = keras_vit.create_model("vit_mu2", image_size=8, num_classes=10)
        trainer = Trainer(model.inputs, model.outputs).prepare()
    assert make_progress(config, trainer, steps=5).peak_flops == 8e12


def test_a_peak_needs_all_weights_to_train():
    with pytest.raises(ValueError, match="peak_tflops .* freeze=backbone"):
        TrainConfig(peak_tflops=1.0, freeze="backbone")


class Fake(ModuleType):
    """Stands for wandb and for mlflow; keeps what it is told."""

    def __init__(self):
        super().__init__("fake")
        self.started, self.settings, self.rows, self.open = [], [], [], 0

    def begin(self, id, settings):
        self.started.append(id)
        self.settings.append(settings)
        self.open += 1
        return id or f"run-{len(self.started)}"

    # wandb
    def init(self, *, project, name, dir, config, id, resume):
        assert (project, resume) == ("flowers", "allow")
        id = self.begin(id, config)
        log = lambda row, step: self.rows.append((step, row))  # noqa: E731
        return SimpleNamespace(id=id, log=log, finish=self.end_run)

    # mlflow
    def set_experiment(self, name):
        assert name == "flowers"

    def start_run(self, run_id, run_name):
        assert not self.open
        return SimpleNamespace(info=SimpleNamespace(run_id=self.begin(run_id, None)))

    def log_params(self, settings):
        self.settings[-1] = settings

    def log_metrics(self, row, step):
        assert self.open
        self.rows.append((step, row))

    def end_run(self):
        self.open = 0


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_tracker_gets_settings_and_epochs_and_a_resumed_run_goes_on(
    name, plain, tmp_path, monkeypatch
):
    fake = Fake()
    monkeypatch.setitem(sys.modules, name, fake)

    def ask(self, epoch, logs=None):
        self.signals.received = 15
        save(self, epoch, logs)

    save = Checkpoints.on_epoch_end
    monkeypatch.setattr(Checkpoints, "on_epoch_end", ask)
    words = [*WORDS, "--output", str(tmp_path / "run")]
    assert cli.main([*words, f"--{name}", "flowers"]) == 143
    monkeypatch.setattr(Checkpoints, "on_epoch_end", save)
    run = train(tmp_path / "run", "--resume", f"--{name}", "flowers")
    assert fake.started == [None, "run-1"]
    assert fake.settings[0]["batch_size"] == 256 and fake.settings[1] is None
    assert [step for step, _ in fake.rows] == [0, 1]
    last = run.read_history()[-1]
    assert fake.rows[-1][1]["val_loss"] == float(last["val_loss"])
    assert fake.open == 0
    assert same(plain.path, run.path)


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_tracker_that_is_not_installed_is_named_before_any_data_is_read(
    name, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, name, None)
    words = ["train", "--data", "folder:/no/where", "--output", str(tmp_path / "run")]
    assert cli.main([*words, f"--{name}", "flowers"]) == 2
    expected = f"keras-vit train: --{name} needs a package: pip install {name}"
    assert capsys.readouterr().err.splitlines() == [expected]


def test_what_is_watched_may_differ_on_resume(plain, tmp_path, monkeypatch):
    """The first epoch's row has no mfu, the second one's has."""
    monkeypatch.setattr(
        Checkpoints, "on_train_batch_begin", lambda self, batch, logs=None: stop(self, batch)
    )

    def stop(self, batch):
        if self.epoch == 1:
            self.model.wish.assign(1.0)

    path = tmp_path / "run"
    assert cli.main([*WORDS, "--output", str(path)]) == 143
    monkeypatch.undo()
    run = train(path, "--resume", "--peak-tflops", "0.1", "--tensorboard-histograms")
    assert [row["mfu"] != "" for row in run.read_history()] == [False, True]
    assert same(plain.path, path)
