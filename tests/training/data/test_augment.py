import io

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from keras_vit import UserError
from training.data.augment import AUGMENTATIONS, Augmentation, augment_image, erase, jitter
from training.data.augment import random_window as window
from training.data.preprocess import Preprocess, preprocess_image

SQUARE = Preprocess(image_size=(16, 16))


def seed(number: int):
    return tf.constant([5, number], tf.int64)


def pixels(size=(40, 30), channels=3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (*size, channels), np.uint8)


def encoded(format: str) -> tf.Tensor:
    file = io.BytesIO()
    Image.fromarray(pixels()).save(file, format)
    return tf.constant(file.getvalue())


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 10**6), st.floats(0.01, 1.0))
def test_a_window_lies_inside_and_is_not_empty(height, width, number, least):
    y, x, h, w = window(tf.constant([height, width]), (least, 1.0), seed(number)).numpy()
    assert h >= 1 and w >= 1 and y >= 0 and x >= 0
    assert y + h <= height and x + w <= width


def test_windows_have_the_area_and_the_aspect_that_are_asked_for():
    draw = tf.function(lambda number: window(
        tf.constant([1000, 1000]), (0.2, 0.5), tf.stack([tf.constant(5, tf.int64), number])
    ))  # fmt: skip
    drawn = np.array([draw(tf.constant(i, tf.int64)).numpy() for i in range(1500)])
    area, aspect = drawn[:, 2] * drawn[:, 3] / 1e6, drawn[:, 3] / drawn[:, 2]
    assert 0.199 < area.min() < 0.21 and 0.49 < area.max() < 0.501
    assert abs(area.mean() - 0.35) < 0.01  # uniform
    assert 0.749 < aspect.min() < 0.77 and 1.3 < aspect.max() < 1.335
    assert abs(np.log(aspect).mean()) < 0.02  # log-uniform: as often wide as high
    place = drawn[:, 0] / (1000 - drawn[:, 2])
    assert abs(place.mean() - 0.5) < 0.03


def test_a_line_falls_back_to_its_centre():
    y, x, h, w = window(tf.constant([3000, 2]), (0.9, 1.0), seed(0)).numpy()
    assert (x, w) == (0, 2)
    assert h <= 3 and abs(y - 1499) <= 1


def test_none_is_the_crop_of_evaluation():
    expected = preprocess_image(pixels(), SQUARE)
    for number in range(3):
        result = augment_image(pixels(), AUGMENTATIONS["none"], SQUARE, seed(number))
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize("size", [(1, 1), (8, 8), (40, 30)])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_preset_takes_every_image_and_repeats_with_its_seed(name, size, channels):
    preprocess = Preprocess(image_size=(8, 8), channels=channels)
    graph = tf.function(augment_image)
    image = tf.constant(pixels(size, channels))
    first, again = (
        graph(image, AUGMENTATIONS[name], preprocess, seed(1)).numpy() for _ in range(2)
    )
    assert first.shape == (8, 8, channels) and first.dtype == np.float32
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("name", ["light", "medium", "strong"])
def test_another_seed_is_another_image(name):
    graph = tf.function(augment_image)
    images = [
        graph(tf.constant(pixels()), AUGMENTATIONS[name], SQUARE, seed(i)).numpy().tobytes()
        for i in range(5)
    ]
    assert len(set(images)) == 5


def test_a_crop_of_encoded_bytes_is_the_crop_of_the_pixels():
    crop = Augmentation(crop_scale=(0.3, 1.0), flip=True)
    for number in range(5):
        from_bytes = augment_image(encoded("PNG"), crop, SQUARE, seed(number))
        from_pixels = augment_image(pixels(), crop, SQUARE, seed(number))
        np.testing.assert_array_equal(from_bytes, from_pixels)


def test_half_of_the_images_are_mirrored():
    image = tf.constant(pixels((16, 16)))
    plain = preprocess_image(image, SQUARE).numpy()
    graph = tf.function(augment_image)
    mirrored = 0
    for number in range(300):
        result = graph(image, Augmentation(flip=True), SQUARE, seed(number)).numpy()
        is_mirrored = np.allclose(result, plain[:, ::-1], atol=1e-6)
        assert is_mirrored or np.allclose(result, plain, atol=1e-6)
        mirrored += is_mirrored
    assert 115 < mirrored < 185


def test_jitter_stays_in_its_range():
    image = tf.fill((4, 4, 3), 100.0)
    brightness = np.array([jitter(image, 0.3, seed(i)).numpy().mean() for i in range(300)])
    assert brightness.min() >= 69 and brightness.max() <= 131
    assert brightness.min() < 75 and brightness.max() > 125
    np.testing.assert_array_equal(jitter(image, 1e-9, seed(0)), image)


def test_erasing_covers_its_share_as_often_as_asked():
    image = tf.fill((64, 64, 3), 7.0)
    graph = tf.function(lambda number: erase(
        image, 0.25, tf.stack([tf.constant(5, tf.int64), number])
    ))  # fmt: skip
    shares = np.array([
        (graph(tf.constant(i, tf.int64)).numpy() != 7.0).any(-1).mean() for i in range(800)
    ])  # fmt: skip
    hit = shares > 0
    assert 0.2 < hit.mean() < 0.3
    assert shares[hit].min() > 0.01 and shares[hit].max() < 0.36
    assert 0.13 < shares[hit].mean() < 0.22


def test_what_is_erased_is_one_rectangle_of_noise():
    result = erase(tf.fill((32, 32, 3), 7.0), 1.0, seed(2)).numpy()
    erased = (result != 7.0).any(-1)
    rows, columns = erased.any(axis=1), erased.any(axis=0)
    np.testing.assert_array_equal(erased, rows[:, None] & columns[None, :])
    assert abs(result[erased].mean()) < 0.3 and 0.7 < result[erased].std() < 1.3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"crop_scale": (0.0, 1.0)}, "crop_scale=(0.0, 1.0) must be 0 < least <= most <= 1"),
        ({"crop_scale": (0.6, 0.5)}, "crop_scale=(0.6, 0.5) must be 0 < least <= most <= 1"),
        ({"randaugment_magnitude": 31}, "randaugment_magnitude=31 must be between 0 and 30"),
        ({"color_jitter": 1.0}, "color_jitter=1.0 must be at least 0 and less than 1"),
        ({"erasing": 1.5}, "erasing=1.5 must be a probability, 0 to 1"),
        ({"mixup": -0.1}, "mixup=-0.1 must be at least 0"),
        ({"cutmix": -1.0}, "cutmix=-1.0 must be at least 0"),
    ],
)
def test_a_setting_out_of_range_is_named(settings, message):
    with pytest.raises(UserError) as error:
        Augmentation(**settings)
    assert str(error.value) == message
