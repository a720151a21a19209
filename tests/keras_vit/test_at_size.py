"""at_size: the numbers of a model made for that size, and gradients into the shared weights."""

import keras
import numpy as np
import pytest

import keras_vit
from tests.check_layer import images_like, randomise

SETTINGS = [
    dict(),
    dict(num_register_tokens=2, position_tokens="class"),
    dict(position_embedding="sincos2d", pooling="mean", class_token=False),
    dict(position_embedding="none", pooling="attention"),
    dict(distillation_token=True),
    dict(stem_layers=(1, 1), patch_size=1),
]


def model_of(**settings):
    config = keras_vit.find_config(
        "vit_mu4", image_size=(32, 24), num_classes=5, **{"patch_size": 4, **settings}
    )
    return randomise(keras_vit.create_model(config))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("size", [(32, 24), (48, 16), (16, 16)])
def test_it_is_the_model_that_load_weights_would_make(settings, size, tmp_path):
    model = model_of(**settings)
    keras_vit.save_weights(model, tmp_path / "model.keras", format="keras")
    # The method of the file's own layout aside, as here.
    expected = keras_vit.create_model(
        keras_vit.find_config(
            "vit_mu4", image_size=size, num_classes=5, **{"patch_size": 4, **settings}
        )
    )
    keras_vit.load_weights(expected, tmp_path / "model.keras", position_resize="bicubic_antialias")
    view = keras_vit.at_size(model, size)
    images = images_like((2, *size, 3))
    np.testing.assert_allclose(view.predict(images, verbose=0), expected(images), atol=1e-5)
    assert {id(w) for w in view.weights} == {id(w) for w in model.weights}


def test_training_the_view_trains_the_model():
    model = model_of()
    before = [np.asarray(w) for w in model.trainable_weights]
    view = keras_vit.at_size(model, 16)
    view.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True))
    view.fit(images_like((4, 16, 16, 3)), np.eye(5)[:4], verbose=0)
    for old, weight in zip(before, model.trainable_weights, strict=True):
        # A key's bias moves no score.
        assert np.any(old != np.asarray(weight)), weight.path
    images = images_like((2, 32, 24, 3))
    assert model(images).shape == (2, 5)


def test_the_model_is_still_saved_and_opened(tmp_path):
    model = model_of()
    keras_vit.at_size(model, 16)
    model.save(tmp_path / "model.keras")
    again, images = keras.saving.load_model(tmp_path / "model.keras"), images_like((2, 32, 24, 3))
    np.testing.assert_array_equal(again(images), model(images))


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [("vit_mu4", 18, "patch_size=4 must divide"), ("mixer_s16", 64, "Mixer cannot change")],
)
def test_a_size_that_does_not_fit(name, size, message):
    with pytest.raises(keras_vit.UserError, match=message):
        keras_vit.at_size(keras_vit.create_model(name, image_size=32, num_classes=2), size)
