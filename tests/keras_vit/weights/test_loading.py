"""load_weights: the head, other sizes, what is said, and what is refused whole."""

import warnings

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit import UserError, create_model, from_weights, load_weights, open_weights
from keras_vit.weights import WeightsWarning
from tests.check_layer import images_like, randomise
from tests.keras_vit.models import CONFIGS, MIXER, TINY, VIT


@pytest.fixture
def file(tmp_path):
    """A function: write a random model of a configuration, give (model, path)."""

    def write(config, format="google"):
        model = randomise(create_model(config))
        path = tmp_path / ("a.npz" if format == "google" else "a.safetensors")
        keras_vit.save_weights(model, path, format)
        return model, path

    return write


def test_a_head_of_other_classes_is_replaced_and_said(file):
    model, path = file(VIT)
    other = create_model(VIT, num_classes=3)
    report = load_weights(other, path)
    assert set(report.skipped) == {"head/kernel", "head/bias"}
    assert set(report.unexpected) == {"head/kernel", "head/bias"}
    assert not np.any(other.get_layer("head").kernel)
    assert len(report.loaded) == len(model.weights) - 2
    text = str(report)
    assert (
        "keeps its own values: head/kernel, head/bias: the file has 5 classes, the model 3" in text
    )
    assert "left out of the file: head/kernel" in text


def test_a_head_that_fits_is_kept(file):
    model, path = file(VIT)
    other = create_model(VIT)
    report = load_weights(other, path)
    assert not report.skipped and not report.unexpected and not report.resampled
    images = images_like((2, 8, 12, 3))
    np.testing.assert_array_equal(model(images), other(images))


def test_a_model_without_a_head_takes_the_rest(file):
    _, path = file(VIT)
    report = load_weights(create_model(VIT, num_classes=0), path)
    assert set(report.unexpected.values()) == {"the model has no head"}


@pytest.mark.parametrize("num_classes", [0, 3])
def test_pre_logits_belong_to_the_backbone(num_classes, file):
    model, path = file(keras_vit.ViTConfig(**TINY, representation_size=7))
    other = from_weights(path, num_classes=num_classes)
    images = images_like((2, 8, 12, 3))
    expected = keras_vit.intermediates(model)(images)["pre_logits"]
    features = keras_vit.intermediates(other)(images)["pre_logits"]
    np.testing.assert_array_equal(features, expected)


def test_pre_logits_of_the_same_width_do_not_let_the_wrong_head_in(file):
    """ViT-B/16 of ImageNet-21k has pre_logits as wide as its tokens: the head fits by shape."""
    _, path = file(keras_vit.ViTConfig(**TINY, representation_size=24))
    other = create_model(VIT)
    report = load_weights(other, path)
    assert "the file's head is for representation_size=24, the model has None" in str(report)
    assert "pre_logits/kernel" in report.unexpected
    assert not np.any(other.get_layer("head").kernel)


def test_a_file_that_does_not_fit_leaves_the_model_alone(file):
    _, path = file(VIT)
    model = randomise(create_model(VIT, hidden_size=48, num_layers=3), seed=1)
    before = [np.array(variable) for variable in model.weights]
    with pytest.raises(UserError) as error:
        load_weights(model, path)
    line = str(error.value)
    assert "\n" not in line
    assert "does not fit the model (the file's model has hidden_size 24, not 48, num_layers" in line
    assert "missing: block_02/attention_norm/gamma" in line and " more" in line
    assert "misshapen: cls gives (1, 1, 24), the model has (1, 1, 48)" in line
    for old, variable in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(old, variable)


def test_a_tensor_without_a_place_is_refused(file):
    model, path = file(VIT, "timm")
    tensors = load_file(path)
    save_file(tensors | {"blocks.0.attn.rope.freqs": np.ones(3, "f")}, path)
    with pytest.raises(UserError, match="unexpected: blocks.0.attn.rope.freqs"):
        from_weights(path, num_heads=3, image_size=(8, 12))
    del tensors["blocks.1.norm2.weight"]
    save_file(tensors, path)
    with pytest.raises(UserError, match="missing: blocks.1.norm2.weight"):
        from_weights(path, num_heads=3, image_size=(8, 12))


def test_layer_scale_cannot_be_dropped(file):
    _, path = file(CONFIGS["deit3"], "timm")
    with pytest.raises(UserError, match="unexpected: blocks.0.ls1.gamma.*its own architecture"):
        create_model(VIT, position_tokens="patches", weights=path)


def test_another_resolution_keeps_prefix_tokens_and_says_so(file):
    model, path = file(CONFIGS["registers"], "timm")
    other = create_model(CONFIGS["registers"], image_size=(16, 10))
    report = load_weights(other, path)
    how = report.resampled["patch_encoder/position_embedding"]
    assert how == "grid 2x6 to 4x5, bicubic_antialias"
    ours, theirs = (m.get_layer("patch_encoder").positions for m in (other, model))
    assert ours.shape == (1, 4 + 20, 24)
    np.testing.assert_array_equal(ours[:, :4], theirs[:, :4])


