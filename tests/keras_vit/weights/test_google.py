"""The google layout: outputs of the original JAX code, and the names of other writers."""

import re

import numpy as np
import pytest

import keras_vit
from keras_vit import UserError, create_model, from_weights, intermediates, open_weights
from tests.check_layer import images_like, randomise
from tests.keras_vit.models import CONFIGS, LAYOUTS, VIT

CASES = ["vit_token", "vit_gap", "vit_token_prelogits", "vit_token_patch16x8_48x64",
         "hybrid_r_stem", "hybrid_r_stages", "mixer"]  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_the_originals(name, shared):
    path = shared / "reference" / "jax" / f"{name}.npz"
    expected = np.load(path.with_name(f"{name}.io.npz"))
    model = from_weights(path, image_size=expected["images"].shape[1:3])
    assert model.count_params() == sum(array.size for array in np.load(path).values())
    values = intermediates(model)(expected["images"])
    np.testing.assert_allclose(values["head"], expected["logits"], atol=1e-5)
    tokens = {key: expected[key] for key in expected if key.startswith("tokens/")}
    if "pre_logits" in values:  # the original stored them before tanh
        tokens["tokens/pre_logits"] = np.tanh(tokens["tokens/pre_logits"])
    for key, value in tokens.items():
        ours = np.reshape(values[our_name(key, values)], value.shape)
        np.testing.assert_allclose(ours, value, atol=2e-5, err_msg=key)


def our_name(key, values):
    """The name in `intermediates` of what the original calls tokens/..."""
    key = key.removeprefix("tokens/").removeprefix("Transformer/")
    if key == "pre_logits":
        return key if key in values else "pool"
    if key.startswith("encoderblock_"):
        return f"block_{int(key.removeprefix('encoderblock_')):02d}"
    return {"embedding": "patch_embedding"}.get(key, key)


@pytest.fixture
def saved(tmp_path):
    """A function: save a random model of a name, give (model, its arrays, a path to write to)."""

    def save(name):
        model = randomise(create_model(CONFIGS[name]))
        path = tmp_path / "ours.npz"
        keras_vit.save_weights(model, path, "google")
        return model, dict(np.load(path)), tmp_path / "theirs.npz"

    return save


def assert_same_model(model, path, **settings):
    loaded = from_weights(path, image_size=model.input_shape[1:3], **settings)
    assert keras_vit.config_of(loaded) == keras_vit.config_of(model)
    for ours, theirs in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=ours.path)


@pytest.mark.parametrize("name", LAYOUTS["google"])
@pytest.mark.parametrize("prefix", ["opt/target/", "params/", "params/img/", "img/"])
def test_a_tree_may_lie_under_a_prefix(name, prefix, saved):
    model, arrays, path = saved(name)
    np.savez(path, **{prefix + key: value for key, value in arrays.items()})
    assert_same_model(model, path)


def test_published_files_number_all_modules_in_one_row_newer_trees_each_class(saved):
    model, arrays, path = saved("token")
    block = "Transformer/encoderblock_0/"
    assert {key.removeprefix(block).split("/")[0] for key in arrays if key.startswith(block)} == {
        "LayerNorm_0", "MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3",
    }  # fmt: skip
    newer = {"LayerNorm_2": "LayerNorm_1", "Attention_1": "Attention_0", "Block_3": "Block_0"}
    for old, new in newer.items():
        arrays = {key.replace(old, new): value for key, value in arrays.items()}
    np.savez(path, **arrays)
    assert_same_model(model, path)


def test_group_norms_of_published_files_have_four_axes(saved):
    model, arrays, path = saved("hybrid")
    count = 0
    for key, value in arrays.items():
        if re.search(r"gn(\d+|_root|_proj)/", key):
            arrays[key] = value.reshape(1, 1, 1, -1)
            count += 1
    assert count > 10
    np.savez(path, **arrays)
    assert_same_model(model, path)


def test_scanned_blocks_of_big_vision_are_one_array_each(saved):
    model, arrays, path = saved("attention_pooling")
    marker = "Transformer/encoderblock_0/"
    for key in [key for key in arrays if key.startswith(marker)]:
        parts = [arrays.pop(key.replace("_0/", f"_{index}/", 1)) for index in range(2)]
        arrays[key.replace("encoderblock_0", "encoderblock")] = np.stack(parts)
    np.savez(path, **{f"params/{key}": value for key, value in arrays.items()})
    assert_same_model(model, path)


@pytest.mark.parametrize("place", ["pos_embedding", "Transformer/pos_embedding"])
@pytest.mark.parametrize("name", ["gap", "attention_pooling"])
def test_big_vision_keeps_the_positions_at_other_places(name, place, saved):
    model, arrays, path = saved(name)
    arrays[place] = arrays.pop("Transformer/posembed_input/pos_embedding")
    np.savez(path, **arrays, **{"extra/accum_train_time": np.float32(3)})
    assert_same_model(model, path)


def test_big_visions_class_token_has_no_position(saved):
    model, arrays, path = saved("big_vision_token")
    assert arrays["pos_embedding"].shape == (1, 12, 24)
    np.savez(path, **arrays)
    assert open_weights(path).config.position_tokens == "patches"
    # With a name the model has a position for it: the numbers stay the same.
    named = create_model(VIT, weights=path)
    images = images_like((2, 8, 12, 3))
    np.testing.assert_allclose(named(images), model(images), atol=1e-6)


def test_a_grid_that_is_no_square_must_be_stored_or_named(saved):
    _, arrays, path = saved("token")
    del arrays["keras_vit/grid_size"]
    np.savez(path, **arrays)
    with pytest.raises(
        UserError, match=r"its 12 positions are no square grid; give the image_size"
    ):
        from_weights(path)
    with pytest.raises(UserError, match="no square grid"):
        from_weights(path, image_size=64)
    assert keras_vit.config_of(from_weights(path, image_size=(8, 12))).grid_size == (2, 6)


def test_fixed_positions_are_not_in_the_file(saved):
    _, arrays, path = saved("sincos")
    arrays.pop("keras_vit/grid_size")
    np.savez(path, **arrays)
    assert keras_vit.config_of(from_weights(saved("sincos")[2].with_name("ours.npz"))).grid_size
    with pytest.raises(UserError, match="has no positions; give image_size"):
        from_weights(path)
    assert from_weights(path, image_size=8).input_shape == (None, 8, 8, 3)


def test_what_the_original_code_cannot_hold_is_refused(tmp_path):
    for name in set(CONFIGS) - set(LAYOUTS["google"]) - {"erf"}:
        with pytest.raises(UserError, match="format=google has no place for"):
            keras_vit.save_weights(create_model(CONFIGS[name]), tmp_path / "x.npz", "google")
    assert not list(tmp_path.iterdir())


def test_images_are_in_minus_one_to_one(saved):
    _, arrays, path = saved("token")
    np.savez(path, **arrays)
    assert open_weights(path).preprocessing == {
        "mean": [0.5] * 3, "std": [0.5] * 3, "resize": "squash", "crop_fraction": 1.0,
        "interpolation": "bilinear",
    }  # fmt: skip
