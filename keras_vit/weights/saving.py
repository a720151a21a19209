"""save_weights: a model as a file of any layout, so that its own code can load it."""

import warnings
from pathlib import Path

import keras
import numpy as np

from keras_vit.config import MixerConfig, UserError
from keras_vit.config_of import config_of
from keras_vit.weights.keras_file import KERAS
from keras_vit.weights.layout import WeightsWarning
from keras_vit.weights.opening import LAYOUTS
from keras_vit.weights.writing import write_whole

FORMATS = (*LAYOUTS, KERAS)


def save_weights(model: keras.Model, path, format: str, preprocessing: dict | None = None) -> None:
    """Write the weights of a model under the names of another library; every value stays exact.

    Args:
        model: what `create_model` builds.
        path: "google": a `.npz`; "timm": a `.safetensors`, or a folder as on the hub;
            "huggingface": a folder; "torchvision": a `.safetensors`; "keras": a `.keras` or
            `.weights.h5`. What is there is replaced once the new file is whole.
        format: one of these.
        preprocessing: mean, std, resize, crop_fraction and interpolation as in `preprocess.json`,
            for the layouts that have a place for it.

    Raises: UserError: an unknown format, or a model that the layout has no place for.
    Warns: WeightsWarning: the layout's own code would compute something else with these weights.
    """
    path = Path(path)
    if format not in FORMATS:
        raise UserError(f"format={format!r} must be one of {', '.join(FORMATS)}")
    config = config_of(model)
    check_suffix(path, format)
    if format == KERAS:
        if path.name.endswith(".weights.h5"):
            model.save_weights(path)
        else:
            write_whole(path, model.save)
        return
    layout = LAYOUTS[format]
    if isinstance(config, MixerConfig) and format != "google":
        raise UserError(f"format={format} has no MLP-Mixer; google has")
    layout.refuse(config)
    for field, value in layout.ASSUMES.items():
        if getattr(config, field) != value:
            text = f"format={format}: its code computes with {field}={value}, not this model's"
            warnings.warn(f"{text} {getattr(config, field)}", WeightsWarning, stacklevel=2)
    variables = {variable.path: variable for variable in model.weights}
    tensors = {}
    for rule in layout.rules(config):
        value = np.asarray(keras.ops.convert_to_numpy(variables[rule.ours]))
        tensors |= zip(rule.theirs, rule.to_theirs(value), strict=True)
    layout.write(path, tensors, config, preprocessing)


SUFFIXES = {
    "google": (".npz",),
    "timm": (".safetensors", ""),
    "huggingface": ("",),
    "torchvision": (".safetensors",),
    KERAS: (".keras", ".h5"),
}


def check_suffix(path: Path, format: str) -> None:
    """Raises: UserError: a name under which the file would not be found again."""
    if path.suffix not in SUFFIXES[format]:
        wanted = " or ".join(suffix or "a folder without a suffix" for suffix in SUFFIXES[format])
        raise UserError(f"{path}: format={format} needs {wanted}")
