"""The timm layout: outputs of timm itself, plain files without metadata, other writers."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit import UserError, create_model, from_weights, intermediates, open_weights
from tests.check_layer import images_like, randomise
from tests.keras_vit.models import CONFIGS, LAYOUTS

CASES = ["vit_token", "vit_avg_fcnorm", "vit_reg4_layerscale_qknorm", "vit_rect_48x64",
         "vit_1channel", "vit_no_classtoken_gap", "vit_prenorm_noqkvbias",
         "deit_distilled"]  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_timms(name, shared):
    path = shared / "reference/timm" / f"{name}.safetensors"
    expected = np.load(path.with_suffix(".io.npz"))
    images = expected["images_nchw"].transpose(0, 2, 3, 1)
    model = from_weights(path)
    assert model.count_params() == sum(array.size for array in load_file(path).values())
    values = intermediates(model)(images)
    np.testing.assert_allclose(model(images), expected["logits"], atol=1e-5)
    # forward_features: with fc_norm no LayerNorm has acted on the tokens yet
    tokens = values["block_02"] if name == "vit_avg_fcnorm" else values["encoder_norm"]
    np.testing.assert_allclose(tokens, expected["tokens"], atol=1e-5)


UNSEEN = {"unpooled", "class_token_gap"}  # no tensor shows how these pool


@pytest.mark.parametrize("name", [name for name in LAYOUTS["timm"] if name not in UNSEEN])
@pytest.mark.filterwarnings("ignore::keras_vit.weights.WeightsWarning")
def test_a_plain_state_dict_has_no_metadata(name, tmp_path):
    """What `safetensors.torch.save_file(model.state_dict())` leaves: all but three things show."""
    model = randomise(create_model(CONFIGS[name]))
    path = tmp_path / "plain.safetensors"
    keras_vit.save_weights(model, path, "timm")
    save_file(load_file(path), path)
    config = CONFIGS[name]
    loaded = from_weights(
        path,
        num_heads=config.num_heads,
        gelu=config.gelu,
        image_size=config.image_size,
        norm_epsilon=config.norm_epsilon,
    )
    images = images_like((2, *model.input_shape[1:]))
    np.testing.assert_array_equal(model(images), loaded(images))


WRITERS = {
    "wrapped": lambda name: f"module.{name}",
    "compiled": lambda name: f"_orig_mod.{name}",
    "deit3": lambda name: name.replace(".ls1.gamma", ".gamma_1").replace(".ls2.gamma", ".gamma_2"),
    "chunked": lambda name: name.replace("blocks.", "blocks.0."),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_other_writers_of_the_same_tensors(writer, tmp_path):
    model = randomise(create_model(CONFIGS["deit3"]))
    path = tmp_path / "x.safetensors"
    keras_vit.save_weights(model, path, "timm")
    rename = WRITERS[writer]
    save_file({rename(name): array for name, array in load_file(path).items()}, path)
    loaded = from_weights(path, num_heads=3, image_size=(8, 12))
    for ours, theirs in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=ours.path)


@pytest.mark.parametrize("registers, method", [(2, "bicubic_antialias"), (0, "bicubic")])
def test_dinov2s_own_files(registers, method, tmp_path):
    """facebookresearch/dinov2: registers without positions, a mask token, no head."""
    settings = {"num_register_tokens": registers, "num_classes": 0, "pooling": "token"}
    model = randomise(create_model(CONFIGS["dinov2_registers"], **settings))
    rules = keras_vit.weights.timm.rules(keras_vit.config_of(model))
    variables = {variable.path: np.asarray(variable) for variable in model.weights}
    tensors = {"mask_token": np.zeros((1, 24), "float32")}
    for rule in rules:
        tensors |= zip(rule.theirs, rule.to_theirs(variables[rule.ours]), strict=True)
    if registers:
        tensors["register_tokens"] = tensors.pop("reg_token")
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    path = tmp_path / "dinov2.safetensors"
    save_file(tensors, path)
    weights = open_weights(path, image_size=(8, 12), num_heads=3)
    assert weights.config.position_tokens == ("class" if registers else "all")
    assert weights.position_resize == method
    loaded = from_weights(weights)
    images = images_like((2, 8, 12, 3))
    np.testing.assert_array_equal(model(images), loaded(images))


def test_heads_that_nothing_says_are_asked_for(tmp_path, shared):
    path = shared / "reference/timm/vit_token.safetensors"
    assert open_weights(path).config.num_heads == 3  # in the metadata
    save_file(load_file(path), tmp_path / "plain.safetensors")
    with pytest.raises(UserError, match="no tensor shows how many attention heads it has"):
        from_weights(tmp_path / "plain.safetensors")


@pytest.mark.parametrize(
    "metadata, message",
    [
        ({"global_pool": "max"}, "global_pool='max' of timm has no counterpart; token, avg"),
        ({"pool_include_prefix": "True"}, "pool_include_prefix=True of timm has no counterpart"),
        ({"architecture": "vit_base_patch16_rpn_224"}, "has blocks of another kind"),
        ({"act_layer": "quick_gelu"}, "act_layer='quick_gelu' of timm has no counterpart"),
        ({"architecture": "vit_base_patch16_clip_quickgelu_224"}, "act_layer='quick_gelu'"),
    ],
)
def test_what_would_compute_something_else_is_refused(metadata, message, tmp_path, shared):
    path = tmp_path / "x.safetensors"
    save_file(load_file(shared / "reference/timm/vit_token.safetensors"), path, metadata)
    with pytest.raises(UserError, match=message):
        from_weights(path, num_heads=3)


def test_what_only_the_architectures_name_says(tmp_path, shared):
    path = tmp_path / "x.safetensors"
    tensors = load_file(shared / "reference/timm/vit_token.safetensors")
    for name, gelu, epsilon in (
        ("vit_base_patch16_clip_224", "erf", 1e-5),
        ("vit_so400m_patch14_siglip_224", "tanh", 1e-6),
        ("vit_base_patch16_siglip_224", "erf", 1e-6),
    ):
        save_file(tensors, path, {"architecture": name})
        config = open_weights(path, num_heads=3).config
        assert (config.gelu, config.norm_epsilon) == (gelu, epsilon)
