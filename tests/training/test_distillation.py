"""A teacher: DeiT's numbers, which head learns what, exact resume, what cannot teach, and use."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from benchmarks.kills import same
from training import cli
from training.callbacks import Checkpoints
from training.config import TrainConfig
from training.data.preprocess import Preprocess
from training.data.sources import open_source
from training.distillation import (
    Distillation,
    make_distillation,
    teacher_of,
    with_heads,
    without_softmax,
)
from training.distribution import make_strategy
from training.inference import answers
from training.optimizer import SGD
from training.progressive import Stage, choose_stage
from training.run import Run
from training.trainer import Trainer

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(64, 8, 8, 1)).astype("float32")
LABELS = np.eye(10, dtype="float32")[RNG.integers(0, 10, 64)]
DIGITS = tuple("0123456789")
PREPROCESS = Preprocess(image_size=(8, 8), channels=1)


def log_softmax(values):
    values = values.astype("float64")
    return values - np.log(np.exp(values).sum(axis=1, keepdims=True))


def deits_loss(base, student, teacher, kind, alpha, tau):
    """`DistillationLoss.forward` of facebookresearch/deit, losses.py, in NumPy."""
    if kind == "soft":
        ours, theirs = log_softmax(student / tau), log_softmax(teacher / tau)
        # F.kl_div(ours, theirs, reduction="sum", log_target=True)
        distillation = np.sum(np.exp(theirs) * (theirs - ours)) * (tau * tau) / student.size
    else:
        chosen = teacher.argmax(axis=1)
        distillation = -log_softmax(student)[np.arange(len(student)), chosen].mean()
    return base * (1 - alpha) + distillation * alpha


@pytest.mark.parametrize("kind", ["soft", "hard"])
@pytest.mark.parametrize(("alpha", "tau"), [(0.5, 3.0), (0.1, 1.0), (1.0, 20.0)])
def test_the_loss_is_deits(kind, alpha, tau):
    student, teacher = RNG.normal(0, 3, (2, 7, 5)).astype("float32")
    found = Distillation(None, kind, alpha, tau).loss(1.25, student, teacher)
    expected = deits_loss(1.25, student, teacher, kind, alpha, tau)
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_the_loss_of_two_classes_by_hand():
    """Student 1/2, 1/2; teacher 3/4, 1/4: KL = 3/4 ln(3/2) + 1/4 ln(1/2), divided by 1 x 2."""
    student, teacher = np.zeros((1, 2), "float32"), np.log([[3.0, 1.0]]).astype("float32")
    divergence = 0.75 * np.log(1.5) + 0.25 * np.log(0.5)
    found = Distillation(None, "soft", 1.0, 1.0).loss(9.0, student, teacher)
    assert float(found) == pytest.approx(divergence / 2, rel=1e-5)
    found = Distillation(None, "hard", 1.0, 1.0).loss(9.0, student, teacher)
    assert float(found) == pytest.approx(np.log(2), rel=1e-5)


def test_each_example_counts_by_its_weight():
    student, teacher = RNG.normal(0, 3, (2, 4, 5)).astype("float32")
    distillation = Distillation(None, "hard", 1.0, 1.0)
    each = [float(distillation.loss(0.0, student[i : i + 1], teacher[i : i + 1])) for i in range(4)]
    weights = np.array([0.0, 1.0, 2.0, 0.5])
    found = distillation.loss(0.0, student, teacher, weights)
    assert float(found) == pytest.approx(np.mean(weights * each), rel=1e-5)


def known_teacher(images):
    """Logits that anybody can compute again."""
    return tf.reduce_mean(images, axis=[1, 2]) * tf.range(10.0) * 9


def train(alpha=0.5, kind="hard", replicas=1, accumulate=1, sizes=(), steps=3, **overrides):
    """(trainer, student, weights before, logs)"""
    keras.utils.set_random_seed(0)
    devices = {"strategy": "mirrored", "devices": replicas} if replicas > 1 else {}
    with make_strategy(TrainConfig(**devices)).scope():
        settings = {"image_size": 8, "in_channels": 1, "num_classes": 10, **overrides}
        model = keras_vit.create_model(settings.pop("model", "vit_mu4_distilled"), **settings)
        count = len(model.trainable_variables)
        distillation = Distillation(known_teacher, kind, alpha, 3.0)
        stages = [*(Stage(0, 1, size) for size in sizes), Stage(0, None, (8, 8))]
        trainer = Trainer(model.inputs, model.outputs).prepare(
            accumulate, choose_stage(with_heads(model), stages), distillation
        )
        trainer.compile(
            SGD([1.0] * count, [0.0] * count, learning_rate=0.1),
            keras.losses.CategoricalCrossentropy(from_logits=True),
            weighted_metrics=["accuracy"],
            auto_scale_loss=False,
        )
    before = {v.path: v.numpy() for v in trainer.trainable_variables}
    data = tf.data.Dataset.from_tensors((IMAGES, LABELS)).repeat()
    history = trainer.fit(data, steps_per_epoch=steps, shuffle=False, verbose=0).history
    return trainer, model, before, {name: values[0] for name, values in history.items()}


@pytest.mark.parametrize(
    ("alpha", "learns", "stays"),
    [(1.0, "head_distillation", "head"), (0.0, "head", "head_distillation")],
)
def test_the_teacher_has_a_head_and_the_labels_have_one(alpha, learns, stays):
    trainer, _, before, _ = train(alpha, steps=1)
    moved = {
        v.path.split("/")[0]: np.abs(v.numpy() - before[v.path]).max()
        for v in trainer.trainable_variables
        if v.path.startswith("head") and v.path.endswith("bias")
    }
    assert moved[learns] > 1e-3 and moved[stays] == 0


@pytest.mark.parametrize("model", ["vit_mu4_distilled", "vit_mu4"])
@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_the_loss_of_a_step_is_deits_of_the_heads(model, kind):
    """In training the loss is each head's own, and the accuracy that of the answer: their mean."""
    trainer, student, _, _ = train(kind=kind, model=model)
    answer, of_labels, of_teacher = (v.numpy() for v in with_heads(student)(IMAGES))
    np.testing.assert_allclose(answer, (of_labels + of_teacher) / 2, atol=1e-6)
    base = -np.sum(LABELS * log_softmax(of_labels), axis=1).mean()
    expected = deits_loss(base, of_teacher, known_teacher(IMAGES).numpy(), kind, 0.5, 3.0)
    data = tf.data.Dataset.from_tensors((IMAGES, LABELS)).repeat()
    logs = trainer.fit(data, steps_per_epoch=1, shuffle=False, verbose=0).history
    assert logs["loss"][0] == pytest.approx(expected, rel=1e-4)
    right = np.mean(answer.argmax(axis=1) == LABELS.argmax(axis=1))
    assert logs["accuracy"][0] == pytest.approx(right, abs=1e-6)


