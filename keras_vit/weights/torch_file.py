"""PyTorch state dicts, with torch's own safe reader; the one module here that may import torch."""

import pickle
from pathlib import Path

import numpy as np

from keras_vit.config import UserError
from keras_vit.weights.files import Tensors, named, read_json

WRAPPERS = ("state_dict_ema", "state_dict", "model")  # of timm's and DeiT's checkpoints


def open_torch(path: Path) -> Tensors:
    """A state dict; of a training checkpoint that of the (averaged) model.

    Raises: UserError: torch is not installed, or the file is no plain state dict.
    """
    try:
        import torch
    except ImportError as error:
        raise UserError(
            f"{path}: is a PyTorch file, and torch is not installed here; install it, or where"
            f" it is convert the file: keras-vit weights convert {path.name} model.keras --to keras"
        ) from error
    with named(path, pickle.UnpicklingError, RuntimeError, EOFError, OSError):
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=path_is_zip(path))
    for key in WRAPPERS:
        if isinstance(state.get(key), dict):
            state = state[key]
            break
    state = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}

    def read(name: str) -> np.ndarray:
        tensor = state[name]
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()

    shapes = {name: tuple(value.shape) for name, value in state.items()}
    return Tensors(path, shapes, read, config=read_json(path.with_name("config.json")))


def path_is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"
