"""The torchvision layout, of today and of its first releases."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit import create_model, from_weights, open_weights
from tests.check_layer import images_like, randomise
from tests.keras_vit.models import CONFIGS


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", ["square", "square_pre_logits"])
@pytest.mark.filterwarnings("ignore::keras_vit.weights.WeightsWarning")
def test_both_names_of_the_mlp_are_read(name, legacy, tmp_path):
    model = randomise(create_model(CONFIGS[name], gelu="erf"))
    path = tmp_path / "a.safetensors"
    keras_vit.save_weights(model, path, "torchvision")
    tensors = load_file(path)
    block = "encoder.layers.encoder_layer_1"
    assert tensors[f"{block}.self_attention.in_proj_weight"].shape == (72, 24)
    assert tensors[f"{block}.mlp.0.weight"].shape == (48, 24)
    if legacy:
        tensors = {
            key.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): array
            for key, array in tensors.items()
        }
    save_file(tensors, path)
    loaded = from_weights(path, num_heads=3, image_size=CONFIGS[name].image_size)
    images = images_like((2, *model.input_shape[1:]))
    np.testing.assert_array_equal(model(images), loaded(images))


def test_its_images_have_imagenets_mean(tmp_path):
    model = create_model(CONFIGS["square"], gelu="erf")
    keras_vit.save_weights(model, tmp_path / "a.safetensors", "torchvision")
    weights = open_weights(tmp_path / "a.safetensors")
    assert weights.preprocessing["mean"] == [0.485, 0.456, 0.406]
    assert weights.preprocessing["crop_fraction"] == 0.875
    assert weights.position_resize == "bicubic_corners"
