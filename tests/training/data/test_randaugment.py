"""Every operation against Pillow's own, on a real photo, eagerly and inside a pipeline."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps

from training.data import randaugment as ra
from training.data.decode import decode_image

GRAY = (128, 128, 128)


@pytest.fixture(scope="module")
def photo(shared) -> Image.Image:
    pixels = decode_image((shared / "data/nasty/exif/Portrait_2.jpg").read_bytes())
    return Image.fromarray(pixels.numpy()).resize((64, 48))


def affine(image, matrix):
    return image.transform(image.size, Image.AFFINE, matrix, Image.NEAREST, fillcolor=GRAY)


def enhance(kind):
    return lambda image, s, sign: kind(image).enhance(1 + sign * 0.9 * s)


# name: (Pillow's operation, most levels of difference, part of the pixels that may differ)
PILLOW = {
    "identity": (lambda image, s, sign: image, 0, 0),
    "autocontrast": (lambda image, s, sign: ImageOps.autocontrast(image), 1, 1),
    "equalize": (lambda image, s, sign: ImageOps.equalize(image), 0, 0),
    "solarize": (lambda image, s, sign: ImageOps.solarize(image, 256 - int(256 * s)), 0, 0),
    "posterize": (lambda image, s, sign: ImageOps.posterize(image, 8 - int(4 * s)), 0, 0),
    "color": (enhance(ImageEnhance.Color), 1, 1),
    "contrast": (enhance(ImageEnhance.Contrast), 1, 1),
    "brightness": (enhance(ImageEnhance.Brightness), 1, 1),
    "sharpness": (enhance(ImageEnhance.Sharpness), 2, 1),
    # A nearest pixel may be either neighbour where a coordinate falls between two.
    "rotate": (
        lambda image, s, sign: image.rotate(sign * s * 30, Image.NEAREST, fillcolor=GRAY), 255, 0.02
    ),
    "shear_x": (lambda image, s, sign: affine(image, (1, sign * s * 0.3, 0, 0, 1, 0)), 255, 0.35),
    "shear_y": (lambda image, s, sign: affine(image, (1, 0, 0, sign * s * 0.3, 1, 0)), 255, 0.35),
    "translate_x": (
        lambda image, s, sign: affine(image, (1, 0, sign * s * 0.45 * image.width, 0, 1, 0)),
        255, 0.02,
    ),
    "translate_y": (
        lambda image, s, sign: affine(image, (1, 0, 0, 0, 1, sign * s * 0.45 * image.height)),
        255, 0.02,
    ),
}  # fmt: skip


def test_all_14_operations_of_the_paper_are_there():
    assert {operation.__name__ for operation in ra.OPERATIONS} == set(PILLOW)
    assert len(ra.OPERATIONS) == 14


@pytest.mark.parametrize("operation", ra.OPERATIONS, ids=lambda op: op.__name__)
@pytest.mark.parametrize(("strength", "sign"), [(0.5, 1.0), (0.8, -1.0)])
def test_it_is_pillows(photo, operation, strength, sign):
    theirs, levels, part = PILLOW[operation.__name__]
    expected = np.asarray(theirs(photo, strength, sign)).astype(int)
    image = tf.constant(np.asarray(photo), tf.float32)
    eager = operation(image, strength, tf.constant(sign)).numpy()
    assert eager.shape == image.shape
    assert (eager == np.round(eager)).all() and eager.min() >= 0 and eager.max() <= 255
    difference = abs(eager - expected)
    assert difference.max() <= levels
    assert (difference > 0).mean() <= part
    pipeline = tf.data.Dataset.from_tensors(image).map(
        lambda x: operation(x, strength, tf.constant(sign))
    )
    np.testing.assert_allclose(next(iter(pipeline)), eager, atol=1)


@pytest.mark.parametrize("operation", ra.OPERATIONS, ids=lambda op: op.__name__)
@pytest.mark.parametrize("shape", [(8, 8, 1), (1, 1, 3), (2, 5, 1), (32, 32, 3)])
def test_it_takes_gray_and_tiny_images(operation, shape):
    image = np.random.default_rng(0).integers(0, 256, shape).astype("float32")
    result = operation(tf.constant(image), 0.9, tf.constant(-1.0)).numpy()
    assert result.shape == shape
    assert np.isfinite(result).all()


@pytest.mark.parametrize("operation", [ra.autocontrast, ra.equalize, ra.contrast, ra.sharpness])
def test_an_image_of_one_level_stays(operation):
    image = tf.fill((4, 4, 3), 77.0)
    np.testing.assert_array_equal(operation(image, 0.9, tf.constant(1.0)), image)


def test_magnitude_zero_changes_nothing_but_the_contrast():
    image = tf.constant(np.random.default_rng(0).integers(20, 200, (9, 9, 3)), tf.float32)
    for operation in ra.OPERATIONS:
        if operation not in (ra.autocontrast, ra.equalize):
            result = operation(image, 0.0, tf.constant(1.0))
            np.testing.assert_allclose(result, image, atol=1, err_msg=operation.__name__)


def test_every_operation_is_drawn_equally_often(monkeypatch):
    count = len(ra.OPERATIONS)
    marks = tuple(lambda x, s, sign, mark=mark: x * 0 + mark for mark in range(count))
    monkeypatch.setattr(ra, "OPERATIONS", marks)
    graph = tf.function(lambda number: ra.randaugment(
        tf.zeros((1, 1, 1)), 1, 5, tf.stack([tf.constant(3, tf.int64), number])
    ))  # fmt: skip
    draws = [int(graph(tf.constant(i, tf.int64)).numpy().item()) for i in range(1400)]
    counts = np.bincount(draws, minlength=count)
    assert counts.min() > 60 and counts.max() < 145  # 100 each is expected, deviation 9.6


def test_the_seed_decides():
    image = tf.constant(np.random.default_rng(0).integers(0, 256, (16, 16, 3)), tf.float32)
    first, again, other = (
        ra.randaugment(image, 2, 9, tf.constant([1, i], tf.int64)).numpy() for i in (0, 0, 3)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
