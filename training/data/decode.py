"""Encoded bytes to pixels: one way for training, evaluation, prediction and serving.

Graph operations only. The content decides the format, not the file's name.
"""

import re

import tensorflow as tf

from training.data import container

# 108-megapixel phone photos pass; what a header claims beyond that is refused before decoding.
MAX_PIXELS = 120_000_000


def decode_image(contents, channels: int = 3):
    """Decode a JPEG, PNG, GIF (first frame), BMP or WebP (first frame) as it should be seen.

    EXIF orientation is applied, transparency composited on white, 16 bits cut to 8, palettes and
    CMYK turned to RGB. JPEG uses the accurate DCT: the pixels are Pillow's.

    Args:
        contents: scalar `tf.string`, the bytes of the file.
        channels: 3 for RGB, 1 for gray (ITU-R 601 luma, as Pillow's "L").

    Returns: uint8 `(H, W, channels)`.
    Raises: tf.errors.InvalidArgumentError: not an image, broken, or over MAX_PIXELS.
    """
    kind = checked_format(contents)

    def jpeg():
        return tf.io.decode_jpeg(contents, channels=3, dct_method="INTEGER_ACCURATE")

    image = _by_format(contents, kind, jpeg)
    image = orient(image, container.orientation(contents, kind))
    return to_channels(image, channels)


def decode_window(contents, window, channels: int = 3):
    """Like `decode_image`, but only a window; of a JPEG nothing else is decoded.

    Where a JPEG keeps its colours at half the size, those at the window's border are blurred
    without their neighbours outside it.

    Args:
        contents: scalar `tf.string`.
        window: int32 (y, x, height, width) in the stored image, before the EXIF orientation.
        channels: 3 or 1.

    Returns: uint8 `(height, width, channels)`, the sides swapped where the orientation says so.
    """
    kind = checked_format(contents)

    def jpeg():
        return tf.image.decode_and_crop_jpeg(
            contents, window, channels=3, dct_method="INTEGER_ACCURATE"
        )

    y, x, height, width = tf.unstack(window)
    image = _by_format(contents, kind, jpeg)
    image = tf.cond(
        kind == container.JPEG, lambda: image, lambda: image[y : y + height, x : x + width]
    )
    image = orient(image, container.orientation(contents, kind))
    return to_channels(image, channels)


def window_size(contents):
    """(height, width) int32 of the stored image, in whose coordinates `decode_window` cuts."""
    kind = container.image_format(contents)
    return tf.cast(container.stored_size(contents, kind), tf.int32)