@pytest.fixture(scope="module")
def plain():
    return train(kind="soft")


@pytest.mark.parametrize(
    "settings",
    [{"replicas": 2, "accumulate": 2}, {"accumulate": 4, "remat": "block"}, {"sizes": [(4, 4)]}],
)
def test_replicas_slices_and_stages_change_nothing(plain, settings):
    trainer, _, _, logs = train(kind="soft", **settings)
    for ours, theirs in zip(trainer.trainable_variables, plain[0].trainable_variables, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=0, atol=1e-5)
    assert logs["loss"] == pytest.approx(plain[3]["loss"], abs=1e-5)


def mean_of_images(size=(8, 8), channels=1, num_classes=10, **head):
    image = keras.Input((*size, channels))
    x = keras.layers.GlobalAveragePooling2D()(image)
    return keras.Model(image, keras.layers.Dense(num_classes, **head)(x))


def test_the_teacher_sees_its_own_normalisation_and_size():
    own = Preprocess(image_size=(4, 4), channels=1, mean=(0.2,), std=(0.1,))
    image = keras.Input((4, 4, 1))
    teach = teacher_of(keras.Model(image, keras.layers.Flatten()(image)), PREPROCESS, own)
    pixels = (IMAGES * 0.5 + 0.5 - 0.2) / 0.1
    halved = pixels.reshape(64, 4, 2, 4, 2).mean(axis=(2, 4))  # bilinear, at half the size
    np.testing.assert_allclose(teach(IMAGES), halved.reshape(64, 16), rtol=1e-4, atol=1e-4)


def test_probabilities_become_logits_again():
    logits = mean_of_images()
    model = mean_of_images(activation="softmax")
    model.set_weights(logits.get_weights())
    nested = without_softmax(keras.Sequential([keras.Input((8, 8, 1)), model]))
    np.testing.assert_allclose(nested(IMAGES), logits(IMAGES), atol=1e-6)


def config_of(teacher, **settings):
    return TrainConfig(teacher=str(teacher), **{"distillation": "hard", **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_classes": 7}, r"gives \(None, 7\); it must .* give logits \(None, 10\)"),
        (
            {"channels": 3},
            r"takes \(None, 8, 8, 3\) .* it must take images \(None, height, width, 1\)",
        ),
    ],
)
def test_a_teacher_of_something_else_is_refused(tmp_path, settings, message):
    mean_of_images(**settings).save(tmp_path / "teacher.keras")
    with pytest.raises(keras_vit.UserError, match=message):
        make_distillation(config_of(tmp_path / "teacher.keras"), PREPROCESS, DIGITS)


