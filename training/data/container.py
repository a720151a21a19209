"""What an image file says of itself before it is decoded: format, size, orientation, frames.

Graph operations on the encoded bytes (a scalar `tf.string`), so that they run inside `tf.data` and
inside a SavedModel. Reading past the end gives zeros, never an error: a broken header is then an
unknown format, an upright image or a decoding error, as the case may be.
"""

import tensorflow as tf

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WebP")
JPEG, PNG, GIF, BMP, WEBP = range(5)
UNKNOWN = 5

# Walking chunks stops here: real files have a handful, a hostile one may claim millions.
MAX_CHUNKS = 4096
MAX_EXIF_ENTRIES = 512


def cut(contents, position, length: int):
    """`length` bytes at `position` as a string, padded with zeros past the end."""
    size = tf.strings.length(contents)
    position = tf.clip_by_value(tf.cast(position, tf.int32), 0, size)
    piece = tf.strings.substr(contents, position, length)
    return tf.strings.substr(tf.strings.join([piece, b"\0" * length]), 0, length)


def unsigned(contents, position, length: int, little=False):
    """The unsigned integer of `length` bytes at `position`, int64."""
    values = tf.cast(tf.io.decode_raw(cut(contents, position, length), tf.uint8), tf.int64)
    powers = tf.constant([256 ** (length - 1 - i) for i in range(length)], tf.int64)
    powers = tf.where(little, tf.reverse(powers, [0]), powers)
    return tf.reduce_sum(values * powers)


def image_format(contents):
    """Index into FORMATS by the first bytes, or UNKNOWN. The file's name is not asked."""
    is_webp = (cut(contents, 0, 4) == b"RIFF") & (cut(contents, 8, 4) == b"WEBP")
    matches = [
        cut(contents, 0, 3) == b"\xff\xd8\xff",
        cut(contents, 0, 8) == b"\x89PNG\r\n\x1a\n",
        cut(contents, 0, 4) == b"GIF8",
        cut(contents, 0, 2) == b"BM",
        is_webp,
        True,
    ]
    return tf.argmax(tf.stack(matches), output_type=tf.int32)


def stored_size(contents, kind):
    """(height, width) int64 as the header claims, before any EXIF orientation is applied."""

    def jpeg():
        shape = tf.cast(tf.image.extract_jpeg_shape(contents), tf.int64)
        return tf.stack([shape[0], shape[1]])

    def png():
        return tf.stack([unsigned(contents, 20, 4), unsigned(contents, 16, 4)])

    def gif():
        return tf.stack([unsigned(contents, 8, 2, little=True), unsigned(contents, 6, 2, True)])

    def bmp():
        height = unsigned(contents, 22, 4, little=True)
        # A height over 2^31 is a negative one: rows from top to bottom.
        height = tf.minimum(height, 2**32 - height)
        return tf.stack([height, unsigned(contents, 18, 4, little=True)])

    return tf.switch_case(
        kind,
        [jpeg, png, gif, bmp, lambda: _webp_size(contents)],
        default=lambda: tf.zeros([2], tf.int64),
    )


