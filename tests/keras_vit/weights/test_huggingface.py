"""The Hugging Face layout: outputs of transformers, both name layouts, with and without heads."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit import UserError, create_model, from_weights, intermediates, open_weights
from tests.check_layer import images_like, randomise
from tests.keras_vit.models import CONFIGS, LAYOUTS


def test_outputs_and_attention_are_those_of_transformers(shared):
    expected = np.load(shared / "reference/huggingface/vit.io.npz")
    images = expected["images_nchw"].transpose(0, 2, 3, 1)
    values = intermediates(from_weights(shared / "reference/huggingface/vit"))(images)
    np.testing.assert_allclose(values["head"], expected["logits"], atol=1e-5)
    for index in range(3):
        ours = values[f"block_{index:02d}/attention_scores"]
        np.testing.assert_allclose(ours, expected[f"attention_{index}"], atol=1e-6)


def test_another_resolution_is_that_of_transformers(shared):
    expected = np.load(shared / "reference/huggingface/vit.io.npz")
    model = from_weights(shared / "reference/huggingface/vit", image_size=48)
    logits = model(expected["images48_nchw"].transpose(0, 2, 3, 1))
    np.testing.assert_allclose(logits, expected["logits48"], atol=1e-5)


@pytest.mark.parametrize("size", [224, 518])
def test_dinov2_on_real_photos(size, shared):
    expected = np.load(shared / "reference/dinov2/vits14.io.npz")
    path = shared / "weights/dinov2_vits14_backbone_fp16.safetensors"
    model = from_weights(path, image_size=size, pooling="none")
    tokens = model(expected[f"images_{size}_nchw"].transpose(0, 2, 3, 1)).numpy()
    np.testing.assert_allclose(tokens[:, 0], expected[f"class_token_{size}"], atol=1e-4)
    mean = expected[f"patch_tokens_mean_{size}"]
    np.testing.assert_allclose(tokens[:, 1:].mean(axis=1), mean, atol=1e-4)
    if size == 224:
        np.testing.assert_allclose(tokens, expected["tokens_224"], atol=1e-4)


def saved(name, tmp_path):
    model = randomise(create_model(CONFIGS[name]))
    folder = tmp_path / "hub"
    keras_vit.save_weights(model, folder, "huggingface")
    return model, folder, load_file(folder / "model.safetensors")


def assert_same(model, folder, **settings):
    loaded = from_weights(folder, **settings)
    for variable in loaded.weights:
        ours = next(v for v in model.weights if v.path == variable.path)
        np.testing.assert_array_equal(ours, variable, err_msg=ours.path)
    return loaded


IN_MEMORY = {
    "encoder.layer.": "layers.",
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}


@pytest.mark.parametrize("name", LAYOUTS["huggingface"])
def test_names_in_memory_are_read_too(name, tmp_path):
    model, folder, tensors = saved(name, tmp_path)

    def rename(key):
        for old, new in IN_MEMORY.items():
            key = key.replace(old, new)
        return key

    renamed = {rename(key): array for key, array in tensors.items()}
    assert renamed.keys() != tensors.keys()
    save_file(renamed, folder / "model.safetensors")
    assert_same(model, folder)


@pytest.mark.parametrize("name", ["token", "dinov2_registers"])
@pytest.mark.parametrize("prefix", [True, False])
def test_without_a_head_with_a_pooler(name, prefix, tmp_path):
    model, folder, tensors = saved(name, tmp_path)
    backbone = {key: array for key, array in tensors.items() if "classifier" not in key}
    if not prefix:
        backbone = {key.split(".", 1)[1]: array for key, array in backbone.items()}
    extra = {"pooler.dense.weight": np.ones((24, 24), "f"), "pooler.dense.bias": np.ones(24, "f")}
    save_file(backbone | extra, folder / "model.safetensors")
    loaded = assert_same(model, folder)
    assert loaded.output_shape == (None, 24)
    report = keras_vit.load_weights(loaded, folder)
    assert set(report.unexpected) == set(extra)
    assert "left out of the file: pooler.dense" in str(report)


def test_deit_without_its_second_head(tmp_path):
    """DeiTForImageClassification: the distillation token is there, but only read by attention."""
    config = {**vars(CONFIGS["erf"]), "num_register_tokens": 1}
    model = randomise(create_model(keras_vit.ViTConfig(**config)))
    folder = tmp_path / "deit"
    keras_vit.save_weights(model, folder, "huggingface")
    assert "deit.embeddings.distillation_token" in load_file(folder / "model.safetensors")
    assert json.loads((folder / "config.json").read_text())["model_type"] == "deit"
    images = images_like((2, 8, 12, 3))
    np.testing.assert_array_equal(model(images), from_weights(folder)(images))


def test_dinov2_needs_a_whole_ratio(tmp_path):
    """transformers reads mlp_ratio as an int, and refuses another."""
    config = keras_vit.ViTConfig(**{**vars(CONFIGS["dinov2"]), "mlp_dim": 30})
    with pytest.raises(UserError, match="mlp_dim=30 in Dinov2: it must be a multiple of"):
        keras_vit.save_weights(create_model(config), tmp_path / "a", "huggingface")


def test_epsilon_and_gelu_are_the_configs(shared, tmp_path):
    config = open_weights(shared / "reference/huggingface/vit").config
    assert (config.norm_epsilon, config.gelu) == (1e-12, "erf")
    model = create_model("vit_mu8", hidden_size=48, num_layers=3, mlp_dim=96, num_heads=3,
                         image_size=32, num_classes=10,
                         weights=shared / "reference/huggingface/vit")  # fmt: skip
    found = keras_vit.config_of(model)
    assert (found.norm_epsilon, found.gelu) == (1e-12, "erf")
    shutil.copy(shared / "reference/huggingface/vit/model.safetensors", tmp_path)
    # no config.json: the class's own
    bare = open_weights(tmp_path / "model.safetensors", num_heads=3).config
    assert bare.norm_epsilon == 1e-12


@pytest.mark.parametrize(
    "change, message",
    [
        ({"hidden_act": "relu"}, "hidden_act='relu' has no counterpart"),
        ({"image_size": [64, 32]}, "has 16 positions, but says its grid is"),
        ({"num_attention_heads": 5}, "num_heads=5 must divide hidden_size=48"),
    ],
)
def test_a_config_that_does_not_fit_is_one_line(change, message, shared, tmp_path):
    source = shared / "reference/huggingface/vit"
    shutil.copy(source / "model.safetensors", tmp_path)
    config = json.loads((source / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=message) as error:
        from_weights(tmp_path)
    assert "\n" not in str(error.value)


def test_registers_are_resampled_with_antialiasing(tmp_path):
    """transformers: Dinov2WithRegisters has antialias=True, Dinov2, ViT and DeiT have not."""
    for name in LAYOUTS["huggingface"]:
        _, folder, _ = saved(name, tmp_path / name)
        method = "bicubic_antialias" if name == "dinov2_registers" else "bicubic"
        assert open_weights(folder).position_resize == method
