import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from keras_vit import UserError
from training.data.decode import decode_image
from training.data.preprocess import Preprocess, fit_image, normalise, preprocess_image

PILLOW = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}


@pytest.fixture(scope="module")
def photo(shared):
    return decode_image((shared / "data/nasty/exif/Landscape_5.jpg").read_bytes()).numpy()


def by_pillow(pixels: np.ndarray, size, interpolation: str) -> np.ndarray:
    """Pillow's resize in float32, so that only the last rounding is left to differ."""
    channels = [
        Image.fromarray(channel.astype(np.float32)).resize(size[::-1], PILLOW[interpolation])
        for channel in np.moveaxis(pixels, -1, 0)
    ]
    return np.round(np.clip(np.stack(channels, axis=-1), 0, 255))


def cover_and_crop(pixels: np.ndarray, size, fraction: float, interpolation: str) -> np.ndarray:
    """Resize the short way round and cut the centre: what torchvision and timm do."""
    cover = [round(side / fraction) for side in size]
    scale = max(cover[0] / pixels.shape[0], cover[1] / pixels.shape[1])
    scaled = tuple(round(side * scale) for side in pixels.shape[:2])
    top, left = ((long - short) // 2 for long, short in zip(scaled, size, strict=True))
    image = by_pillow(pixels, scaled, interpolation)
    return image[top : top + size[0], left : left + size[1]]


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("size", "fraction"), [((224, 224), 0.875), ((96, 160), 1.0)])
def test_crop_is_pillows(photo, size, fraction, interpolation):
    preprocess = Preprocess(image_size=size, crop_fraction=fraction, interpolation=interpolation)
    ours = fit_image(photo, preprocess).numpy()
    theirs = cover_and_crop(photo, size, fraction, interpolation)
    assert abs(ours - theirs).max() <= 1
    assert abs(ours - theirs).mean() < 0.01


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(64, 64), (48, 96), (1500, 1900)])
def test_squash_is_pillows(photo, size, interpolation):
    preprocess = Preprocess(image_size=size, resize="squash", interpolation=interpolation)
    ours = fit_image(photo, preprocess).numpy()
    theirs = by_pillow(photo, size, interpolation)
    assert abs(ours - theirs).max() <= 1
    assert abs(ours - theirs).mean() < 0.01


@pytest.mark.parametrize("resize", ["crop", "squash"])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_an_image_of_the_right_size_stays_as_it_is(photo, resize, interpolation):
    image = photo[:40, :56]
    preprocess = Preprocess(image_size=(40, 56), resize=resize, interpolation=interpolation)
    np.testing.assert_array_equal(fit_image(image, preprocess), image)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 60), st.integers(1, 60), st.integers(1, 40), st.integers(1, 40),
    st.floats(0.3, 1.0), st.sampled_from(["crop", "squash"]), st.sampled_from([1, 3]),
)  # fmt: skip
def test_any_image_becomes_any_size(h, w, height, width, fraction, resize, channels):
    image = np.full((h, w, channels), 100, np.uint8)
    preprocess = Preprocess(
        image_size=(height, width), channels=channels, resize=resize, crop_fraction=fraction
    )
    levels = fit_image(image, preprocess)
    assert levels.shape == (height, width, channels)
    np.testing.assert_array_equal(levels, 100.0)  # no border is invented


def test_a_line_of_pixels_costs_no_more_than_its_result():
    image = tf.zeros((1_000_000, 1, 3), tf.uint8)  # scaled whole it would be 200 gigabytes
    assert preprocess_image(image, Preprocess(image_size=(224, 224))).shape == (224, 224, 3)


def test_the_default_range_is_the_originals():
    preprocess = Preprocess(image_size=(1, 1))
    levels = np.array([[[0.0, 127.5, 255.0]]], np.float32)
    np.testing.assert_allclose(normalise(levels, preprocess), [[[-1.0, 0.0, 1.0]]], atol=1e-7)


def test_each_channel_has_its_mean_and_deviation():
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    preprocess = Preprocess(image_size=(2, 2), mean=mean, std=std)
    image = np.random.default_rng(0).integers(0, 256, (2, 2, 3), np.uint8)
    expected = (image / 255.0 - mean) / std
    np.testing.assert_allclose(preprocess_image(image, preprocess), expected, rtol=1e-5)


def test_gray_and_color_become_each_other():
    gray = np.random.default_rng(0).integers(0, 256, (4, 4, 1), np.uint8)
    three = fit_color(gray, 3)
    np.testing.assert_array_equal(three, np.repeat(gray, 3, axis=-1))
    np.testing.assert_array_equal(fit_color(np.asarray(three, np.uint8), 1), gray)


def fit_color(image, channels):
    preprocess = Preprocess(image_size=(4, 4), channels=channels, mean=(0.0,), std=(1 / 255,))
    return np.round(preprocess_image(image, preprocess))


def test_it_survives_its_file():
    preprocess = Preprocess(
        image_size=(3, 5), resize="squash", crop_fraction=0.9, interpolation="bicubic",
        mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 3.0),
    )  # fmt: skip
    assert Preprocess.from_dict(preprocess.to_dict()) == preprocess


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("mean"), "preprocess.json: 'mean' is missing"),
        (lambda d: d.update(sharpen=1), "preprocess.json: 'sharpen' is unknown"),
    ],
)
def test_a_file_that_was_changed_names_the_key(change, message):
    values = Preprocess(image_size=(3, 5)).to_dict()
    change(values)
    with pytest.raises(UserError) as error:
        Preprocess.from_dict(values)
    assert str(error.value) == message


@pytest.mark.parametrize(
    "settings",
    [
        {"image_size": (0, 5)}, {"image_size": (5,)}, {"channels": 2}, {"resize": "pad"},
        {"crop_fraction": 0.0}, {"crop_fraction": 1.1}, {"interpolation": "nearest"},
        {"std": (0.0,)}, {"mean": (0.5, 0.5)},
    ],
)  # fmt: skip
def test_a_setting_out_of_range_is_named(settings):
    (name,) = settings
    with pytest.raises(UserError, match=f"^preprocess: {name}="):
        Preprocess(**{"image_size": (8, 8), **settings})