def test_the_same_count_of_another_grid_is_resampled(file):
    """14x14 positions are never taken for 7x28."""
    model, path = file(VIT)
    other = create_model(VIT, image_size=(16, 6))  # grid 4x3, as many as 2x6
    report = load_weights(other, path)
    assert "grid 2x6 to 4x3" in report.resampled["patch_encoder/position_embedding"]
    ours, theirs = (m.get_layer("patch_encoder").positions for m in (other, model))
    assert ours.shape == theirs.shape
    assert np.abs(np.array(ours) - np.array(theirs)).max() > 0.01


@pytest.mark.parametrize("method", ["bilinear", "bicubic", "bicubic_corners"])
def test_the_method_can_be_chosen(method, file):
    model, path = file(VIT)
    other, default = create_model(VIT, image_size=16), create_model(VIT, image_size=16)
    report = load_weights(other, path, position_resize=method)
    assert report.resampled["patch_encoder/position_embedding"].endswith(method)
    load_weights(default, path)
    ours, theirs = (np.array(m.get_layer("patch_encoder").positions) for m in (other, default))
    assert np.abs(ours - theirs).max() > 1e-4


def test_other_patches_and_channels(file):
    model, path = file(VIT)
    other = create_model(VIT, patch_size=(8, 4), image_size=(16, 24), in_channels=1)
    report = load_weights(other, path)
    how = report.resampled["patch_encoder/projection/kernel"]
    assert how == "3 to 1 channels; patch 4x2 to 8x4, pseudo-inverse of bilinear"
    image = images_like((1, 8, 12, 1))
    larger = keras.ops.image.resize(image, (16, 24), interpolation="bilinear")
    before = keras_vit.intermediates(model)(np.repeat(image, 3, axis=3))["patch_embedding"]
    after = keras_vit.intermediates(other)(larger)["patch_embedding"]
    # Only inside a patch is the enlarged image what the method assumes: correlation, not equality.
    assert np.corrcoef(np.ravel(before), np.ravel(after))[0, 1] > 0.9


def test_positions_of_prefix_tokens_are_converted_without_loss(file):
    model, path = file(CONFIGS["registers"], "timm")  # every token has a position
    images = images_like((2, 8, 12, 3))
    for owners in ("class", "patches"):
        other = create_model(CONFIGS["registers"], position_tokens=owners)
        report = load_weights(other, path)
        assert "patch_encoder/register_tokens" in report.resampled
        np.testing.assert_allclose(model(images), other(images), atol=2e-6)
    model, path = file(CONFIGS["deit3"], "timm")  # only patches have one
    other = create_model(CONFIGS["deit3"], position_tokens="all")
    report = load_weights(other, path)
    assert "zeros for 1 tokens" in report.resampled["patch_encoder/position_embedding"]
    np.testing.assert_allclose(model(images), other(images), atol=2e-6)


def test_a_mixer_cannot_change_its_size(file):
    _, path = file(MIXER)
    with pytest.raises(UserError, match="misshapen: MixerBlock_0/token_mixing"):
        from_weights(path, image_size=(16, 12))


def test_values_that_are_not_finite_are_said(file):
    model, path = file(VIT)
    arrays = dict(np.load(path))
    arrays["Transformer/encoder_norm/scale"][3] = np.nan
    np.savez(path, **arrays)
    with pytest.warns(WeightsWarning, match="not finite in the file .*: encoder_norm/gamma"):
        report = load_weights(model, path)
    assert "note: not finite" in str(report)


def test_a_head_of_zeros_is_said(file):
    model, path = file(VIT)
    arrays = dict(np.load(path))
    arrays["head/kernel"][:] = 0
    np.savez(path, **arrays)
    with pytest.warns(WeightsWarning, match="the head is all zeros"):
        load_weights(model, path)


def test_what_no_shape_shows_is_said(file):
    _, path = file(VIT)
    other = create_model(VIT, gelu="erf", norm_epsilon=1e-3, num_heads=4, pooling="mean")
    with pytest.warns(WeightsWarning) as caught:
        report = load_weights(other, path)
    said = " ".join(str(warning.message) for warning in caught)
    for name in ("gelu is tanh", "norm_epsilon is 1e-06", "num_heads is 3", "pooling is token"):
        assert name in said
    assert len(report.notes) == 4


def test_a_good_file_warns_of_nothing(file):
    _, path = file(VIT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_weights(create_model(VIT), open_weights(path))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_models_keep_float32_weights(policy, file):
    model, path = file(VIT)
    other = create_model(VIT, dtype=policy, weights=path)
    for ours, theirs in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
