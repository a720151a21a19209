"""Weight files as named tensors, each read only when asked for. Nothing in a file is executed.

A file's content decides what it is, never its name. Sizes that a header claims are held against
the file before anything is read, so that a broken or hostile file costs no memory.
"""

import json
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import ml_dtypes
import numpy as np
import safetensors

from keras_vit.config import UserError

MOST_COMPRESSION = 100  # weights hardly shrink; a file that claims to hold more than this is a bomb


@dataclass(frozen=True)
class Tensors:
    """The content of one weight file.

    path: the file, for messages.
    shapes: of every tensor, by name.
    read: name to array; float32, or what the file holds (float16, bfloat16).
    metadata: text that the file itself carries.
    config, preprocessor: `config.json` and `preprocessor_config.json` beside it, {} without.
    """

    path: Path
    shapes: dict[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]
    metadata: dict[str, str] = field(default_factory=dict)
    config: dict = field(default_factory=dict)
    preprocessor: dict = field(default_factory=dict)

    def renamed(self, new_names: dict[str, str]) -> "Tensors":
        """The same with other names, given as old: new; tensors that are not named are gone."""
        old_names = {new: old for old, new in new_names.items()}
        return replace(
            self,
            shapes={new: self.shapes[old] for new, old in old_names.items()},
            read=lambda name: self.read(old_names[name]),
        )


@contextmanager
def named(path: Path, *errors: type[Exception]) -> Iterator[None]:
    """Turn a reader's errors into one line that names the file."""
    try:
        yield
    except errors as error:
        first = str(error).strip().split("\n")[0]
        raise UserError(f"{path}: is broken: {first}") from error


def zip_names(path: Path) -> list[str]:
    """Names in a zip archive. Raises: UserError: broken, truncated, or it claims too much."""
    with named(path, zipfile.BadZipFile, OSError, NotImplementedError):
        with zipfile.ZipFile(path) as archive:
            claimed = sum(info.file_size for info in archive.infolist())
            names = archive.namelist()
    if claimed > MOST_COMPRESSION * path.stat().st_size:
        raise UserError(f"{path}: is broken: it claims to unpack to {claimed:,} bytes")
    return names


def open_npz(path: Path) -> Tensors:
    archive = zipfile.ZipFile(path)
    shapes = {}
    with named(path, zipfile.BadZipFile, ValueError, EOFError, OSError):
        for info in archive.infolist():
            shapes[info.filename.removesuffix(".npy")] = _npy_shape(archive, info)

    def read(name: str) -> np.ndarray:
        with named(path, zipfile.BadZipFile, ValueError, EOFError, OSError):
            with archive.open(f"{name}.npy") as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
        # NumPy has no bfloat16 of its own and writes it as two nameless bytes.
        return array.view(ml_dtypes.bfloat16) if array.dtype == np.dtype("V2") else array

    return Tensors(path, shapes, read)


def _npy_shape(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[int, ...]:
    """Shape of one array of an `.npz`. Raises: ValueError: pickled, or not as large as it says."""
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in readers:
            raise ValueError(f"{info.filename} has the unknown version {version}")
        shape, _, dtype = readers[version](file)
        header = file.tell()
    if dtype.hasobject:
        raise ValueError(f"{info.filename} holds pickled objects, which are not loaded")
    size = dtype.itemsize
    for side in shape:
        size *= side
    if size != info.file_size - header:
        raise ValueError(f"{info.filename} claims shape {shape}, which is not what it holds")
    return shape


def open_safetensors(path: Path) -> Tensors:
    with named(path, safetensors.SafetensorError, OSError):
        file = safetensors.safe_open(path, framework="np")
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}

    def read(name: str) -> np.ndarray:
        with named(path, safetensors.SafetensorError, OSError):
            return file.get_tensor(name)

    return Tensors(
        path,
        shapes,
        read,
        metadata=file.metadata() or {},
        config=read_json(path.with_name("config.json")),
        preprocessor=read_json(path.with_name("preprocessor_config.json")),
    )


def read_json(path: Path) -> dict:
    """A JSON object, {} where there is no such file. Raises: UserError: it is no JSON object."""
    if not path.is_file():
        return {}
    with named(path, ValueError, OSError):
        content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise UserError(f"{path}: must hold a JSON object")
    return content
