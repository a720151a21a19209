"""`keras-vit weights inspect PATH` and `convert A B --to LAYOUT`: pretrained weights on disk."""

import warnings
from dataclasses import fields
from pathlib import Path

import keras_vit
from keras_vit.config import UserError
from keras_vit.variants import name_of
from keras_vit.weights import Weights, WeightsWarning, open_weights
from training.config import WeightsConfig

SAID = (  # by the variant or in a line of its own
    "hidden_size", "num_layers", "mlp_dim", "num_heads", "tokens_mlp_dim", "channels_mlp_dim",
    "patch_size", "image_size", "num_classes",
)  # fmt: skip


def main(config: WeightsConfig) -> None:
    weights = open_weights(
        config.paths[0], image_size=config.image_size, num_heads=config.num_heads
    )
    if config.action == "inspect":
        print("\n".join(description(weights)))
    else:
        convert(weights, Path(config.paths[1]), config)


def description(weights: Weights) -> list[str]:
    """What a file holds, a line for each fact."""
    model = weights.config
    patch, size = ("x".join(map(str, pair)) for pair in (model.patch_size, model.image_size))
    grid = "x".join(map(str, model.grid_size))
    facts = {
        "file": weights.path,
        "sha256": weights.digest,
        "layout": f"{weights.layout}: {weights.description}",
        "variant": f"{name_of(model) or 'none of the named'} {differing(model)}".rstrip(),
        "parameters": f"{keras_vit.count_params(model):,}",
        "image size": f"{size} pixels, patches {patch}, grid {grid}",
        "classes": model.num_classes or "no head",
        "preprocessing": ", ".join(f"{k} {v}" for k, v in weights.preprocessing.items())
        or "not known",
    }
    return [f"{name:14} {value}" for name, value in facts.items()]


def differing(model) -> str:
    """The settings besides the sizes that are not the default."""
    found = []
    for field in fields(model):
        value = getattr(model, field.name)
        if field.name not in SAID and value != field.default:
            found.append(f"{field.name}={value}")
    return f"({', '.join(found)})" if found else ""


def convert(weights: Weights, path: Path, config: WeightsConfig) -> None:
    """Write the weights in another layout, with all that both layouts have a place for."""
    if path.exists() and not config.overwrite:
        raise UserError(f"{path} exists; choose another name or add --overwrite")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", WeightsWarning)
        model = keras_vit.from_weights(weights)
        keras_vit.save_weights(model, path, config.to, weights.preprocessing or None)
    for warning in caught:
        if issubclass(warning.category, WeightsWarning):
            print(f"Note: {warning.message}")
    print(f"Written: {path} ({config.to})")
