"""`keras-vit train`: from images to a run folder. Read it from top to bottom."""

import platform
import sys
import warnings
from dataclasses import asdict, fields, replace
from pathlib import Path

import keras
import tensorflow as tf

import keras_vit
from keras_vit.config import UserError
from keras_vit.weights import LoadReport, Weights, WeightsWarning
from training import checkpoint
from training.config import TrainConfig
from training.data.pipeline import Entry, Part, training_dataset, validation_dataset
from training.data.sources import Source, open_source
from training.defaults import resolve
from training.distillation import make_distillation, teacher_digest
from training.distribution import distribute, make_strategy, part_of
from training.fit import Fit, fit
from training.making import (
    class_weights,
    make_augmentation,
    make_model,
    make_preprocess,
    make_trainer,
    model_word,
    open_pretrained,
    steps_per_epoch,
)
from training.plan import plan
from training.progressive import make_stages, staged
from training.resume import check_same_run, restore_weights
from training.run import Run, check_free, unused_path
from training.trainer import Trainer
from training.watching import check_trackers, write_images

# Where and how often to save, and on which devices: another place may go on with the same run.
NOT_OF_THE_RUN = (
    "output",
    "overwrite",
    "dry_run",
    "resume",
    "resume_weights_only",
    "strategy",
    "devices",
    "cluster",
    "task",
)
DEFAULTS = {field.name: field.default for field in fields(TrainConfig)}


