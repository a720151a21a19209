"""What the layouts share: rules between our variables and their tensors, and sizes to be guessed.

A layout is a module with
    NAME, DESCRIPTION, EXTRAS (a pattern of tensors without a place here), ASSUMES (what its own
    code computes, whatever a file says),
    recognise(names) -> {name in the file: canonical name}, or None: it is another layout,
    prepare(tensors) -> tensors, with stacked ones apart,
    describe(tensors, hints) -> configuration of the model in the file,
    rules(config) -> [Rule]: every variable of that model,
    position_resize(config, names) -> its method of resampling positions,
    preprocessing(tensors) -> how its images are prepared, in the words of `preprocess.json`,
    refuse(config): raises UserError if it has no place for a model,
    write(path, tensors, config, preprocessing).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from keras_vit.config import UserError
from keras_vit.variants import SIZES

HALF = {"mean": [0.5] * 3, "std": [0.5] * 3}  # pixels in -1..1
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


class WeightsWarning(UserWarning):
    """All went well, but there is something to know about the weights."""


@dataclass(frozen=True)
class Rule:
    """One variable of ours and the tensors of a layout that hold it; both ways are exact."""

    ours: str
    theirs: tuple[str, ...]
    to_ours: Callable[..., np.ndarray] = lambda array: array
    to_theirs: Callable[[np.ndarray], tuple[np.ndarray, ...]] = lambda array: (array,)

    def shape(self, shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
        """Shape of our variable, from those of the tensors; reads and computes nothing."""
        empty = (np.broadcast_to(np.int8(0), shapes[name]) for name in self.theirs)
        return self.to_ours(*empty).shape


@dataclass(frozen=True)
class Hints:
    """What the caller knows of a file that does not say it: that of the model to be filled."""

    image_size: int | tuple[int, int] | None = None
    num_heads: int | None = None


def same(ours: str, *theirs: str) -> Rule:
    return Rule(ours, theirs)


def concatenated(ours: str, theirs: Iterable[str], *, own: tuple, shape: tuple) -> Rule:
    """Tensors of one `shape` there, each of shape `own` here, side by side on the last axis."""
    theirs = tuple(theirs)

    def to_ours(*parts):
        return np.concatenate([part.reshape(own) for part in parts], axis=-1)

    def to_theirs(array):
        return tuple(part.reshape(shape) for part in np.split(array, len(theirs), axis=-1))

    return Rule(ours, theirs, to_ours, to_theirs)


def find_grid(count, patch, *, stored=None, image_size=None, path="") -> tuple[int, int]:
    """(rows, columns) of `count` patches.

    What the file stores is taken first, then a square; for anything else the image size must be
    known, with `patch`, the pixels from patch to patch.

    Raises: UserError: it cannot be known.
    """
    if stored is not None:
        if math.prod(stored) != count:
            raise UserError(f"{path}: has {count} positions, but says its grid is {stored}")
        return tuple(stored)
    side = math.isqrt(max(count, 0))
    if side > 0 and side * side == count:
        return side, side
    if image_size is not None:
        grid = grid_of(image_size, patch)
        if math.prod(grid) == count:
            return grid
    raise UserError(
        f"{path}: its {count} positions are no square grid;"
        " give the image_size=(height, width) that it was trained with"
    )


def grid_of(size, step) -> tuple[int, int] | None:
    """(rows, columns) of an image size, an int or (height, width), with `step` pixels a patch."""
    if size is None:
        return None
    size = (size, size) if isinstance(size, int) else size
    return tuple(-(-side // pixels) for side, pixels in zip(size, step, strict=True))


def size_of(grid, step) -> tuple[int, int]:
    """(height, width) of an image of so many rows and columns of patches."""
    return tuple(count * pixels for count, pixels in zip(grid, step, strict=True))


def needed_grid(size, step, path) -> tuple[int, int]:
    """The same for a file without positions. Raises: UserError: no size is given."""
    grid = grid_of(size, step)
    if grid is None:
        raise UserError(f"{path}: has no positions; give image_size=(height, width)")
    return grid


def find_heads(sizes: tuple[int, int, int], known: int | None, hints: Hints, path) -> int:
    """Attention heads, which no tensor shows: as the file says, of the named size, or as given.

    Args:
        sizes: hidden_size, num_layers and mlp_dim.

    Raises: UserError: it cannot be known.
    """
    named = next((size[3] for size in SIZES.values() if size[:3] == sizes), None)
    heads = known or named or hints.num_heads
    if heads is None:
        raise UserError(f"{path}: no tensor shows how many attention heads it has; give num_heads=")
    return heads


def count_blocks(names: Iterable[str], prefix: str) -> int:
    """How many different numbers follow `prefix`."""
    rests = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return len({rest.split(".")[0].split("/")[0] for rest in rests})
