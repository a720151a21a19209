"""`keras-vit train`: from images to a run folder. Read it from top to bottom."""

import platform
import sys
import warnings
from dataclasses import asdict, replace
from pathlib import PurePath

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit.config import UserError
from keras_vit.create import config_for
from keras_vit.weights import LoadReport, Weights, WeightsWarning
from training.callbacks import make_callbacks
from training.config import TrainConfig
from training.data.augment import AUGMENTATIONS, Augmentation
from training.data.pipeline import evaluation_dataset, training_dataset
from training.data.preprocess import Preprocess
from training.data.sources import Source, open_source
from training.defaults import resolve
from training.optimizer import make_optimizer
from training.run import Run, check_free, unused_path
from training.schedule import WarmupCosine

POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def main(config: TrainConfig) -> None:
    keras.utils.set_random_seed(config.seed)
    warnings.simplefilter("ignore", WeightsWarning)  # the report says the same in its place
    if config.output:
        check_free(config.output, config.overwrite)  # before the work of reading the data
    source = open_source(
        config.data,
        seed=config.seed,
        validation_fraction=config.validation_fraction,
        max_skipped=config.max_skipped,
        data_dir=config.data_dir,
    )
    weights = open_pretrained(config) if config.weights else None
    config = resolve(config, source, weights)
    preprocess = make_preprocess(config, source, weights)
    augmentation = make_augmentation(config)
    model = make_model(config, source, weights)
    report = keras_vit.load_weights(model, weights) if weights else None
    describe(config, source, model, report)

    run = Run.create(config.output or unused_path(default_name(config, source)), config.overwrite)
    # Whoever repeats the run from this file gets another folder.
    settings = asdict(replace(config, output=None, overwrite=False))
    run.write_config(settings, made_with(source, weights))
    run.write_labels(source.class_names)
    run.write_preprocess(preprocess.to_dict())
    run.write_skipped((item.path, item.reason) for item in source.skipped)

    num_classes = len(source.class_names)
    train = training_dataset(
        source.splits["train"],
        preprocess,
        augmentation,
        num_classes=num_classes,
        batch_size=config.batch_size,
        seed=config.seed,
        class_weights=class_weights(source) if config.balance else None,
        cache=config.cache,
    )
    validation = evaluation_dataset(
        source.splits["validation"], preprocess, batch_size=config.batch_size
    ).map(lambda images, labels: (images, tf.one_hot(labels, num_classes)))

    steps = steps_per_epoch(config, source)
    schedule = WarmupCosine(
        config.learning_rate, round(config.warmup_epochs * steps), config.epochs * steps
    )
    model.compile(
        optimizer=make_optimizer(config, model, schedule),
        loss=keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=config.label_smoothing
        ),
        metrics=make_metrics(num_classes),
    )
    model.fit(
        train,
        epochs=config.epochs,
        steps_per_epoch=steps,
        validation_data=validation,
        shuffle=False,  # is the pipeline's work
        verbose=1 if sys.stdout.isatty() else 2,  # in a file a line an epoch, no bar
        callbacks=make_callbacks(config, run),
    )
    closing_words(run)


def open_pretrained(config: TrainConfig) -> Weights:
    """The weight file that the run starts from."""
    like = keras_vit.find_config(config.model) if config.model else None
    return keras_vit.open_weights(config.weights, image_size=config.image_size, like=like)


def make_preprocess(config: TrainConfig, source: Source, weights: Weights | None) -> Preprocess:
    """As the config says, with the mean and standard deviation that the weights know."""
    known = weights.preprocessing if weights else {}
    moments = {name: known[name] for name in ("mean", "std") if name in known}
    if any(len(values) != source.channels for values in moments.values()):
        moments = {name: [float(np.mean(values))] for name, values in moments.items()}
    return Preprocess(
        image_size=config.image_size,
        channels=source.channels,
        resize=config.resize,
        crop_fraction=config.crop_fraction,
        interpolation=config.interpolation,
        **moments,
    )


def make_augmentation(config: TrainConfig) -> Augmentation:
    """The preset with what the config changes of it."""
    preset = AUGMENTATIONS[config.augment]
    changes = {
        name: getattr(config, name)
        for name in ("flip", "color_jitter", "erasing", "mixup", "cutmix")
    }
    if config.crop_scale is not None:
        changes["crop_scale"] = (config.crop_scale, 1.0)
    if config.randaugment is not None:
        changes["randaugment_layers"] = 2 if config.randaugment else 0
        changes["randaugment_magnitude"] = config.randaugment
    return replace(preset, **{name: v for name, v in changes.items() if v is not None})


