"""open_weights: what is recognised, what is said of what is not."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit import UserError, create_model, open_weights
from keras_vit.weights.opening import fit_channels
from tests.keras_vit.models import CONFIGS, LAYOUTS


@pytest.mark.parametrize(
    "format, name", [(format, name) for format, names in LAYOUTS.items() for name in names]
)
@pytest.mark.filterwarnings("ignore::keras_vit.weights.WeightsWarning")
def test_the_content_decides_not_the_name(format, name, tmp_path):
    path = tmp_path / {"google": "a.npz", "keras": "a.keras", "huggingface": "a"}.get(
        format, "a.safetensors"
    )
    keras_vit.save_weights(create_model(CONFIGS[name]), path, format)
    if path.is_file():
        path = path.rename(tmp_path / "weights")
    weights = open_weights(path, image_size=CONFIGS[name].image_size)
    assert weights.layout == format
    assert weights.config.grid_size == CONFIGS[name].grid_size
    assert keras_vit.count_params(weights.config) == create_model(weights.config).count_params()


def test_a_folder_is_searched(tmp_path):
    with pytest.raises(UserError, match="weights '.*none' do not exist"):
        open_weights(tmp_path / "none")
    with pytest.raises(UserError, match="holds none of model.safetensors, model.keras"):
        open_weights(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(UserError, match="its weights lie in several files; save them as one"):
        open_weights(tmp_path)
    create_model(CONFIGS["token"]).save(tmp_path / "model.keras")
    assert open_weights(tmp_path).layout == "keras"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"blocks.0.mlp.fc1.weight": None}, "timm VisionTransformer, but blocks.0.mlp.fc1.weight"),
        ({"patch_embed.proj.weight": np.ones((24, 3), "f")}, "its shapes do not fit"),
        ({"pos_embed": np.ones((1, 0, 24), "f")}, "no square grid|image_size"),
        ({"cls_token": np.ones((1, 1, 7), "f")}, "misshapen: cls_token gives"),
        ({"head.weight": np.ones((0, 24), "f")}, "misshapen|head"),
    ],
)
def test_tensors_that_are_missing_or_misshapen_are_one_line(change, message, tmp_path):
    path = tmp_path / "a.safetensors"
    keras_vit.save_weights(create_model(CONFIGS["erf"], norm_epsilon=1e-6), path, "timm")
    tensors = load_file(path) | change
    save_file({key: array for key, array in tensors.items() if array is not None}, path)
    with pytest.raises(UserError, match=message) as error:
        keras_vit.from_weights(path, image_size=(8, 12), num_heads=3)
    assert "\n" not in str(error.value)


def test_mean_and_std_fit_the_channels():
    rgb = {"mean": [0.1, 0.2, 0.6], "std": [0.5, 0.5, 0.5], "resize": "crop"}
    assert fit_channels(rgb, 3) == rgb
    gray = fit_channels(rgb, 1)
    assert gray["mean"] == [pytest.approx(0.3)] and gray["std"] == [0.5]
    assert fit_channels({}, 3) == {}


def test_the_digest_is_the_files(tmp_path):
    path = tmp_path / "a.npz"
    keras_vit.save_weights(create_model(CONFIGS["token"]), path, "google")
    import hashlib

    assert open_weights(path).digest == hashlib.sha256(path.read_bytes()).hexdigest()
