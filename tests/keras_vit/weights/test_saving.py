"""save_weights: every layout and back, bit by bit; the originals' own files too."""

import warnings

import numpy as np
import pytest
from safetensors.numpy import load_file

import keras_vit
from keras_vit import UserError, create_model, from_weights, save_weights
from keras_vit.weights import WeightsWarning
from tests.check_layer import images_like, randomise
from tests.keras_vit.models import CONFIGS, LAYOUTS, VIT

NAMES = {
    "google": "model.npz",
    "timm": "model.safetensors",
    "huggingface": "folder",
    "torchvision": "model.safetensors",
    "keras": "model.keras",
}
IGNORED = ("dropout", "layer_scale")  # an initial value, which no file of weights has


@pytest.mark.parametrize(
    "format, name", [(format, name) for format, names in LAYOUTS.items() for name in names]
)
@pytest.mark.filterwarnings("ignore::keras_vit.weights.WeightsWarning")
def test_there_and_back_is_bit_exact(format, name, tmp_path):
    model = randomise(create_model(CONFIGS[name]))
    path = tmp_path / NAMES[format]
    save_weights(model, path, format)
    assert [file.name for file in tmp_path.rglob(".*")] == []  # nothing half-written
    loaded = from_weights(path, gelu=CONFIGS[name].gelu, norm_epsilon=CONFIGS[name].norm_epsilon)
    assert loaded.output_shape == model.output_shape
    assert len(loaded.weights) == len(model.weights)
    for ours, theirs in zip(model.weights, loaded.weights, strict=True):
        assert ours.path == theirs.path
        np.testing.assert_array_equal(ours, theirs, err_msg=ours.path)
    images = images_like((2, *model.input_shape[1:]))
    np.testing.assert_array_equal(model(images), loaded(images))


@pytest.mark.parametrize("format", ["timm", "huggingface"])
@pytest.mark.parametrize("name", ["erf", "token"])
def test_gelu_and_epsilon_travel_where_the_layout_has_a_place(format, name, tmp_path):
    if name not in LAYOUTS[format]:
        pytest.skip(f"{format} has no place for {name}")
    model = randomise(create_model(CONFIGS[name]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save_weights(model, tmp_path / NAMES[format], format)
    assert keras_vit.config_of(from_weights(tmp_path / NAMES[format])) == CONFIGS[name]


def test_the_originals_files_come_back_as_they_were(shared, tmp_path):
    for path in sorted((shared / "reference/timm").glob("*.safetensors")):
        model = from_weights(path)
        save_weights(model, tmp_path / path.name, "timm")
        assert_same(load_file(path), load_file(tmp_path / path.name))
        assert keras_vit.config_of(from_weights(tmp_path / path.name)) == keras_vit.config_of(model)
    folder = shared / "reference/huggingface/vit"
    save_weights(from_weights(folder), tmp_path / "vit", "huggingface")
    assert_same(
        load_file(folder / "model.safetensors"), load_file(tmp_path / "vit/model.safetensors")
    )
    for path in sorted((shared / "reference/jax").glob("*.npz")):
        if ".io." in path.name or "resize" in path.name:
            continue
        size = np.load(path.with_suffix(".io.npz"))["images"].shape[1:3]
        save_weights(from_weights(path, image_size=size), tmp_path / path.name, "google")
        ours, theirs = dict(np.load(tmp_path / path.name)), dict(np.load(path))
        ours.pop("keras_vit/grid_size", None)
        assert_same({linen(name): array for name, array in ours.items()}, theirs)


def linen(name):
    """The reference files number each class of module for itself, the published ones do not."""
    for old, new in (("LayerNorm_2", "LayerNorm_1"), ("Attention_1", "Attention_0")):
        name = name.replace(old, new)
    return name.replace("MlpBlock_3", "MlpBlock_0")


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        assert ours[name].dtype == array.dtype
        np.testing.assert_array_equal(ours[name], array, err_msg=name)


def test_half_precision_files_lose_nothing(shared, tmp_path):
    path = shared / "weights/dinov2_vits14_backbone_fp16.safetensors"
    save_weights(from_weights(path), tmp_path / "dino", "huggingface")
    ours, theirs = load_file(tmp_path / "dino/model.safetensors"), load_file(path)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array.astype("float32"), err_msg=name)


def test_what_a_layouts_own_code_computes_otherwise_is_said(tmp_path):
    model = create_model(CONFIGS["erf"])
    with pytest.warns(WeightsWarning) as caught:
        save_weights(model, tmp_path / "x.npz", "google")
    said = " ".join(str(warning.message) for warning in caught)
    assert "its code computes with gelu=tanh, not this model's erf" in said
    with pytest.warns(WeightsWarning, match="norm_epsilon=1e-06, not this model's 1e-12"):
        save_weights(model, tmp_path / "x.safetensors", "timm")


@pytest.mark.parametrize(
    "format, path, message",
    [
        ("jax", "x.npz", "format='jax' must be one of google, timm, huggingface, torchvision"),
        ("google", "x.safetensors", "format=google needs .npz"),
        ("timm", "x.npz", "format=timm needs .safetensors or a folder without a suffix"),
        ("keras", "x.npz", "format=keras needs .keras or .h5"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(format, path, message, tmp_path):
    with pytest.raises(UserError, match=message):
        save_weights(create_model(VIT), tmp_path / path, format)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format", ["timm", "huggingface", "torchvision"])
def test_what_a_layout_cannot_hold_is_refused(format, tmp_path):
    with pytest.raises(UserError, match=f"format={format} has no MLP-Mixer; google has"):
        save_weights(create_model(CONFIGS["mixer"]), tmp_path / NAMES[format], format)
    for name in set(CONFIGS) - set(LAYOUTS[format]) - {"mixer", "erf"}:
        with pytest.raises(UserError, match=f"format={format} has no place for"):
            save_weights(create_model(CONFIGS[name]), tmp_path / NAMES[format], format)
    assert not list(tmp_path.iterdir())


def test_a_frozen_model_of_half_precision_saves_the_same(tmp_path):
    model = randomise(create_model(VIT, dtype="mixed_bfloat16"))
    model.trainable = False
    save_weights(model, tmp_path / "a.npz", "google")
    loaded = from_weights(tmp_path / "a.npz")
    for ours, theirs in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_keras_weights_are_written_too(tmp_path):
    model = randomise(create_model(VIT))
    save_weights(model, tmp_path / "a.weights.h5", "keras")
    other = create_model(VIT)
    other.load_weights(tmp_path / "a.weights.h5")
    np.testing.assert_array_equal(other.weights[3], model.weights[3])
