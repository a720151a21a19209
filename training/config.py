"""The settings of every command: one flat frozen dataclass each.

A field is at once the argument in Python, the flag `--field-name` and the key in a YAML file
(`training/flags.py` reads both). None means: chosen from the data, or off, as the help says.
This module imports nothing heavy, so that `keras-vit --help` answers at once.
"""

from dataclasses import dataclass, field
from typing import Literal

Size = tuple[int, int]


def setting(default, help: str, **metadata):
    """A field with its help text; `group` starts a heading of `--help`."""
    return field(default=default, metadata={"help": help, **metadata})


def argument(help: str, **metadata):
    """A field without a default, given by its place on the command line."""
    return field(metadata={"help": help, "positional": True, **metadata})


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Train a Vision Transformer and write a run folder."""

    data: str = setting("digits", "digits, folder:PATH, tfds:NAME or tfrecord:GLOB", group="data")
    data_dir: str | None = setting(None, "where TensorFlow Datasets keeps its sets")
    validation_fraction: float = setting(
        0.2, "part of each class set aside, where the data bring no validation split"
    )
    max_skipped: float = setting(0.05, "part of a folder's files that may be unreadable")
    cache: bool = setting(False, "keep the stored images in memory")
    model: str | None = setting(
        None,
        "a name of `keras-vit models`, with any patch size; by default by the weights or by the"
        " size of the images",
        group="model",
    )
    weights: str | None = setting(
        None,
        "pretrained: a file or folder, https://, gs:// or hf://owner/name, of any known layout;"
        " without --model it says which model",
    )
    recipe: str | None = setting(
        None,
        "settings that belong together: a name in training/recipes or your own YAML file; by"
        " default small (for fine-tuning) with weights, scratch without",
    )
    image_size: Size | None = setting(
        None,
        "pixels: 224, or 192x256 for height x width; by default the weights' own up to 224, or the"
        " images' own where they are small and alike",
    )
    dropout: float | None = setting(None, "dropout rate; by default the model's own")
    drop_path: float | None = setting(None, "stochastic depth rate of the last block")
    pre_logits: bool | None = setting(
        None, "a tanh layer as wide as the model before the head; by default the recipe's"
    )
    patch_dropout: float = setting(0.0, "part of the patches left out while training")
    freeze: str = setting(
        "none",
        "what keeps its weights: none, backbone (all but the head), or a number of first blocks"
        " and the patch embedding",
    )
    epochs: int | None = setting(
        None, "passes over the training images; by default by their number", group="training"
    )
    batch_size: int | None = setting(None, "images a step; by default by their number")
    optimizer: Literal["adamw", "sgd"] | None = setting(
        None, "AdamW, or SGD with momentum 0.9; by default the recipe's"
    )
    learning_rate: float | None = setting(
        None, "peak learning rate; by default by the recipe and the optimizer"
    )
    scale_learning_rate: bool = setting(False, "multiply it by batch_size / 256")
    schedule: Literal["cosine", "linear"] | None = setting(
        None, "how the learning rate falls after the warm-up; by default the recipe's"
    )
    warmup_epochs: float | None = setting(
        None, "epochs of linear warm-up; by default the recipe's, or a tenth of all"
    )
    warmup_steps: int | None = setting(None, "the same in steps")
    weight_decay: float | None = setting(
        None,
        "decoupled, times the learning rate; not on biases, norms, tokens and positions; by default"
        " the recipe's",
    )
    layer_decay: float | None = setting(
        None,
        "each block learns this much slower than the one above it; 1 for all alike; by default the"
        " recipe's",
    )
    clip_norm: float | None = setting(
        None, "largest global norm of the gradient, 0 for no limit; by default the recipe's"
    )
    label_smoothing: float | None = setting(
        None, "part of each label spread over all classes; by default the recipe's"
    )
    balance: bool = setting(False, "weight each class by the inverse of its frequency")
    ema: float | None = setting(
        None, "momentum of averaged weights, like 0.999; they are kept; 0 for none"
    )
    early_stopping: int | None = setting(
        None, "stop after so many epochs without a better validation accuracy"
    )
    precision: Literal["float32", "bfloat16", "float16"] = setting(
        "float32", "of the computation; weights stay float32"
    )
    seed: int = setting(0, "of weights, order, augmentation and of the validation split")
    teacher: str | None = setting(
        None, "learn from this trained model too: a .keras file that gives logits, or a run folder"
    )
    distillation: Literal["none", "soft", "hard"] | None = setting(
        None,
        "what of the teacher is learnt: its probabilities (soft) or the class it says (hard); by"
        " default hard with a teacher",
    )
    distillation_alpha: float = setting(0.5, "the teacher's part of the loss, 0 to 1")
    distillation_tau: float = setting(3.0, "temperature of soft distillation")
    progressive: tuple[Size, ...] | None = setting(
        None,
        "sizes of the images in the first parts of the run, all as long, before image_size:"
        " 96 128; faster, as smaller images are cheaper",
    )
    resize: Literal["crop", "squash"] | None = setting(
        None,
        "keep the aspect and cut the centre, or scale both sides; by default the weights' way, or"
        " crop",
        group="images",
    )
    crop_fraction: float | None = setting(
        None,
        "part of the scaled image that evaluation cuts out; by default the weights' own, or all",
    )
    interpolation: Literal["bilinear", "bicubic"] | None = setting(
        None, "of resizing, antialiased; by default the weights' own, or bicubic"
    )
    augment: Literal["none", "light", "medium", "strong"] | None = setting(
        None,
        "preset; the settings below change one thing of it; by default by the size of the images",
    )
    flip: bool | None = setting(None, "mirror half of the images")
    crop_scale: float | None = setting(None, "least part of the area that a random crop keeps")
    randaugment: int | None = setting(
        None, "magnitude of the RandAugment operations, 10 is strong; 0 alone for none"
    )
    randaugment_layers: int | None = setting(
        None, "RandAugment operations on each image; by default two where there is a magnitude"
    )
    color_jitter: float | None = setting(None, "change of brightness, contrast and saturation")
    erasing: float | None = setting(None, "probability of erasing a rectangle")
    repeated_augmentation: int | None = setting(
        None,
        "how often an image comes in a batch, each time augmented anew; by default the recipe's",
    )
    mixup: float | None = setting(None, "Mixup alpha, 0 for none")
    cutmix: float | None = setting(None, "CutMix alpha, 0 for none")
    peak_tflops: float | None = setting(
        None,
        "what one device can do at this precision, in 10^12 operations a second; adds mfu, the part"
        " of it that the model's own operations use",
        group="watching",
    )
    tensorboard_images: int = setting(
        0, "augmented training images to show in TensorBoard when a run begins"
    )
    tensorboard_histograms: bool = setting(False, "histograms of all weights after each epoch")
    wandb: str | None = setting(None, "project of Weights & Biases to log to, if installed")
    mlflow: str | None = setting(None, "experiment of MLflow to log to, if installed")
    strategy: Literal["auto", "one", "mirrored", "multi_worker"] = setting(
        "auto",
        "devices: all GPUs of this machine, one, --devices of it, or several machines",
        group="devices and memory",
    )
    devices: int | None = setting(
        None, "of mirrored: by default all GPUs; without a GPU the CPU as so many devices"
    )
    cluster: str | None = setting(
        None,
        "of multi_worker: HOST:PORT,HOST:PORT..., the same for all; by default from TF_CONFIG or"
        " SLURM",
    )
    task: int | None = setting(None, "which of the cluster this worker is, from 0")
    accumulate: int = setting(1, "slices of each device's batch that are computed one by one")
    remat: Literal["none", "attention", "block"] = setting(
        "none", "what is computed again in the backward pass, slower, instead of being kept"
    )
    steps_per_execution: int = setting(1, "steps between two looks at the results")
    dry_run: bool = setting(
        False, "only print the plan: parameters, FLOPs, memory, steps, checkpoints", group="output"
    )
    output: str | None = setting(None, "run folder; by default a new one in saved_models")
    overwrite: bool = setting(False, "replace the run folder if it exists")
    resume: bool = setting(
        False, "go on with the run in --output, whose settings count; a new run where there is none"
    )
    resume_weights_only: bool = setting(
        False, "begin again with the weights of the run in --output and other settings"
    )
    checkpoint_every: int | None = setting(
        None, "steps between checkpoints, besides those after each epoch"
    )
    keep_checkpoints: int = setting(3, "how many stay")
    on_nan: Literal["stop", "rollback"] = setting(
        "stop", "when the loss is not finite; rollback: to the last checkpoint, without that batch"
    )
    deterministic: bool = setting(
        False, "the same numbers every time on a GPU too, slower; without data_wait"
    )

    def __post_init__(self):
        check_positive(self, "epochs", "batch_size", "learning_rate", "early_stopping")
        check_positive(self, "devices", "accumulate", "steps_per_execution", "checkpoint_every")
        check_positive(self, "keep_checkpoints", "repeated_augmentation", "peak_tflops")
        if (self.resume or self.resume_weights_only) and self.output is None:
            raise ValueError("resume needs output, the run folder to go on with")
        if self.resume and self.resume_weights_only:
            raise ValueError("resume and resume_weights_only cannot be combined")
        if self.strategy == "multi_worker" and self.output is None:
            raise ValueError("strategy=multi_worker needs output, a folder that all workers share")
        if self.devices and self.strategy != "mirrored":
            raise ValueError(f"devices={self.devices} needs strategy=mirrored")
        check_rates(self, "dropout", "drop_path", "patch_dropout", "ema", "label_smoothing")
        check_rates(self, "max_skipped")
        check_at_least_zero(self, "warmup_epochs", "warmup_steps", "weight_decay", "clip_norm")
        check_at_least_zero(self, "randaugment", "randaugment_layers", "tensorboard_images")
        check_warmup(self)
        check_distillation(self)
        check_seed(self)
        if self.layer_decay is not None and not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay={self.layer_decay} must be more than 0 and at most 1")
        if self.freeze not in ("none", "backbone") and not self.freeze.isdecimal():
            raise ValueError(f"freeze={self.freeze!r} must be none, backbone or a number of blocks")
        if self.peak_tflops and self.freeze != "none":
            raise ValueError(
                f"peak_tflops counts the training of all weights, not freeze={self.freeze}"
            )


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """Measure a run on held-out images."""

    run: str = argument("run folder; with --probe also a weight file or URI")
    data: str | None = setting(None, "other images than the run's own: folder:PATH, tfds:NAME...")
    data_dir: str | None = setting(None, "where TensorFlow Datasets keeps its sets")
    split: Literal["train", "validation", "test", "all"] | None = setting(
        None, "which images; by default test, where there is none validation, of new images all"
    )
    batch_size: int = setting(64, "images a step")
    real_labels: str | None = setting(
        None, "ImageNet-ReaL's label file (real.json): adds the ReaL score"
    )
    probe: Literal["linear", "knn", "least-squares"] | None = setting(
        None,
        "measure frozen features instead: a linear classifier, nearest neighbours, or the paper's"
        " few-shot least squares",
        group="probe",
    )
    shots: int | None = setting(None, "images of each class the probe learns from; by default all")
    seeds: int = setting(3, "how often these are drawn anew")
    image_size: Size | None = setting(
        None, "pixels, of a weight file; by default its own up to 224"
    )
    json: bool = setting(False, "print the probe's result as JSON, for programs")

    def __post_init__(self):
        check_positive(self, "batch_size", "shots", "seeds")
        if self.probe is None and (self.shots or self.image_size or self.json):
            raise ValueError("shots, image_size and json need --probe")
        if self.probe and self.real_labels:
            raise ValueError("real_labels and probe cannot be combined")


@dataclass(frozen=True, kw_only=True)
class FeaturesConfig:
    """Write the frozen features of images to an .npz file."""

    run: str = argument("run folder, weight file or URI")
    data: str | None = setting(
        None, "digits, folder:PATH, tfds:NAME or tfrecord:GLOB; by default a run's own"
    )
    data_dir: str | None = setting(None, "where TensorFlow Datasets keeps its sets")
    image_size: Size | None = setting(
        None, "pixels, of a weight file; by default its own up to 224"
    )
    batch_size: int = setting(64, "images a step")
    output: str = setting("features.npz", "the file to write")
    overwrite: bool = setting(False, "replace it if it exists")

    def __post_init__(self):
        check_positive(self, "batch_size")


@dataclass(frozen=True, kw_only=True)
class EvaluateTransferConfig:
    """Fine-tune or probe weights on several data sets, and write one table."""

    weights: str = argument("weight file, folder or URI, or a run folder")
    data: tuple[str, ...] = setting(
        ("digits",), "data sets, each as for train; vtab stands for the 19 of VTAB-1k"
    )
    data_dir: str | None = setting(None, "where TensorFlow Datasets keeps its sets")
    method: Literal["finetune", "linear", "knn", "least-squares"] = setting(
        "finetune", "train all weights, or measure frozen features"
    )
    seeds: int = setting(3, "runs of each data set; of a probe draws of its shots")
    shots: int | None = setting(None, "images of each class a probe learns from; by default all")
    recipe: str = setting("small", "of fine-tuning")
    image_size: Size | None = setting(None, "pixels; by default the weights' own up to 224")
    epochs: int | None = setting(None, "of fine-tuning; by default by the number of images")
    batch_size: int | None = setting(None, "images a step; by default the command's own")
    output: str = setting("transfer", "folder for the runs and the table; finished runs are kept")

    def __post_init__(self):
        check_positive(self, "seeds", "shots", "epochs", "batch_size")
        if self.method == "finetune" and self.shots:
            raise ValueError("shots needs a method that probes: linear, knn or least-squares")


@dataclass(frozen=True, kw_only=True)
class PredictConfig:
    """Name the classes of images."""

    run: str = argument("run folder")
    images: tuple[str, ...] = argument("image files, folders, or quoted globs", metavar="IMAGE...")
    top: int = setting(5, "how many classes of each image")
    json: bool = setting(False, "print JSON for programs")
    batch_size: int = setting(32, "images a step")

    def __post_init__(self):
        check_positive(self, "top", "batch_size")


@dataclass(frozen=True, kw_only=True)
class TFRecordConfig:
    """Write any data set as TFRecord shards."""

    data: str = setting("digits", "digits, folder:PATH, tfds:NAME or tfrecord:GLOB")
    data_dir: str | None = setting(None, "where TensorFlow Datasets keeps its sets")
    output: str = setting("tfrecords", "folder for the shards")
    shards: int = setting(8, "files for each split")
    validation_fraction: float = setting(
        0.2, "part of each class set aside, where the data bring no validation split"
    )
    max_skipped: float = setting(0.05, "part of a folder's files that may be unreadable")
    seed: int = setting(0, "of the validation split")
    overwrite: bool = setting(False, "replace the folder if it exists")

    def __post_init__(self):
        check_positive(self, "shards")
        check_seed(self)


@dataclass(frozen=True, kw_only=True)
class ModelsConfig:
    """List the named models with their sizes."""


@dataclass(frozen=True, kw_only=True)
class WeightsConfig:
    """Look into a weight file, or write it for another library."""

    action: str = argument("inspect or convert", metavar="ACTION")
    paths: tuple[str, ...] = argument(
        "inspect FILE, or convert FROM TO: files, folders, https://, gs:// or hf://owner/name",
        metavar="PATH...",
    )
    to: Literal["google", "timm", "huggingface", "torchvision", "keras"] | None = setting(
        None, "layout to convert to"
    )
    image_size: Size | None = setting(
        None, "pixels; for a file whose positions are no square and that does not say"
    )
    num_heads: int | None = setting(None, "attention heads; for a file that does not say")
    overwrite: bool = setting(False, "replace what is at TO")

    def __post_init__(self):
        wanted = {"inspect": 1, "convert": 2}
        if self.action not in wanted:
            raise ValueError(f"action={self.action!r} must be inspect or convert")
        if len(self.paths) != wanted[self.action]:
            places = "one path" if self.action == "inspect" else "two paths, FROM and TO"
            raise ValueError(f"{self.action} needs {places}, not {len(self.paths)}")
        if self.action == "convert" and self.to is None:
            raise ValueError("convert needs --to google, timm, huggingface, torchvision or keras")


COMMANDS = {
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "predict": PredictConfig,
    "tfrecord": TFRecordConfig,
    "models": ModelsConfig,
    "weights": WeightsConfig,
    "features": FeaturesConfig,
    "evaluate-transfer": EvaluateTransferConfig,
}


def _check(config, names, is_right, wanted: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and not is_right(value):
            raise ValueError(f"{name}={value} must be {wanted}")


def check_positive(config, *names) -> None:
    _check(config, names, lambda value: value > 0, "greater than 0")


def check_at_least_zero(config, *names) -> None:
    _check(config, names, lambda value: value >= 0, "at least 0")


def check_warmup(config) -> None:
    if config.warmup_epochs is not None and config.warmup_steps is not None:
        raise ValueError("warmup_epochs and warmup_steps cannot be combined")


def check_distillation(config) -> None:
    check_positive(config, "distillation_tau")
    _check(config, ("distillation_alpha",), lambda value: 0 <= value <= 1, "0 to 1")
    if config.distillation in ("soft", "hard") and config.teacher is None:
        raise ValueError(
            f"distillation={config.distillation} needs teacher, a .keras file or a run folder"
        )


def check_seed(config) -> None:
    _check(config, ("seed",), lambda value: 0 <= value < 2**32, "at least 0 and less than 2**32")


def check_rates(config, *names) -> None:
    _check(config, names, lambda value: 0 <= value < 1, "at least 0 and less than 1")