def make_model(config: TrainConfig, source: Source, weights: Weights | None = None) -> keras.Model:
    """The model, not filled yet, with what `freeze` names set to stay as it is."""
    overrides = {
        "image_size": config.image_size,
        "in_channels": source.channels,
        "num_classes": len(source.class_names),
        "dropout": config.dropout,
        "drop_path": config.drop_path,
        "patch_dropout": config.patch_dropout or None,  # a Mixer has none to set
    }
    overrides = {name: value for name, value in overrides.items() if value is not None}
    architecture = config.model
    if weights:
        architecture, overrides = config_for(config.model, weights, **overrides), {}
    model = keras_vit.create_model(architecture, dtype=POLICIES[config.precision], **overrides)
    blocks = [layer for layer in model.layers if layer.name.startswith("block_")]
    if config.freeze == "backbone":
        for layer in model.layers:
            layer.trainable = layer.name.startswith("head")
    elif config.freeze != "none":
        count = int(config.freeze)
        if count > len(blocks):
            raise UserError(f"freeze={count}: {model_word(config)} has only {len(blocks)} blocks")
        for layer in model.layers[: model.layers.index(blocks[0]) + count]:
            layer.trainable = False
    return model


def class_weights(source: Source) -> np.ndarray:
    """Weights inverse to each class's frequency, whose mean over the examples is 1."""
    counts = source.splits["train"].class_counts(len(source.class_names))
    return counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1))


def steps_per_epoch(config: TrainConfig, source: Source) -> int:
    return max(1, round(source.splits["train"].num_examples / config.batch_size))


def make_metrics(num_classes: int) -> list[keras.metrics.Metric]:
    metrics = [keras.metrics.CategoricalAccuracy(name="accuracy")]
    if num_classes > 5:
        metrics.append(keras.metrics.TopKCategoricalAccuracy(5, name="top5"))
    return metrics


def model_word(config: TrainConfig) -> str:
    """What stands for the model in a line: its name, or its weight file's."""
    if config.model:
        return config.model
    path = PurePath(config.weights)
    return path.parent.name if path.stem == "model" else path.stem  # RUN/model.keras


def default_name(config: TrainConfig, source: Source) -> str:
    return f"{source.name}-{model_word(config).lower().replace('/', '')}"


def made_with(source: Source, weights: Weights | None) -> dict:
    """What a run depends on besides its settings."""
    return {
        **({"weights_sha256": weights.digest} if weights else {}),
        "keras_vit": keras_vit.__version__,
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "python": platform.python_version(),
        "data_fingerprint": source.fingerprint,
    }


def describe(
    config: TrainConfig, source: Source, model: keras.Model, report: LoadReport | None
) -> None:
    """What is about to happen, in a few lines."""
    counts = ", ".join(f"{split.num_examples} {name}" for name, split in source.splits.items())
    print(f"Data       {config.data}: {len(source.class_names)} classes, images: {counts}")
    if source.skipped:
        print(
            f"Skipped    {len(source.skipped)} of {source.num_files} files, the first:"
            f" {source.skipped[0].path} ({source.skipped[0].reason}); all in skipped_files.csv"
        )
    height, width = config.image_size
    print(
        f"Model      {model_word(config)}: {model.count_params():,} parameters,"
        f" {height}x{width} pixels"
    )
    if report:
        print("Weights    " + str(report).replace("\n", "\n           "))
    print(
        f"Training   recipe {config.recipe}: {config.epochs} epochs of"
        f" {steps_per_epoch(config, source)} steps of {config.batch_size} images,"
        f" {config.optimizer} at {config.learning_rate:g},"
        f" augmentation {config.augment}, {config.precision}"
    )
    sys.stdout.flush()


def closing_words(run: Run) -> None:
    """The result and what to do next."""
    best = max(
        run.read_history(), key=lambda row: (float(row["val_accuracy"]), -float(row["val_loss"]))
    )
    print(
        f"\nBest validation accuracy {float(best['val_accuracy']):.2%} in epoch"
        f" {int(best['epoch']) + 1}: {run.model_path}"
    )
    print("Next:")
    print(f"  keras-vit evaluate {run.path}")
    print(f"  keras-vit predict {run.path} IMAGE...")