def checked_format(contents):
    """The format's index, once the format is known and the claimed size is allowed."""
    kind = container.image_format(contents)
    is_tiff = (container.cut(contents, 0, 4) == b"II*\0") | (
        container.cut(contents, 0, 4) == b"MM\0*"
    )
    problem = tf.where(is_tiff, "TIFF is not read: save it as PNG or JPEG", "not an image")
    problem = tf.where(tf.strings.length(contents) == 0, "the file is empty", problem)
    with tf.control_dependencies([tf.debugging.Assert(kind != container.UNKNOWN, [problem])]):
        size = container.stored_size(contents, kind)
    frames = tf.cond(
        kind == container.WEBP,
        lambda: container.webp_frames(contents),
        lambda: tf.constant(1, tf.int64),
    )
    # One by one: a product could overflow.
    fits = tf.reduce_all(size <= MAX_PIXELS) & (size[0] * size[1] <= MAX_PIXELS // frames)
    claim = ["too large, width, height and frames are", size[1], size[0], frames]
    with tf.control_dependencies([tf.debugging.Assert(fits, claim)]):
        return tf.identity(kind)


def reason(error: tf.errors.OpError) -> str:
    """The plain words of a decoding error, without TensorFlow's node names."""
    _, _, eager = error.message.partition("Summarized data: ")  # how a check fails outside a graph
    if eager:
        return re.sub(r"b'([^']*)'", r"\1", " ".join(eager.split("\n"))).strip()
    text = error.message.split("\n\t [[")[0].strip().split("\n")[-1]
    text = re.sub(r"\{\{[^}]*\}\}|\[Op:.*\]", "", text)
    return re.sub(r"assertion failed: \[(.*)\]", r"\1", text).replace("] [", " ").strip()


def _by_format(contents, kind, jpeg):
    """RGB uint8 `(H, W, 3)`, as stored; `jpeg` says how a JPEG is decoded."""

    def png():
        rgba = tf.io.decode_png(contents, channels=4)
        # TensorFlow 2.21 fills up gray of 1, 2 or 4 bits with the largest alpha of so many bits.
        depth = container.unsigned(contents, 24, 1)
        filler = tf.cast(tf.bitwise.left_shift(1, tf.cast(depth, tf.int32)) - 1, tf.uint8)
        is_gray = container.unsigned(contents, 25, 1) == 0
        is_filled = is_gray & (depth < 8) & tf.reduce_all(rgba[..., 3] == filler)
        return tf.cond(is_filled, lambda: rgba[..., :3], lambda: composite(rgba))

    def gif():
        return tf.io.decode_image(contents, channels=3, expand_animations=False)

    def bmp():
        # Only the bit-field variant has alpha; elsewhere the fourth byte means nothing.
        has_fields = container.unsigned(contents, 30, 4, little=True) == 3
        is_bgr = container.cut(contents, 54, 12) == b"\0\0\xff\0\0\xff\0\0\xff\0\0\0"
        known = tf.debugging.Assert(~has_fields | is_bgr, ["BMP of this colour order is not read"])
        with tf.control_dependencies([known]):
            return _by_channels(tf.io.decode_bmp(contents), has_fields)

    def webp():
        frames = tf.io.decode_webp(container.with_alpha_flag(contents))
        return _by_channels(frames[0], tf.constant(True))

    image = tf.switch_case(kind, [jpeg, png, gif, bmp, webp])  # the order of FORMATS
    return tf.ensure_shape(image, [None, None, 3])


def _by_channels(image, has_alpha):
    """RGB of an image with 1, 3 or 4 channels that are known only now."""

    def four():
        rgba = tf.ensure_shape(image, [None, None, 4])
        return tf.cond(has_alpha, lambda: composite(rgba), lambda: rgba[..., :3])

    def three():
        return tf.ensure_shape(image, [None, None, 3])

    def one():
        return tf.repeat(tf.ensure_shape(image, [None, None, 1]), 3, axis=-1)

    count = tf.shape(image)[-1]
    return tf.case([(count == 4, four), (count == 3, three)], default=one)


def composite(rgba):
    """uint8 `(H, W, 4)` over white, rounded to nearest: `(H, W, 3)`."""

    def blend():
        rgb, alpha = tf.cast(rgba[..., :3], tf.int32), tf.cast(rgba[..., 3:], tf.int32)
        return tf.cast((rgb * alpha + 255 * (255 - alpha) + 127) // 255, tf.uint8)

    return tf.cond(tf.reduce_all(rgba[..., 3] == 255), lambda: rgba[..., :3], blend)


def orient(image, orientation):
    """Turn a stored image `(H, W, C)` upright by its EXIF orientation (TIFF 6.0, tag 274)."""

    def turned():
        is_in = lambda *values: tf.reduce_any(orientation == tf.constant(values, tf.int64))  # noqa: E731
        x = tf.cond(orientation >= 5, lambda: tf.transpose(image, [1, 0, 2]), lambda: image)
        x = tf.cond(is_in(2, 3, 6, 7), lambda: tf.reverse(x, [1]), lambda: x)
        return tf.cond(is_in(3, 4, 7, 8), lambda: tf.reverse(x, [0]), lambda: x)

    return tf.cond(orientation == 1, lambda: image, turned)


def to_channels(image, channels: int):
    """uint8 `(H, W, 3 or 1)` to RGB, or to luma with Pillow's integer weights."""
    if image.shape[-1] == channels:
        return image
    if channels == 3:
        return tf.repeat(image, 3, axis=-1)
    weights = tf.constant([19595, 38470, 7471], tf.int32)  # of 65536
    luma = tf.reduce_sum(tf.cast(image, tf.int32) * weights, axis=-1, keepdims=True)
    return tf.cast((luma + 32768) // 65536, tf.uint8)
