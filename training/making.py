"""What a run is made of, from its settings: preprocessing, augmentation, model, optimizer."""

from dataclasses import replace
from pathlib import PurePath

import keras
import numpy as np

import keras_vit
from keras_vit.config import UserError
from keras_vit.create import config_for
from keras_vit.weights import Weights
from training.config import TrainConfig
from training.data.augment import AUGMENTATIONS, Augmentation
from training.data.preprocess import Preprocess
from training.data.sources import Source
from training.distillation import Distillation, with_heads
from training.optimizer import make_optimizer
from training.progressive import choose_stage, make_stages
from training.schedule import WarmupDecay
from training.trainer import Trainer

POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def make_trainer(
    config: TrainConfig, model: keras.Model, steps: int, distillation: Distillation | None = None
) -> Trainer:
    """The model with its loss, optimizer and metrics."""
    student = with_heads(model) if distillation else model
    choose = choose_stage(student, make_stages(config, steps))
    trainer = Trainer(model.inputs, model.outputs, name=model.name)
    trainer.prepare(config.accumulate, choose, distillation, timed=not config.deterministic)
    optimizer = make_optimizer(config, model, make_schedule(config, steps))
    if config.precision == "float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    trainer.compile(
        optimizer=optimizer,
        loss=keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=config.label_smoothing
        ),
        weighted_metrics=make_metrics(model.output_shape[-1]),
        steps_per_execution=config.steps_per_execution,
        auto_scale_loss=False,
    )
    optimizer.build(trainer.trainable_variables)
    return trainer


def make_schedule(config: TrainConfig, steps: int) -> WarmupDecay:
    """Raises: UserError: the warm-up is longer than the run."""
    warmup, total = config.warmup_steps, config.epochs * steps
    if warmup is None:
        warmup = round(config.warmup_epochs * steps)
    elif warmup > total:
        raise UserError(
            f"warmup_steps={warmup} must be at most the {total} steps of {config.epochs} epochs"
        )
    return WarmupDecay(config.learning_rate, warmup, total, config.schedule)


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
    if config.randaugment_layers is not None:
        changes["randaugment_layers"] = config.randaugment_layers
    return replace(preset, **{name: v for name, v in changes.items() if v is not None})


def make_model(config: TrainConfig, source: Source, weights: Weights | None = None) -> keras.Model:
    """The model, not filled yet, with what `freeze` names set to stay as it is."""
    overrides = {
        "image_size": config.image_size,
        "in_channels": source.channels,
        "num_classes": len(source.class_names),
        "dropout": config.dropout,
        "drop_path": config.drop_path,
        # Of these a Mixer has none to set:
        "patch_dropout": config.patch_dropout or None,
        "remat": None if config.remat == "none" else config.remat,
    }
    overrides = {name: value for name, value in overrides.items() if value is not None}
    architecture = config.model
    if config.pre_logits:
        like = weights.config if weights else keras_vit.find_config(architecture)
        overrides["representation_size"] = like.hidden_size
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
    """Whole executions that show each image about once."""
    images = config.batch_size * config.steps_per_execution
    executions = max(1, round(source.splits["train"].num_examples / images))
    return executions * config.steps_per_execution


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
