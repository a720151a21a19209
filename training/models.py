"""`keras-vit models`: the named models with their sizes."""

from rich.console import Console
from rich.table import Table

import keras_vit
from keras_vit.config import MixerConfig
from training.config import ModelsConfig


def main(config: ModelsConfig) -> None:
    table = Table(title="Parameters with a head of 1000 classes, 224 x 224 pixels")
    for name in ("model", "patch", "hidden size", "blocks", "heads", "tokens", "parameters"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for name in keras_vit.list_models():
        model = keras_vit.find_config(name)
        is_mixer = isinstance(model, MixerConfig)
        rows, columns = model.grid_size
        table.add_row(
            name,
            "x".join(str(side) for side in model.patch_size),
            str(model.hidden_size),
            str(model.num_layers),
            "-" if is_mixer else str(model.num_heads),
            str(rows * columns + (0 if is_mixer else model.num_prefix_tokens)),
            f"{keras_vit.count_params(model):,}",
        )
    console = Console()
    console.print(table)
    console.print(
        "Any patch size may be written: vit_s8. For small images there is vit_xs: vit_xs4.",
        highlight=False,
    )
