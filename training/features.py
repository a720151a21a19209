"""`keras-vit features RUN|WEIGHTS`: what a frozen backbone makes of images, as an `.npz`."""

import os
from pathlib import Path

import numpy as np

from keras_vit.config import UserError
from training.config import FeaturesConfig
from training.data.sources import IndexedSplit, open_source
from training.inference import answers, open_backbone, say_skipped


def main(config: FeaturesConfig) -> None:
    path = Path(config.output)
    if path.exists() and not config.overwrite:
        raise UserError(f"output={config.output!r} exists; choose another or add --overwrite")
    if not path.parent.is_dir():
        raise UserError(f"output={config.output!r}: its folder does not exist")
    backbone = open_backbone(config.run, config.image_size)
    settings = backbone.run.read_config() if backbone.run else {}
    data = config.data or settings.get("data")
    if data is None:
        raise UserError("data: name the images, like --data folder:PATH; weights bring none")
    source = open_source(
        data,
        seed=settings.get("seed", 0),
        validation_fraction=settings.get("validation_fraction", 0.2),
        max_skipped=settings.get("max_skipped", 0.05),
        data_dir=config.data_dir or settings.get("data_dir"),
    )
    say_skipped(source)
    parts = {name: split for name, split in source.splits.items() if split.num_examples}
    features, labels, _ = answers(
        backbone.model, list(parts.values()), backbone.preprocess, config.batch_size
    )
    content = {
        "features": features,  # (N, D)
        "labels": labels,  # (N,)
        "splits": np.repeat(list(parts), [split.num_examples for split in parts.values()]),
        "class_names": np.array(source.class_names),
        "files": np.concatenate([names_of(split) for split in parts.values()]),
    }
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        np.savez(file, **content)
        os.fsync(file.fileno())
    os.replace(temporary, path)
    counts = ", ".join(f"{split.num_examples} {name}" for name, split in parts.items())
    print(f"Written: {path}: {features.shape[1]} features of {len(features)} images ({counts})")


def names_of(split) -> np.ndarray:
    """File names of a split's images, "" where they are no files."""
    if isinstance(split, IndexedSplit) and split.names:
        return np.array(split.names)
    return np.full(split.num_examples, "")
