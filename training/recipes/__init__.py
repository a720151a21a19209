"""Recipes: settings of training that belong together, as data: a YAML file each, beside this one.

A file holds settings of `keras-vit train` by their names, the fields of `Recipe` below, and
optionally `base`, the recipe that it changes.
"""

import dataclasses
from dataclasses import dataclass, field, fields
from pathlib import Path

from keras_vit.config import UserError
from training.config import TrainConfig
from training.flags import Parser, UsageError, add_flags, nearest, read_yaml, values_of, words_of

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Recipe:
    """What a recipe sets where the user says nothing.

    source: where its figures are from.
    expected: the published result, with its conditions.
    settings: of `TrainConfig`, by name.
    rate: peak learning rate for a batch of `rate_batch` images, scaled with the batch; with
        `rate_batch` None it is for any batch.
    images_shown: in all epochs together, with fewest_epochs and most_epochs as limits; where the
        settings have no `epochs`. None: by the kind of images.
    most_batch: images a step where the settings have no `batch_size`; fewer for few images.
    warmup: part of all epochs, where the settings have no warm-up.
    resolution: side of the image over the weights' own (at most 224 pixels).
    needs: a setting that the user must give.
    stem: a named model of ours gets its convolutional stem (images of more than 16 pixels).
    """

    source: str
    expected: str
    settings: dict = field(default_factory=dict)
    rate: float | None = None
    rate_batch: int | None = None
    images_shown: int | None = None
    fewest_epochs: int = 20
    most_epochs: int | None = None
    most_batch: int | None = None
    warmup: float = 0.1
    resolution: float = 1.0
    needs: str | None = None
    stem: bool = False


def list_recipes() -> list[str]:
    """Names of the recipes that come with the project."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find_recipe(name: str) -> Recipe:
    """The recipe of this name, or of the YAML file at this path.

    Raises: UserError: there is none, or it holds what is no setting.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if path.parent == FOLDER and not path.is_file():
        raise UserError(f"recipe={name!r} is unknown{nearest(name, list_recipes())}")
    try:
        return _read(path)
    except (UsageError, TypeError, ValueError) as error:
        raise UserError(f"recipe={name!r}: {error}") from error


def _read(path: Path) -> Recipe:
    content = {str(key).replace("-", "_"): value for key, value in read_yaml(str(path)).items()}
    base = content.pop("base", None)
    known = {item.name for item in fields(Recipe)} - {"settings"}
    own = {key: value for key, value in content.items() if key in known}
    settings = _typed({k: v for k, v in content.items() if k not in known}, path)
    if base is None:
        missing = [key for key in ("source", "expected") if key not in own]
        if missing:
            raise ValueError(f"{path.name} says no {missing[0]}")
        return Recipe(settings=settings, **own)
    below = find_recipe(base)
    return dataclasses.replace(below, settings=below.settings | settings, **own)


def _typed(settings: dict, path: Path) -> dict:
    """Values as on the command line, with its checks."""
    parser = Parser(prog=str(path), add_help=False, allow_abbrev=False)
    add_flags(parser, TrainConfig)
    values = values_of(parser.parse_args(words_of(settings, str(path), TrainConfig)))
    TrainConfig(**values)
    return {name: values[name] for name in settings}
