"""Runs to try the commands on, trained once for all tests."""

import shutil
from pathlib import Path

import pytest

from training import cli


def train(*flags) -> None:
    assert cli.main(["train", *map(str, flags)]) == 0


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory) -> Path:
    """A tiny model after one epoch of digits; copy it before changing it."""
    path = tmp_path_factory.mktemp("runs") / "digits"
    train("--data", "digits", "--model", "vit_mu4", "--epochs", 1, "--output", path)
    return path


@pytest.fixture(scope="session")
def photos(shared, tmp_path_factory) -> Path:
    """Real JPEGs, train: 3 x 6, val: 3 x 2 and two that are stored on their side (EXIF)."""
    root = tmp_path_factory.mktemp("data") / "photos"
    for name in ("daisy", "rose", "tulip"):
        files = sorted((shared / "data/flowers5" / name).glob("*.jpg"))
        for split, some in (("train", files[:6]), ("val", files[6:8])):
            (root / split / name).mkdir(parents=True)
            for path in some:
                shutil.copy(path, root / split / name)
    for name in ("Portrait_6.jpg", "Landscape_7.jpg"):
        shutil.copy(shared / "data/nasty/exif" / name, root / "val/tulip")
    return root


@pytest.fixture(scope="session")
def photo_run(photos, tmp_path_factory) -> Path:
    """A tiny model after one epoch of `photos`; copy it before changing it."""
    path = tmp_path_factory.mktemp("runs") / "photos"
    flags = ("--model", "vit_mu16", "--image-size", "48x32", "--epochs", 1, "--augment", "none")
    train("--data", f"folder:{photos}", *flags, "--output", path)
    return path
