"""Published files of full size, described by their names and shapes alone."""

import numpy as np
import pytest

import keras_vit
from keras_vit.weights import google
from keras_vit.weights.files import Tensors
from keras_vit.weights.layout import Hints

# name: (hidden, blocks, MLP, heads, embedding kernel, tokens, stem units, arrays with a head)
FILES = {
    "vit_b16": (768, 12, 3072, 12, (16, 16, 3), 197, None, 200),
    "vit_l16": (1024, 24, 4096, 16, (16, 16, 3), 197, None, 392),
    "vit_h14": (1280, 32, 5120, 16, (14, 14, 3), 257, None, 520),
    "r50_vit_b16": (768, 12, 3072, 12, (1, 1, 1024), 197, (3, 4, 9), 356),
    "r26_vit_s32": (384, 12, 1536, 6, (1, 1, 2048), 50, (2, 2, 2, 2), 287),
}


def shapes_of(hidden, blocks, mlp, heads, kernel, tokens, stem, _):
    """As published: modules of a block numbered in one row, GroupNorm of four axes."""
    head = hidden // heads
    found = {
        "embedding/kernel": (*kernel, hidden), "embedding/bias": (hidden,), "cls": (1, 1, hidden),
        "Transformer/posembed_input/pos_embedding": (1, tokens, hidden),
        "head/kernel": (hidden, 1000), "head/bias": (1000,),
    }  # fmt: skip
    norms = ["Transformer/encoder_norm"]
    for index in range(blocks):
        block = f"Transformer/encoderblock_{index}"
        norms += [f"{block}/LayerNorm_0", f"{block}/LayerNorm_2"]
        attention = f"{block}/MultiHeadDotProductAttention_1"
        for part in ("query", "key", "value"):
            found[f"{attention}/{part}/kernel"] = (hidden, heads, head)
            found[f"{attention}/{part}/bias"] = (heads, head)
        found[f"{attention}/out/kernel"], found[f"{attention}/out/bias"] = (
            (heads, head, hidden),
            (hidden,),
        )
        for number, (a, b) in enumerate(((hidden, mlp), (mlp, hidden))):
            found[f"{block}/MlpBlock_3/Dense_{number}/kernel"] = (a, b)
            found[f"{block}/MlpBlock_3/Dense_{number}/bias"] = (b,)
    found |= {f"{norm}/{part}": (hidden,) for norm in norms for part in ("scale", "bias")}
    return found | stem_shapes(stem)


def stem_shapes(stem):
    if stem is None:
        return {}
    convolutions, width = {"conv_root": (7, 7, 3, 64)}, 64
    for stage, units in enumerate(stem):
        inner = 64 * 2**stage
        for unit in range(units):
            name = f"block{stage + 1}/unit{unit + 1}"
            if unit == 0:
                convolutions[f"{name}/conv_proj"] = (1, 1, width, 4 * inner)
            convolutions[f"{name}/conv1"] = (1, 1, width, inner)
            convolutions[f"{name}/conv2"] = (3, 3, inner, inner)
            convolutions[f"{name}/conv3"] = (1, 1, inner, 4 * inner)
            width = 4 * inner
    found = {}
    for name, shape in convolutions.items():
        found[f"{name}/kernel"] = shape
        for part in ("scale", "bias"):
            found[f"{name.replace('conv', 'gn')}/{part}"] = (1, 1, 1, shape[-1])
    return found


@pytest.mark.parametrize("name", FILES)
def test_shapes_say_which_model_it_is(name, tmp_path):
    shapes = shapes_of(*FILES[name])
    assert len(shapes) == FILES[name][-1]

    def read(name):
        raise AssertionError(f"{name} was read")

    tensors = Tensors(tmp_path / "x.npz", shapes, read)
    tensors = google.prepare(tensors.renamed(google.recognise(shapes)))
    config = google.describe(tensors, Hints())
    assert config == keras_vit.find_config(name, dropout=0.0)
    rules = google.rules(config)
    assert {their for rule in rules for their in rule.theirs} == set(tensors.shapes)
    ours = sum(int(np.prod(rule.shape(tensors.shapes))) for rule in rules)
    assert ours == keras_vit.count_params(config)
