"""Keras's own files: `.keras` and `.weights.h5` of models of ours.

A `.keras` file is not loaded as a Keras model, which would make whatever layers its JSON names:
the configuration is read from the JSON as plain numbers, the model built by our own code.
"""

import json
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np

from keras_vit.config import MixerConfig, UserError, ViTConfig
from keras_vit.config_of import read_config
from keras_vit.cost import count_params
from keras_vit.model import build_model
from keras_vit.weights.files import Tensors, named, read_json, zip_names
from keras_vit.weights.layout import Rule, same

KERAS = "keras"
HDF5 = b"\x89HDF\r\n\x1a\n"
PREPROCESSING = ("mean", "std", "resize", "crop_fraction", "interpolation")


def is_keras(path: Path) -> bool:
    """Whether the content is that of `.keras` or `.weights.h5`."""
    with path.open("rb") as file:
        start = file.read(8)
    return start == HDF5 or start[:4] == b"PK\x03\x04" and "model.weights.h5" in zip_names(path)


def open_keras(path: Path, like) -> tuple[ViTConfig | MixerConfig, Tensors, list[Rule], dict]:
    """Configuration, tensors under our own names, their rules, and a run's preprocessing.

    Raises: UserError: broken, no model of ours, or (`.weights.h5`) no `like` to go by.
    """
    with path.open("rb") as file:
        is_h5 = file.read(8) == HDF5
    if is_h5:
        if like is None:
            raise UserError(f"{path}: holds weights, but not their model; name the model too")
        config = _config_of_h5(path, like)
        model = _filled(path, config, path)
    else:
        with named(path, zipfile.BadZipFile, ValueError, KeyError, TypeError, OSError):
            with zipfile.ZipFile(path) as archive:
                content = json.loads(archive.read("config.json"))
                config = read_config(content["config"], str(path))
                size = archive.getinfo("model.weights.h5").file_size
                if size < 4 * count_params(config):
                    raise ValueError(f"its weights are too few for a model of {config}")
                with tempfile.TemporaryDirectory() as folder:
                    archive.extract("model.weights.h5", folder)
                    model = _filled(Path(folder) / "model.weights.h5", config, path)
    variables = {variable.path: variable for variable in model.weights}
    tensors = Tensors(
        path,
        {name: tuple(variable.shape) for name, variable in variables.items()},
        lambda name: np.asarray(variables[name]),
    )
    preprocess = read_json(path.with_name("preprocess.json"))
    known = {key: preprocess[key] for key in PREPROCESSING if key in preprocess}
    return config, tensors, [same(name, name) for name in variables], known


def _filled(h5: Path, config, path: Path):
    """A model of that configuration with the file's weights."""
    model = build_model(config)
    link = h5
    with tempfile.TemporaryDirectory() as folder:
        if not h5.name.endswith(".weights.h5"):  # Keras goes by the name
            link = Path(folder) / "model.weights.h5"
            link.symlink_to(h5.resolve())
        with named(path, ValueError, KeyError, OSError):
            model.load_weights(link)
    return model


def _config_of_h5(path: Path, like):
    """`like` with the image size, channels and classes that the file was made with."""
    with named(path, OSError, KeyError, ValueError), h5py.File(path) as file:
        groups = {}
        for group in file["layers"].values():
            groups[group["vars"].attrs.get("name")] = group
        if "patch_encoder" not in groups:
            raise UserError(f"{path}: holds no weights of a model of keras_vit")
        encoder = groups["patch_encoder"]
        rows = encoder["projection/vars/0"].shape[0]
        head = groups.get("head")
        fields = {
            "in_channels": rows // (like.patch_size[0] * like.patch_size[1]),
            "num_classes": head["vars/0"].shape[1] if head else 0,
        }
        grid = tuple(int(side) for side in encoder["vars/grid_size"][()])
    steps = [side // count for side, count in zip(like.image_size, like.grid_size, strict=True)]
    size = tuple(count * step for count, step in zip(grid, steps, strict=True))
    return replace(like, **fields, image_size=size)
