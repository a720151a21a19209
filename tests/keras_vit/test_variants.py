"""The named models: exact parameter counts, how a name is read, what a wrong one is told."""

import keras
import pytest
from keras.src.backend.common import global_state

from keras_vit import (
    MixerConfig,
    UserError,
    ViTConfig,
    count_params,
    create_model,
    find_config,
    list_models,
)

# At 224x224x3 and 1000 classes. The original's tests (vit_jax `models_test.py`), and for what
# it does not have: timm (so400m without a head of its own kind), Tolstikhin et al. 2021.
PARAMETERS = {
    "vit_ti16": 5_717_416,
    "vit_s16": 22_050_664,
    "vit_b16": 86_567_656,
    "vit_l16": 304_326_632,
    "vit_h14": 632_045_800,
    "vit_b8": 86_576_872,
    "vit_s32": 22_878_952,
    "vit_b32": 88_224_232,
    "vit_l32": 306_535_400,
    "vit_s16_gap": 22_049_896,
    "vit_b16_gap": 86_566_120,
    "vit_s32_gap": 22_878_184,
    "vit_b32_gap": 88_222_696,
    "r_vit_ti16": 6_337_704,
    "r26_vit_s32": 36_431_912,
    "r26_vit_b32": 101_383_976,
    "r50_vit_b16": 98_659_112,
    "r50_vit_l32": 328_994_856,
    "mixer_b16": 59_880_472,
    "mixer_b32": 60_293_428,
    "mixer_l16": 208_196_168,
}
# Counted here, without an outside number: names that must keep building.
OTHERS = {"vit_so400m14", "vit_g14", "vit_gigantic14", "mixer_s16", "mixer_s32"}


def build_without_values(name):
    """The real model, every variable with its shape and none with its numbers."""
    with keras.StatelessScope():
        model = create_model(name)
        # Left there, all would be drawn at the end of the scope: 7 GB for the largest.
        global_state.set_global_attribute("uninitialized_variables", [])
    return model


def test_no_published_model_is_untested():
    assert set(list_models()) == PARAMETERS.keys() | OTHERS
    assert len(list_models()) == len(set(list_models()))


@pytest.mark.parametrize("name", list_models())
def test_parameters_are_exactly_the_originals(name):
    count = build_without_values(name).count_params()
    assert count == count_params(find_config(name))
    if name in PARAMETERS:
        assert count == PARAMETERS[name]


@pytest.mark.parametrize("name", ["vit_ti16", "r_vit_ti16"])
def test_small_ones_really_run(name):
    model = create_model(name)
    assert model.count_params() == PARAMETERS[name]
    assert model(keras.ops.ones((1, 224, 224, 3))).shape == (1, 1000)


def test_the_stem_of_r_ti16_has_50_tokens():
    assert build_without_values("r_vit_ti16").get_layer("patch_encoder").output.shape[1] == 50


DROPOUT = {"vit_l16": 0.1, "vit_h14": 0.1, "r50_vit_b16": 0.1, "r50_vit_l32": 0.1}


@pytest.mark.parametrize("name", [name for name in list_models() if "mixer" not in name])
def test_dropout_is_the_originals(name):
    config = find_config(name)
    assert (config.dropout, config.attention_dropout) == (DROPOUT.get(name, 0.0), 0.0)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("ViT-B/16", "vit_b16"),
        ("ViT-B_16", "vit_b16"),
        ("vit-b-16", "vit_b16"),
        ("VIT B 16", "vit_b16"),
        ("ViT-B16", "vit_b16"),
        ("ViT-Ti/16", "vit_ti16"),
        ("ViT-B_16-gap-norep", "vit_b16_gap"),
        ("ViT-S_32-gap-norep", "vit_s32_gap"),
        ("ViT-L/32", "vit_l32"),
        ("R+ViT-Ti_16", "r_vit_ti16"),
        ("R26+ViT-S_32", "r26_vit_s32"),
        ("R50+ViT-B/16", "r50_vit_b16"),
        ("R50_ViT-L_32", "r50_vit_l32"),
        ("Mixer-B/16", "mixer_b16"),
        ("Mixer-L_16", "mixer_l16"),
        ("ViT-So400m/14", "vit_so400m14"),
        ("ViT-g/14", "vit_g14"),
        ("ViT-G/14", "vit_gigantic14"),
        ("ViT G 14", "vit_gigantic14"),
        ("vit_G14", "vit_gigantic14"),
    ],
)
def test_names_as_papers_and_the_original_write_them(written, name):
    assert find_config(written) == find_config(name)


def test_any_patch_size_may_be_written():
    assert find_config("vit_ti4").patch_size == (4, 4)
    assert find_config("vit_xs2", image_size=8).grid_size == (4, 4)
    assert find_config("ViT-H/16", num_classes=0).num_classes == 0
    assert find_config("mixer_s8").patch_size == (8, 8)
    assert isinstance(find_config("mixer_s8"), MixerConfig)
    assert find_config("vit_l16_gap").dropout == 0.1
    assert find_config("ViT-Ti/8-distilled") == find_config("vit_ti8", distillation_token=True)
    assert find_config("vit_xxs2_distilled", image_size=8).num_prefix_tokens == 2
    assert find_config("vit_l32_gap").dropout == 0.0


@pytest.mark.parametrize(
    ("name", "count"), [("vit_ti16", 5_910_800), ("vit_s16", 22_436_432), ("vit_b16", 87_338_192)]
)
def test_distilled_ones_have_the_parameters_of_deits(name, count):
    assert count_params(find_config(f"{name}_distilled")) == count


def test_overrides():
    config = find_config("vit_b16", image_size=(384, 192), num_classes=5, drop_path=0.1)
    assert (config.image_size, config.num_classes, config.drop_path) == ((384, 192), 5, 0.1)
    assert isinstance(config, ViTConfig)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vit_b61", "patch_size=61 must divide"),
        ("vit_b0", "patch_size=0 must be a positive int"),
        ("vitb16", "model='vitb16' is unknown; did you mean 'vit_b16'?"),
        ("ViT-XL/16", "model='ViT-XL/16' is unknown; did you mean 'vit_l16'?"),
        ("B/16", "model='B/16' is unknown; did you mean 'vit_b16'?"),
        ("r50_vit_b8", "model='r50_vit_b8' is unknown; did you mean 'r50_vit_b16'?"),
        ("mixer_b16_gap", "model='mixer_b16_gap' is unknown; did you mean 'mixer_b16'?"),
        ("resnet", "model='resnet' is unknown; known are vit_ti16, vit_s16"),
        ("", "model='' is unknown; known are vit_ti16"),
        (None, "model=None must be a name, like 'vit_b16', or a configuration"),
        (16, "model=16 must be a name, like 'vit_b16', or a configuration"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(name, message):
    with pytest.raises(UserError) as error:
        create_model(name)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        (
            "vit_b16",
            "dropuot",
            "dropuot is no setting of ViTConfig; did you mean 'dropout'?",
        ),
        (
            "mixer_b16",
            "num_head",
            "num_head is no setting of MixerConfig",
        ),
        ("mixer_b16", "xyz", "xyz is no setting of MixerConfig; known are hidden_size, num_layers"),
    ],
)
def test_an_unknown_setting_suggests_the_nearest(name, setting, message):
    with pytest.raises(UserError) as error:
        create_model(name, **{setting: 1})
    assert str(error.value).startswith(message)


def test_the_list_is_a_copy():
    list_models().clear()
    assert list_models()