def test_what_is_no_teacher_is_refused_in_one_line(tmp_path, tiny_run, capsys):
    (tmp_path / "a.keras").write_text("no model")
    words = ["train", "--model", "vit_mu4", "--epochs", "1", "--output", str(tmp_path / "run")]
    for teacher, message in (
        (tmp_path / "a.keras", "is no Keras model"),
        (tmp_path / "b.keras", "does not exist; name a .keras file or a finished run folder"),
        (tmp_path, "model.keras does not exist"),
    ):
        assert cli.main([*words, "--teacher", str(teacher)]) == 2
        error = capsys.readouterr().err
        assert f"teacher={str(teacher)!r}" in error and message in error
        assert len(error.splitlines()) == 1
    assert cli.main([*words, "--distillation", "hard"]) == 2
    assert "distillation=hard needs teacher, a .keras file" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    with pytest.raises(keras_vit.UserError, match="must be the data's in the same order: 9, 8"):
        make_distillation(config_of(tiny_run), PREPROCESS, DIGITS[::-1])


SHORT = ("train", "--batch-size", "128", "--seed", "1", "--learning-rate", "2e-3")


@pytest.fixture(scope="module")
def weak(tmp_path_factory):
    """A teacher that is wrong about half of the digits, in its own way."""
    path = tmp_path_factory.mktemp("runs") / "teacher"
    words = ("--model", "vit_xxs2", "--epochs", "2", "--augment", "none")
    assert cli.main([*SHORT, *words, "--output", str(path)]) == 0
    return path


def test_a_student_answers_as_its_teacher_does(tmp_path, weak):
    """Mistakes too, which a student of the labels alone does not make."""
    split = open_source("digits", seed=1, validation_fraction=0.2).splits["validation"]

    def classes(run):
        preprocess = Preprocess.from_dict(run.read_preprocess())
        logits, labels, _ = answers(run.load_model(), [split], preprocess, 64)
        return logits.argmax(axis=1), labels

    agreement = []
    for name, more in (
        ("alone", ()),
        ("taught", ("--teacher", str(weak), "--distillation-alpha", "1")),
    ):
        path = tmp_path / name
        words = ("--model", "vit_mu2_distilled", "--epochs", "8", "--augment", "none", *more)
        words += ("--learning-rate", "8e-3", "--batch-size", "32")
        assert cli.main([*SHORT, *words, "--output", str(path)]) == 0
        (ours, labels), (theirs, _) = classes(Run.open(path)), classes(Run.open(weak))
        agreement.append(np.mean(ours == theirs))
        # What validation counted is what the saved model answers.
        best = max(float(row["val_accuracy"]) for row in Run.open(path).read_history())
        assert best == pytest.approx(np.mean(ours == labels), abs=1e-6)
    assert agreement[1] > agreement[0] + 0.1


def test_a_run_with_a_teacher_goes_on_exactly_and_with_no_other(
    tmp_path, tiny_run, monkeypatch, capsys
):
    teacher = tmp_path / "teacher.keras"
    teacher.write_bytes((tiny_run / "model.keras").read_bytes())
    words = [*SHORT, "--model", "vit_mu2_distilled", "--epochs", "2", "--progressive", "4"]
    words += ["--mixup", "0.2", "--ema", "0.9", "--precision", "float16", "--drop-path", "0.1"]
    words += ["--teacher", str(teacher), "--distillation", "soft"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert cli.main([*words, "--output", str(whole)]) == 0
    assert f"{teacher}: soft distillation" in capsys.readouterr().out

    def ask(self, batch, logs=None):
        if (self.epoch, batch) == (1, 3):
            self.signals.received = 15
        original(self, batch, logs)

    original = Checkpoints.on_train_batch_begin
    monkeypatch.setattr(Checkpoints, "on_train_batch_begin", ask)
    assert cli.main([*words, "--output", str(broken)]) == 143
    monkeypatch.undo()

    kept = teacher.read_bytes()
    mean_of_images().save(teacher)
    capsys.readouterr()
    assert cli.main(["train", "--resume", "--output", str(broken)]) == 2
    assert "teacher_sha256 was" in capsys.readouterr().err
    teacher.write_bytes(kept)
    assert cli.main(["train", "--resume", "--output", str(broken)]) == 0
    assert same(whole, broken)

    model = Run.open(whole).load_model()
    assert model.output_shape == (None, 10)
    students = keras_vit.create_model(
        "vit_mu2_distilled", image_size=8, in_channels=1, num_classes=10
    )
    assert model.count_params() == students.count_params()
