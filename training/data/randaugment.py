"""RandAugment (Cubuk et al. 2020): random operations, one after the other, all at one magnitude.

Stateless graph operations on float32 levels 0..255 `(H, W, C)`, C = 3 or 1. Each operation is
Pillow's (`ImageOps`, `ImageEnhance`, `Image.transform`), magnitudes are timm's increasing ones.
"""

import math

import tensorflow as tf

FILL = 128.0  # what rotation and its like leave empty
SCALE = 10.0  # the magnitude of RandAugment's own ranges (tf autoaugment.py `_MAX_LEVEL`)
MAX_MAGNITUDE = 30.0  # the largest that its paper tried


def randaugment(image, layers: int, magnitude: float, seed):
    """Apply `layers` random operations.

    Args:
        image: float32 levels 0..255, whole numbers, `(H, W, C)`.
        layers: how many operations, each drawn from all 14, may repeat.
        magnitude: 0 to 30; half of the operations with a direction go the other way.
        seed: int `(2,)`; equal seeds give equal images.

    Returns: float32 levels 0..255, whole numbers, `(H, W, C)`.
    """
    strength = magnitude / SCALE
    for layer_seed in tf.unstack(tf.random.split(seed, layers)):
        draw = tf.random.stateless_uniform([2], layer_seed)
        index = tf.cast(draw[0] * len(OPERATIONS), tf.int32)
        sign = tf.where(draw[1] < 0.5, -1.0, 1.0)
        branches = [
            lambda operation=operation, image=image, sign=sign: operation(image, strength, sign)
            for operation in OPERATIONS
        ]
        image = tf.ensure_shape(tf.switch_case(index, branches), image.shape)
    return image


def blend(degenerate, image, factor):
    """Pillow's `Image.blend`: factor 0 is the degenerate image, 1 the image, 2 beyond it."""
    return tf.floor(tf.clip_by_value(degenerate + factor * (image - degenerate), 0.0, 255.0))


def grayscale(image):
    """Luma `(H, W, 1)` with Pillow's integer weights."""
    if image.shape[-1] == 1:
        return image
    weights = tf.constant([19595.0, 38470.0, 7471.0])
    return tf.floor((tf.reduce_sum(image * weights, axis=-1, keepdims=True) + 32768.0) / 65536.0)


def smooth(image):
    """Pillow's `ImageFilter.SMOOTH`; the border stays as it is."""
    channels = image.shape[-1]
    kernel = tf.constant([[1.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 1.0]]) / 13.0
    kernel = tf.tile(kernel[:, :, None, None], [1, 1, channels, 1])
    padded = tf.pad(image, [[1, 1], [1, 1], [0, 0]])[None]
    blurred = tf.nn.depthwise_conv2d(padded, kernel, [1, 1, 1, 1], "VALID")[0]
    height, width = tf.unstack(tf.shape(image)[:2])
    y, x = tf.range(height)[:, None, None], tf.range(width)[None, :, None]
    inside = (y > 0) & (y < height - 1) & (x > 0) & (x < width - 1)
    return tf.where(inside, tf.floor(blurred + 0.5), image)


def transform(image, matrix):
    """Move pixels: output (x, y) is taken from input (a x + b y + c, d x + e y + f), nearest."""
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=image[None],
        transforms=tf.concat([tf.stack(matrix), [0.0, 0.0]], axis=0)[None],
        output_shape=tf.shape(image)[:2],
        fill_value=FILL,
        interpolation="NEAREST",
        fill_mode="CONSTANT",
    )[0]


def identity(image, strength, sign):
    return image


def autocontrast(image, strength, sign):
    low = tf.reduce_min(image, axis=[0, 1])
    high = tf.reduce_max(image, axis=[0, 1])
    scale = 255.0 / tf.maximum(high - low, 1.0)
    stretched = tf.clip_by_value(tf.floor(image * scale - low * scale), 0.0, 255.0)
    return tf.where(high > low, stretched, image)


def equalize(image, strength, sign):
    def one(channel):
        levels = tf.cast(channel, tf.int32)
        counts = tf.math.bincount(tf.reshape(levels, [-1]), minlength=256, maxlength=256)
        last = tf.gather(counts, tf.reduce_max(levels))
        step = (tf.reduce_sum(counts) - last) // 255
        table = (step // 2 + tf.cumsum(counts, exclusive=True)) // tf.maximum(step, 1)
        equal = tf.gather(tf.clip_by_value(table, 0, 255), levels)
        return tf.where(step > 0, tf.cast(equal, tf.float32), channel)

    return tf.stack([one(channel) for channel in tf.unstack(image, axis=-1)], axis=-1)


def rotate(image, strength, sign):
    angle = -sign * strength * math.radians(30.0)  # Pillow turns counter-clockwise
    cos, sin = tf.cos(angle), tf.sin(angle)
    size = tf.cast(tf.shape(image), tf.float32)
    y, x = (size[0] - 1) / 2, (size[1] - 1) / 2
    return transform(image, [cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y])


def shear_x(image, strength, sign):
    return transform(image, [1.0, sign * strength * 0.3, 0.0, 0.0, 1.0, 0.0])


def shear_y(image, strength, sign):
    return transform(image, [1.0, 0.0, 0.0, sign * strength * 0.3, 1.0, 0.0])


def translate_x(image, strength, sign):
    pixels = sign * strength * 0.45 * tf.cast(tf.shape(image)[1], tf.float32)
    return transform(image, [1.0, 0.0, pixels, 0.0, 1.0, 0.0])


def translate_y(image, strength, sign):
    pixels = sign * strength * 0.45 * tf.cast(tf.shape(image)[0], tf.float32)
    return transform(image, [1.0, 0.0, 0.0, 0.0, 1.0, pixels])


def posterize(image, strength, sign):
    step = 2.0 ** math.floor(4 * min(strength, 1.0))  # four bits are left at least
    return tf.floor(image / step) * step


def solarize(image, strength, sign):
    threshold = 256.0 - math.floor(256 * min(strength, 1.0))  # all is inverted
    return tf.where(image < threshold, image, 255.0 - image)


def enhancement(strength, sign):
    return tf.maximum(0.1, 1.0 + sign * 0.9 * strength)


def color(image, strength, sign):
    return blend(grayscale(image), image, enhancement(strength, sign))


def contrast(image, strength, sign):
    mean = tf.floor(tf.reduce_mean(grayscale(image)) + 0.5)
    return blend(mean, image, enhancement(strength, sign))


def brightness(image, strength, sign):
    return blend(tf.zeros_like(image), image, enhancement(strength, sign))


def sharpness(image, strength, sign):
    return blend(smooth(image), image, enhancement(strength, sign))


OPERATIONS = (
    identity,
    autocontrast,
    equalize,
    rotate,
    solarize,
    color,
    posterize,
    contrast,
    brightness,
    sharpness,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
)
