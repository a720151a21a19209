"""Keras's own files: read as numbers, never as code."""

import json
import zipfile

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import UserError, create_model, from_weights, load_weights, open_weights
from tests.check_layer import images_like, randomise
from tests.keras_vit.models import VIT


@pytest.fixture
def model():
    return randomise(create_model(VIT))


def rewritten(path, **members):
    """A `.keras` file with some members replaced."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()} | members
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)


def test_weights_of_another_size_and_head(model, tmp_path):
    path = tmp_path / "a.weights.h5"
    model.save_weights(path)
    other = create_model(VIT, image_size=(16, 10), num_classes=3)
    report = load_weights(other, path)
    assert "grid 2x6 to 4x5" in report.resampled["patch_encoder/position_embedding"]
    assert "the file has 5 classes, the model 3" in str(report)
    same = create_model(VIT, image_size=(16, 6), weights=path)  # as many patches, another grid
    assert np.abs(np.array(same.weights[1]) - np.array(model.weights[1])).max() > 0.01
    with pytest.raises(UserError, match="holds weights, but not their model; name the model too"):
        from_weights(path)


@pytest.mark.filterwarnings("ignore:Skipping nested container")  # Keras, before it fails
def test_keras_itself_never_takes_one_grid_for_another(model, tmp_path):
    path = tmp_path / "a.weights.h5"
    model.save_weights(path)
    other = create_model(VIT, image_size=(16, 6))
    with pytest.raises(ValueError, match=r"are a \(2, 6\) grid, the model's \(4, 3\); keras_vit"):
        other.load_weights(path)


def test_a_compiled_model_is_read_without_its_optimizer(model, tmp_path):
    model.compile("adam", "mse")
    model.save(tmp_path / "a.keras")
    images = images_like((2, 8, 12, 3))
    np.testing.assert_array_equal(model(images), from_weights(tmp_path / "a.keras")(images))


def test_the_run_beside_it_gives_the_preprocessing(model, tmp_path):
    model.save(tmp_path / "model.keras")
    assert open_weights(tmp_path / "model.keras").preprocessing == {}
    values = {"mean": [0.1] * 3, "std": [0.2] * 3, "resize": "crop", "crop_fraction": 0.9,
              "interpolation": "bilinear", "image_size": [8, 12], "channels": 3}  # fmt: skip
    (tmp_path / "preprocess.json").write_text(json.dumps(values))
    known = open_weights(tmp_path).preprocessing
    assert known == {k: v for k, v in values.items() if k not in ("image_size", "channels")}


def test_a_lambda_is_refused_and_not_run(model, tmp_path, capfd):
    x = keras.layers.Lambda(lambda x: print("code was executed") or x)(model.output)
    keras.Model(model.input, x).save(tmp_path / "a.keras")
    capfd.readouterr()
    with pytest.raises(UserError, match=r"holds layer 'lambda' \(Lambda\), no layer of ours"):
        from_weights(tmp_path / "a.keras")
    assert "code was executed" not in capfd.readouterr().out


def layer_of(content, name):
    return next(layer for layer in content["config"]["layers"] if layer["name"] == name)


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda c: layer_of(c, "patch_encoder")["config"].update(hidden_size=2**31),
            "num_heads|few",
        ),
        (lambda c: layer_of(c, "head")["config"].update(units=10**12), "its weights are too few"),
        (lambda c: layer_of(c, "head")["config"].update(units="many"), "num_classes='many' must"),
        (lambda c: layer_of(c, "block_00")["config"].pop("mlp_dim"), "is broken: 'mlp_dim'"),
        (lambda c: c["config"].pop("layers"), "is no model of keras_vit"),
        (lambda c: c.pop("config"), "is broken: 'config'"),
    ],
)
def test_a_config_that_lies_is_one_line(change, message, model, tmp_path):
    path = tmp_path / "a.keras"
    model.save(path)
    with zipfile.ZipFile(path) as archive:
        content = json.loads(archive.read("config.json"))
    change(content)
    rewritten(path, **{"config.json": json.dumps(content).encode()})
    with pytest.raises(UserError, match=message) as error:
        from_weights(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "members",
    [{"config.json": b"{"}, {"model.weights.h5": b"no hdf5" * 10000}, {"config.json": b"[]"}],
)
def test_a_broken_file_is_one_line(members, model, tmp_path):
    path = tmp_path / "a.keras"
    model.save(path)
    rewritten(path, **members)
    with pytest.raises(UserError, match="a.keras: ") as error:
        from_weights(path)
    assert "\n" not in str(error.value)


def test_a_truncated_h5_is_one_line(model, tmp_path):
    path = tmp_path / "a.weights.h5"
    model.save_weights(path)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(UserError, match="a.weights.h5: is broken"):
        create_model(VIT, weights=path)


def test_other_peoples_h5_is_refused(tmp_path):
    x = keras.Input((4,))
    keras.Model(x, keras.layers.Dense(2)(x)).save_weights(tmp_path / "a.weights.h5")
    with pytest.raises(UserError, match="holds no weights of a model of keras_vit"):
        create_model(VIT, weights=tmp_path / "a.weights.h5")


def test_an_older_file_without_its_grid_still_loads(model, tmp_path):
    import h5py

    path = tmp_path / "a.weights.h5"
    model.save_weights(path)
    with h5py.File(path, "a") as file:
        del file["layers/patch_encoder/vars/grid_size"]
    other = create_model(VIT)
    other.load_weights(path)
    np.testing.assert_array_equal(other.weights[1], model.weights[1])
    with pytest.raises(UserError, match="grid_size"):
        keras_vit.load_weights(other, path)
