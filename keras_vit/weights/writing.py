"""Files written whole: under a temporary name, then renamed, so that a kill leaves the old one."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors.numpy


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:  # given a path, NumPy would add .npz to it
            np.savez(file, **arrays)

    write_whole(path, write)


def write_safetensors(path: Path, arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    # The library writes the memory of an array as it lies, so a transposed view must be copied.
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_whole(path, lambda file: safetensors.numpy.save_file(plain, file, metadata=metadata))


def write_json(path: Path, content: dict) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_whole(path, lambda file: file.write_text(text, encoding="utf-8"))