def main(config: TrainConfig) -> None:
    strategy = make_strategy(config)  # before anything else of TensorFlow
    seed_all(config)
    warnings.simplefilter("ignore", WeightsWarning)  # the report says the same in its place
    part = part_of(strategy)
    chief = part.index == 0
    if chief:
        check_trackers(config)
    before = find_run(config) if config.output else None  # ahead of the work of reading the data
    source = open_source(
        config.data,
        seed=config.seed,
        validation_fraction=config.validation_fraction,
        max_skipped=config.max_skipped,
        data_dir=config.data_dir,
    )
    weights = open_pretrained(config) if config.weights else None
    config = resolve(config, source, weights, strategy.num_replicas_in_sync * config.accumulate)
    settings, facts = saved_settings(config), made_with(config, source, weights)
    if before and config.resume:
        check_same_run(before, settings, facts, source.class_names)
    preprocess = make_preprocess(config, source, weights)
    steps = steps_per_epoch(config, source)
    with strategy.scope():
        model = make_model(config, source, weights)
        report = keras_vit.load_weights(model, weights) if weights else None
        distillation = make_distillation(config, preprocess, source.class_names)
        trainer = make_trainer(config, model, steps, distillation)
    if chief:
        describe(config, source, trainer, report)

    if config.dry_run:
        return
    batches = training_batches(config, source, preprocess, steps, part)
    run = before or open_run(config, source, chief)
    if chief and not (before and config.resume):
        write_facts(run, settings, facts, source, preprocess)
        show_images(run, config, source, preprocess, steps)
    if config.resume_weights_only:
        start_from_weights(run, trainer, chief)

    held_out = source.splits["validation"]
    validation = validation_dataset(
        held_out,
        preprocess,
        num_classes=len(source.class_names),
        batch_size=config.batch_size,
        part=part,
    )
    fit(
        Fit(
            trainer,
            run,
            config,
            lambda entry: distribute(strategy, batches(entry), config.batch_size),
            distribute(strategy, validation, config.batch_size),
            steps,
            validation_steps=-(-held_out.num_examples // config.batch_size),
        )
    )
    if chief:
        closing_words(run)


def seed_all(config: TrainConfig) -> None:
    keras.utils.set_random_seed(config.seed)
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()


def training_batches(config: TrainConfig, source: Source, preprocess, steps: int, part: Part):
    """A function from an `Entry` to this worker's batches from there on, of every stage's size."""
    augmentation = make_augmentation(config)
    weights = class_weights(source) if config.balance else None

    def of_size(image_size, entry: Entry):
        return training_dataset(
            source.splits["train"],
            replace(preprocess, image_size=image_size),
            augmentation,
            num_classes=len(source.class_names),
            batch_size=config.batch_size,
            seed=config.seed,
            class_weights=weights,
            cache=config.cache,
            repeats=config.repeated_augmentation,
            part=part,
            entry=entry,
        )

    return lambda entry: staged(make_stages(config, steps), entry, of_size)


def show_images(run: Run, config: TrainConfig, source: Source, preprocess, steps: int) -> None:
    """Put the first training images where TensorBoard finds them, if any are asked for."""
    if config.tensorboard_images:
        uncached = replace(config, cache=False)  # of the few that are shown, not of all
        batches = training_batches(uncached, source, preprocess, steps, Part())(Entry())
        write_images(run.logs_path, batches, preprocess, config.tensorboard_images)


def find_run(config: TrainConfig) -> Run | None:
    """The run to go on with, None for a new one.

    Raises: UserError: something is in the way, or there is nothing to take weights from.
    """
    run = Run(Path(config.output))
    going_on = config.resume or config.resume_weights_only
    if going_on and run.has_begun():
        return run
    if config.resume_weights_only:
        raise UserError(f"output={config.output!r} is no run to take weights from")
    if not (config.resume and run.is_empty()):
        check_free(config.output, config.overwrite)
    return None


def saved_settings(config: TrainConfig) -> dict:
    """What config.yaml keeps: a run repeated from it has a folder and devices of its own."""
    return asdict(replace(config, **{name: DEFAULTS[name] for name in NOT_OF_THE_RUN}))


def open_run(config: TrainConfig, source: Source, chief: bool) -> Run:
    """The new run's folder, made by the chief."""
    path = config.output or unused_path(default_name(config, source))
    return Run.create(path, config.overwrite) if chief else Run(Path(path))


def write_facts(run: Run, settings: dict, facts: dict, source: Source, preprocess) -> None:
    """What the run's folder says of it from the start."""
    run.write_config(settings, facts)
    run.write_labels(source.class_names)
    run.write_preprocess(preprocess.to_dict())
    run.write_skipped((item.path, item.reason) for item in source.skipped)


def start_from_weights(run: Run, trainer: Trainer, chief: bool) -> None:
    """Fill the model from the run's newest checkpoint, which is set aside, and begin at step 0."""
    arrays, _ = checkpoint.newest(run.checkpoints_path, or_before=True)
    missing = restore_weights(trainer, arrays)
    if chief:
        checkpoint.set_aside(run.checkpoints_path)
        left = f"; these begin anew: {', '.join(missing)}" if missing else ""
        print(f"Weights    from the run's last checkpoint{left}", flush=True)


def default_name(config: TrainConfig, source: Source) -> str:
    return f"{source.name}-{model_word(config).lower().replace('/', '')}"


def made_with(config: TrainConfig, source: Source, weights: Weights | None) -> dict:
    """What a run depends on besides its settings."""
    return {
        **({"teacher_sha256": teacher_digest(config.teacher)} if config.teacher else {}),
        **({"weights_sha256": weights.digest} if weights else {}),
        "keras_vit": keras_vit.__version__,
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "python": platform.python_version(),
        "data_fingerprint": source.fingerprint,
    }


def describe(
    config: TrainConfig, source: Source, trainer: Trainer, report: LoadReport | None
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
        f"Model      {model_word(config)}: {trainer.count_params():,} parameters,"
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
    if config.distillation != "none":
        print(f"Teacher    {config.teacher}: {config.distillation} distillation")
    if config.progressive:
        sizes = [f"{height}x{width}" for height, width in (*config.progressive, config.image_size)]
        print(f"Sizes      {', '.join(sizes)} pixels, each for as many epochs")
    if config.dry_run:
        print(plan(config, source, trainer, trainer.distribute_strategy.num_replicas_in_sync))
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
