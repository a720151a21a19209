"""The exact state of a run, an .npz file a checkpoint: whole or not there, and checked by CRC.

A state is arrays (weights, optimizer, metrics) and facts (JSON): see `training/resume.py`.
"""

import json
import os
from pathlib import Path

import numpy as np

from keras_vit.config import UserError
from training.run import put_in_place

BEFORE = "before.npz"  # what --resume-weights-only starts from
FACTS = "facts.json"


def save(folder: Path, step: int, arrays: dict[str, np.ndarray], facts: dict, keep: int) -> Path:
    """Write `step_<step>.npz`, then remove all but the `keep` newest.

    Raises: UserError: it cannot be written; what was there stays.
    """
    path = folder / f"step_{step:010d}.npz"
    temporary = folder / f".{path.name}.tmp"
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    try:
        with temporary.open("wb") as file:
            np.savez(file, **arrays, **{FACTS: text})
        put_in_place(temporary, path)
        flush_folder(folder)
    except OSError as error:
        old = checkpoints(folder)
        raise UserError(
            f"{path} cannot be written: {error.strerror or error};"
            f" {f'{old[-1].name} is whole' if old else 'there is none before'}: make room or mount"
            " the folder again, then go on with --resume"
        ) from error
    finally:
        if folder.is_dir():
            temporary.unlink(missing_ok=True)
    for old in checkpoints(folder)[:-keep]:
        old.unlink()
    return path


def flush_folder(folder: Path) -> None:
    """Make a rename last through a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checkpoints(folder: Path) -> list[Path]:
    """From the oldest to the newest."""
    return sorted(folder.glob("step_*.npz"))


def load(path: Path) -> tuple[dict[str, np.ndarray], dict]:
    """(arrays, facts) of one file.

    Raises: UserError: it is not whole.
    """
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        return arrays, json.loads(arrays.pop(FACTS).tobytes())
    except Exception as error:  # what zipfile raises follows from the byte that is wrong
        raise UserError(f"{path} is not whole: {error}") from error


def set_aside(folder: Path) -> None:
    """Keep the newest as before.npz, remove the others: a new run begins."""
    found = checkpoints(folder)
    if found:
        os.replace(found[-1], folder / BEFORE)
    for path in found[:-1]:
        path.unlink()


def newest(folder: Path, or_before: bool = False) -> tuple[dict[str, np.ndarray], dict] | None:
    """The newest whole checkpoint, None where there is none; says which ones it passed over.

    Args:
        folder: checkpoints/ of a run.
        or_before: also take the one set aside, after all others.

    Raises: UserError: there are some and all are broken.
    """
    found = checkpoints(folder)
    if or_before:
        found = [*folder.glob(BEFORE), *found]
    for path in reversed(found):
        try:
            return load(path)
        except UserError as error:
            print(f"Warning    {error}; taking the checkpoint before it", flush=True)
    if found:
        raise UserError(f"no checkpoint in {folder} is whole; start anew without --resume")
    return None
