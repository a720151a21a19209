"""Backbones of runs and of weight files."""

import numpy as np
import pytest

import keras_vit
from keras_vit import UserError, create_model
from tests.check_layer import images_like, randomise
from training.inference import before_head, open_backbone
from training.run import Run


def test_the_backbone_of_a_run_is_what_enters_its_head(tiny_run):
    backbone = open_backbone(str(tiny_run))
    model = Run.open(tiny_run).load_model()
    images = images_like((3, *model.input_shape[1:]))
    features = backbone.model(images)
    assert features.shape == (3, 32)
    np.testing.assert_allclose(model.get_layer("head")(features), model(images), atol=1e-6)
    with pytest.raises(UserError, match="image_size cannot be changed for a run"):
        open_backbone(str(tiny_run), (16, 16))


def test_that_of_a_file_takes_its_preprocessing_and_at_most_224_pixels(tmp_path):
    model = randomise(create_model("vit_mu14", image_size=518, num_classes=3))
    keras_vit.save_weights(model, tmp_path / "a.npz", "google")
    backbone = open_backbone(str(tmp_path / "a.npz"))
    assert backbone.run is None
    assert backbone.model.input_shape == (None, 224, 224, 3)
    assert backbone.preprocess.image_size == (224, 224)
    assert backbone.preprocess.resize == "squash"
    assert open_backbone(str(tmp_path / "a.npz"), (28, 42)).preprocess.image_size == (28, 42)


def test_pre_logits_belong_to_the_backbone():
    model = create_model("vit_mu4", image_size=8, representation_size=7, num_classes=3)
    assert before_head(model).output_shape == (None, 7)


def test_what_is_neither_is_named(tmp_path):
    with pytest.raises(UserError, match="weights '.*nothing' do not exist"):
        open_backbone(str(tmp_path / "nothing"))


def test_tokens_are_no_features(tmp_path):
    model = create_model("vit_mu4", image_size=8, pooling="none", num_classes=0)
    model.save(tmp_path / "a.keras")
    with pytest.raises(UserError, match="pools no tokens"):
        open_backbone(str(tmp_path / "a.keras"))
