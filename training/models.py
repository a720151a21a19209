"""`keras-vit models`: the named models with their sizes."""

from rich.table import Table

import keras_vit
from keras_vit.config import MixerConfig
from training.config import ModelsConfig
from training.report import console


def main(config: ModelsConfig) -> None:
    table = Table(title="Parameters with a head of 1000 classes, 224 x 224 pixels")
    table.add_column("model", no_wrap=True)
    for name in ("patch", "hidden\nsize", "blocks", "heads", "tokens", "parameters"):
        table.add_column(name, justify="right", no_wrap=True)
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
    console().print(table)
    print("Any patch size may be written: vit_s8. vit_xs is for small images: vit_xs4.")
    print("With DeiT's distillation token: vit_s16_distilled.")