def _webp_size(contents):
    chunk = cut(contents, 12, 4)
    if_extended = 1 + tf.stack(
        [unsigned(contents, 27, 3, little=True), unsigned(contents, 24, 3, little=True)]
    )
    lossy = tf.stack([unsigned(contents, 28, 2, True), unsigned(contents, 26, 2, True)]) % 2**14
    bits = unsigned(contents, 21, 4, little=True)
    lossless = 1 + tf.stack([bits // 2**14 % 2**14, bits % 2**14])
    return tf.where(chunk == b"VP8X", if_extended, tf.where(chunk == b"VP8L", lossless, lossy))


def webp_frames(contents):
    """Number of frames of a WebP, 1 if it is no animation, int64."""

    def count(position, frames):
        is_frame = cut(contents, position, 4) == b"ANMF"
        return [_next_riff(contents, position), frames + tf.cast(is_frame, tf.int64)]

    size = tf.cast(tf.strings.length(contents), tf.int64)
    position, frames = tf.while_loop(
        lambda position, _: position + 8 <= size,
        count,
        [tf.constant(12, tf.int64), tf.constant(0, tf.int64)],
        maximum_iterations=MAX_CHUNKS,
    )
    # Not walked to the end: there may be any number.
    return tf.where(position + 8 <= size, tf.int64.max, tf.maximum(frames, 1))


def with_alpha_flag(contents):
    """A WebP whose header says that it has alpha, if it is an animation; else as it is.

    TensorFlow 2.21 decodes every animation to four channels, but makes room for three where the
    header claims no alpha: it writes past the end of its buffer.
    """
    flags = unsigned(contents, 20, 1)
    is_animation = (cut(contents, 12, 4) == b"VP8X") & (flags // 2 % 2 == 1)
    is_opaque = flags // 16 % 2 == 0
    byte = tf.gather(tf.constant([bytes([value]) for value in range(256)]), flags | 16)
    rest = tf.strings.substr(contents, tf.minimum(21, tf.strings.length(contents)), 2**31 - 1)
    patched = tf.strings.join([cut(contents, 0, 20), byte, rest])
    return tf.where(is_animation & is_opaque, patched, contents)


def orientation(contents, kind):
    """EXIF orientation 1 to 8, int64; 1 (upright) where none is given or it is out of range."""
    none = lambda contents: tf.constant(-1, tf.int64)  # noqa: E731
    finders = [_exif_of_jpeg, _exif_of_png, none, none, _exif_of_webp]  # the order of FORMATS
    position = tf.switch_case(kind, [lambda find=find: find(contents) for find in finders])
    return tf.cond(
        position >= 0,
        lambda: _orientation_at(contents, position),
        lambda: tf.constant(1, tf.int64),
    )


def _orientation_at(contents, start):
    """Orientation from the TIFF structure at `start`: its first directory, tag 0x0112."""
    little = cut(contents, start, 2) == b"II"
    directory = start + unsigned(contents, start + 4, 4, little)
    count = tf.minimum(unsigned(contents, directory, 2, little), MAX_EXIF_ENTRIES)
    entries = tf.strings.substr(
        cut(contents, directory + 2, 12 * MAX_EXIF_ENTRIES), 0, tf.cast(12 * count, tf.int32)
    )
    table = tf.cast(tf.reshape(tf.io.decode_raw(entries, tf.uint8), [-1, 12]), tf.int64)
    low, high = tf.where(little, 0, 1), tf.where(little, 1, 0)  # of a 2-byte number
    tags = tf.gather(table, low, axis=1) + 256 * tf.gather(table, high, axis=1)
    values = tf.gather(table, 8 + low, axis=1) + 256 * tf.gather(table, 8 + high, axis=1)
    found = tf.boolean_mask(values, (tags == 0x0112) & (values >= 1) & (values <= 8))
    return tf.concat([found, [1]], axis=0)[0]


def _exif_of_jpeg(contents):
    """Position of the TIFF structure in a JPEG's APP1 segment, or -1."""

    def is_exif(position):
        return (cut(contents, position, 2) == b"\xff\xe1") & (
            cut(contents, position + 4, 6) == b"Exif\0\0"
        )

    def goes_on(position):
        # APP0 to APP15 and comments; EXIF never comes after any other segment.
        marker = unsigned(contents, position, 2)
        is_app = ((marker >= 0xFFE0) & (marker <= 0xFFEF)) | (marker == 0xFFFE)
        return is_app & ~is_exif(position)

    def next_segment(position):
        return position + 2 + unsigned(contents, position + 2, 2)

    position = _walk(goes_on, next_segment, 2)
    return tf.where(is_exif(position), position + 10, -1)


def _exif_of_png(contents):
    def is_exif(position):
        return cut(contents, position + 4, 4) == b"eXIf"

    def goes_on(position):
        kind = cut(contents, position + 4, 4)
        return (kind != b"IEND") & (kind != b"\0\0\0\0") & ~is_exif(position)

    position = _walk(goes_on, lambda p: p + 12 + unsigned(contents, p, 4), 8)
    return tf.where(is_exif(position), position + 8, -1)


def _exif_of_webp(contents):
    def is_exif(position):
        return cut(contents, position, 4) == b"EXIF"

    def goes_on(position):
        return (cut(contents, position, 4) != b"\0\0\0\0") & ~is_exif(position)

    position = _walk(goes_on, lambda p: _next_riff(contents, p), 12)
    # Some writers put JPEG's "Exif\0\0" before the TIFF structure.
    prefixed = cut(contents, position + 8, 6) == b"Exif\0\0"
    start = position + tf.where(prefixed, tf.constant(14, tf.int64), 8)
    return tf.where(is_exif(position), start, -1)


def _next_riff(contents, position):
    """Position of the chunk after this one; chunks are padded to an even length."""
    size = unsigned(contents, position + 4, 4, little=True)
    return position + 8 + size + size % 2


def _walk(goes_on, step, start: int):
    """The first position, from `start` by `step`, at which it no longer goes on."""
    (position,) = tf.while_loop(
        goes_on,
        lambda position: [step(position)],
        [tf.constant(start, tf.int64)],
        maximum_iterations=MAX_CHUNKS,
    )
    return position
