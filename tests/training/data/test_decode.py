import io
import struct
import zlib
from csv import DictReader

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from training.data.decode import MAX_PIXELS, decode_image, decode_window, reason, window_size


def encode(image: Image.Image, format: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def random_image(mode="RGB", size=(31, 22), seed=0) -> Image.Image:
    shape = (size[1], size[0], len(Image.new(mode, (1, 1)).getbands()))
    pixels = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    return Image.fromarray(pixels.squeeze(), mode)


def by_pillow(contents: bytes) -> np.ndarray:
    """RGB as Pillow sees it: upright, transparency on white."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(contents)))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.asarray(image.convert("RGB"))


# Where TensorFlow cannot do what Pillow does, and what happens instead.
NOT_AS_PILLOW = {
    "made/soi_only.jpg": "Invalid JPEG data, size 3",
    "made/text_named.jpg": "not an image",
    "made/truncated_half.jpg": "Invalid JPEG data or crop window",
    "made/zero_byte.jpg": "the file is empty",
    "pillow/16bit.cropped.tif": "TIFF is not read: save it as PNG or JPEG",
    "pillow/bmp_b_badwidth.bmp": "too large",
    "pillow/bmp_b_shortfile.bmp": "",
    "pillow/bmp_q_rgba32.bmp": "BMP of this colour order is not read",
    "pillow/broken.png": "too large",
    "pillow/decompression_bomb.gif": "",
    "pillow/hopper.tif": "TIFF is not read: save it as PNG or JPEG",
    "pillow/no_palette.gif": "missing color map",
    "pillow/tiff_16bit_RGB.tiff": "TIFF is not read: save it as PNG or JPEG",
    "pillow/truncated_jpeg.jpg": "Invalid JPEG data or crop window",
    "pillow/zero_width.gif": "",
}
OTHER_PIXELS = {
    "pillow/dispose_bgnd_transparency.gif",  # first frame smaller than the canvas
    "pillow/png_decompression_dos.png",  # Pillow refuses its text chunk; the pixel is fine
    "pillow/unknown_compression_method.png",  # Pillow refuses it
    "pillow/xmp_tags_orientation.png",  # an orientation in XMP is not read
}


def test_every_hostile_file_is_pillows_pixels_or_a_plain_reason(shared):
    with (shared / "data/nasty/INDEX.tsv").open() as file:
        names = [row["file"] for row in DictReader(file, delimiter="\t")]
    assert len(names) == 66
    for name in names:
        contents = (shared / "data/nasty" / name).read_bytes()
        if name in NOT_AS_PILLOW:
            with pytest.raises(tf.errors.InvalidArgumentError) as error:
                decode_image(contents)
            assert NOT_AS_PILLOW[name] in reason(error.value), name
            assert "{{" not in reason(error.value) and "\n" not in reason(error.value)
        elif name in OTHER_PIXELS:
            assert decode_image(contents).dtype == tf.uint8
        else:
            np.testing.assert_array_equal(decode_image(contents), by_pillow(contents), name)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_a_turned_image_has_the_pixels_of_its_upright_twin(format, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    contents = encode(random_image(), format, exif=exif.tobytes())
    pixels = decode_image(contents).numpy()
    np.testing.assert_array_equal(pixels, by_pillow(contents))
    assert pixels.shape[:2] == ((31, 22) if orientation >= 5 else (22, 31))


def test_upright_twins_of_a_photo_are_the_same(shared):
    """The same photo stored in several ways: JPEG noise apart, the same picture."""
    folder = shared / "data/nasty/exif"
    for kind in ("Landscape", "Portrait"):
        photos = [decode_image(p.read_bytes()).numpy() for p in sorted(folder.glob(f"{kind}_*"))]
        for photo in photos[1:]:
            assert photo.shape == photos[0].shape
            assert abs(photo.astype(int) - photos[0]).mean() < 8


@pytest.mark.parametrize(
    ("mode", "format", "options"),
    [
        ("L", "PNG", {}), ("L", "JPEG", {}), ("LA", "PNG", {}), ("RGBA", "PNG", {}),
        ("RGBA", "WEBP", {"lossless": True, "exact": True}), ("RGB", "WEBP", {}),
        ("RGB", "JPEG", {"progressive": True}), ("CMYK", "JPEG", {}), ("RGB", "BMP", {}),
        ("L", "BMP", {}), ("RGB", "GIF", {}), ("1", "PNG", {}),
    ],
)  # fmt: skip
def test_every_kind_of_image_is_pillows(mode, format, options):
    image = random_image("L").convert("1") if mode == "1" else random_image(mode)
    contents = encode(image, format, **options)
    levels = 1 if mode == "CMYK" else 0  # both round the product of ink and black in their own way
    pixels = decode_image(contents).numpy().astype(int)
    np.testing.assert_allclose(pixels, by_pillow(contents), rtol=0, atol=levels)


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("transparent", [None, 1])
def test_gray_of_few_bits(bits, transparent):
    """Written by hand: Pillow writes no gray of 2 or 4 bits."""
    levels = np.random.default_rng(0).integers(0, 2**bits, (3, 8), np.uint8)
    rows = [
        int("".join(f"{level:0{bits}b}" for level in row), 2).to_bytes(bits, "big")
        for row in levels
    ]
    header = struct.pack(">IIBBBBB", 8, 3, bits, 0, 0, 0, 0)
    chunks = [png_chunk(b"IHDR", header)]
    if transparent is not None:
        chunks.append(png_chunk(b"tRNS", struct.pack(">H", transparent)))
    chunks.append(png_chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))))
    contents = b"\x89PNG\r\n\x1a\n" + b"".join(chunks) + png_chunk(b"IEND", b"")
    expected = levels.astype(int) * 255 // (2**bits - 1)
    if transparent is not None:
        expected[levels == transparent] = 255
    np.testing.assert_array_equal(decode_image(contents, channels=1)[..., 0], expected)


def test_a_palette_with_transparency_lies_on_white():
    image = random_image("L").convert("P")
    contents = encode(image, "PNG", transparency=3)
    np.testing.assert_array_equal(decode_image(contents), by_pillow(contents))


def test_sixteen_bits_are_cut_to_the_high_eight():
    values = np.random.default_rng(0).integers(0, 65536, (5, 7), np.uint16)
    contents = encode(Image.fromarray(values), "PNG")
    np.testing.assert_array_equal(decode_image(contents, 1)[..., 0], values >> 8)


def test_the_first_frame_of_an_animation():
    frames = [random_image(size=(8, 8), seed=seed) for seed in range(3)]
    for format, options in (("GIF", {}), ("WEBP", {"lossless": True})):
        contents = encode(frames[0], format, save_all=True, append_images=frames[1:], **options)
        np.testing.assert_array_equal(decode_image(contents), by_pillow(contents))


def test_the_name_of_a_file_means_nothing(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(encode(random_image(), "PNG"))
    np.testing.assert_array_equal(decode_image(tf.io.read_file(str(path))), random_image())


def test_one_channel_is_pillows_gray():
    contents = encode(random_image(), "PNG")
    gray = np.asarray(random_image().convert("L"))
    np.testing.assert_array_equal(decode_image(contents, channels=1)[..., 0], gray)


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_claiming(width: int, height: int) -> bytes:
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = png_chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + header + pixels + png_chunk(b"IEND", b"")


def with_bytes(contents: bytes, position: int, value: bytes) -> bytes:
    return contents[:position] + value + contents[position + len(value) :]


@pytest.mark.parametrize(
    "contents",
    [
        png_claiming(20_000, 20_000),
        png_claiming(2**31 - 1, 2**31 - 1),
        png_claiming(MAX_PIXELS + 1, 1),
        with_bytes(encode(random_image(), "GIF"), 6, b"\xff\xff\xff\xff"),
        with_bytes(encode(random_image(), "BMP"), 18, b"\xff\xff\xff\x0f\xff\xff\xff\x0f"),
        with_bytes(encode(random_image("RGBA"), "WEBP"), 24, b"\xff\xff\x00\xff\xff\x00"),
    ],
    ids=["png", "png-overflow", "png-line", "gif", "bmp", "webp"],
)
def test_a_claimed_size_is_refused_before_it_is_believed(contents):
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        decode_image(contents)
    assert reason(error.value).startswith("too large, width, height and frames are ")


def test_frames_of_an_animated_webp_count_too():
    frame = Image.new("RGB", (3000, 3000))
    frames = [Image.new("RGB", (3000, 3000), (16 * i, 255 - 16 * i, 0)) for i in range(1, 15)]
    contents = encode(frame, "WEBP", save_all=True, append_images=frames)
    with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
        decode_image(contents)


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_window_is_the_same_as_cutting_it_out(format, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"subsampling": 0} if format == "JPEG" else {}
    contents = encode(random_image(), format, exif=exif.tobytes(), **options)
    upright = encode(random_image(), format, **options)
    assert window_size(contents).numpy().tolist() == [22, 31]
    cut = decode_window(contents, tf.constant([3, 5, 10, 17]))
    plain = decode_image(upright).numpy()[3:13, 5:22]
    expected = plain if orientation == 1 else np.rot90(plain, k=-1)
    np.testing.assert_array_equal(cut, expected)


def test_it_is_the_same_eagerly_in_a_graph_and_in_a_pipeline(shared):
    paths = sorted((shared / "data/nasty/exif").glob("*.jpg"))[:4]
    contents = [path.read_bytes() for path in paths]
    graph = tf.function(decode_image, input_signature=[tf.TensorSpec([], tf.string)])
    pipeline = tf.data.Dataset.from_tensor_slices(contents).map(decode_image, num_parallel_calls=2)
    for one, image in zip(contents, pipeline, strict=True):
        np.testing.assert_array_equal(image, decode_image(one))
        np.testing.assert_array_equal(image, graph(one))
