import io

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from training.data import container


def encoded(size=(30, 20), format="PNG", mode="RGB", **options) -> bytes:
    """An image of (width, height) as a file's bytes."""
    file = io.BytesIO()
    Image.new(mode, size, 0).save(file, format, **options)
    return file.getvalue()


@pytest.mark.parametrize("name", container.FORMATS)
def test_the_format_is_told_by_content(name):
    index = int(container.image_format(encoded(format=name.upper())))
    assert container.FORMATS[index] == name


@pytest.mark.parametrize("contents", [b"", b"B", b"RIFF1234WAVE", b"%PDF-1.4", b"\xff\xd8"])
def test_what_is_no_image_is_unknown(contents):
    assert int(container.image_format(contents)) == container.UNKNOWN


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300))
def test_the_size_is_read_from_every_header(width, height):
    variants = [{"format": name.upper()} for name in container.FORMATS]
    variants += [{"format": "WEBP", "lossless": True}, {"format": "WEBP", "mode": "RGBA"}]
    for variant in variants:
        contents = encoded((width, height), **variant)
        kind = container.image_format(contents)
        assert container.stored_size(contents, kind).numpy().tolist() == [height, width], variant


def test_a_bitmap_from_top_to_bottom_has_a_positive_height():
    contents = bytearray(encoded((3, 5), "BMP"))
    contents[22:26] = (-5).to_bytes(4, "little", signed=True)
    assert container.stored_size(bytes(contents), tf.constant(container.BMP)).numpy().tolist() == [
        5,
        3,
    ]


@pytest.mark.parametrize("frames", [1, 2, 7])
def test_frames_of_a_webp_are_counted(frames):
    images = [Image.new("RGB", (4, 4), (50 * i, 0, 0)) for i in range(frames)]
    file = io.BytesIO()
    images[0].save(file, "WEBP", save_all=True, append_images=images[1:])
    assert int(container.webp_frames(file.getvalue())) == frames


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("endian", ["<", ">"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_is_found_in_both_byte_orders(format, endian, orientation):
    exif = Image.Exif()
    exif.endian = endian
    exif[0x010F] = "maker"  # other entries come first
    exif[0x0112] = orientation
    contents = encoded(format=format, exif=exif.tobytes())
    assert int(container.orientation(contents, container.image_format(contents))) == orientation


@pytest.mark.parametrize("value", [0, 9, 99, 65535])
def test_an_impossible_orientation_is_upright(value):
    exif = Image.Exif()
    exif[0x0112] = value
    contents = encoded(format="JPEG", exif=exif.tobytes())
    assert int(container.orientation(contents, tf.constant(container.JPEG))) == 1


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([b"\xff\xd8\xff\xe1", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBPVP8X", b"BM"]),
    st.binary(max_size=300),
)
def test_no_bytes_make_the_walk_fail_or_run_on(start, rest):
    contents = start + rest
    kind = container.image_format(contents)
    assert 1 <= int(container.orientation(contents, kind)) <= 8
    assert int(container.webp_frames(contents)) >= 1
    if kind != container.JPEG:  # TensorFlow's own reader refuses a broken JPEG header
        assert container.stored_size(contents, kind).shape == (2,)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_damaged_exif_block_never_fails(data):
    exif = Image.Exif()
    exif[0x0112] = 6
    contents = bytearray(encoded(format="JPEG", exif=exif.tobytes()))
    for _ in range(data.draw(st.integers(1, 6))):
        contents[data.draw(st.integers(20, 60))] = data.draw(st.integers(0, 255))
    assert 1 <= int(container.orientation(bytes(contents), tf.constant(container.JPEG))) <= 8


def test_it_runs_in_a_graph():
    contents = encoded(format="JPEG")
    graph = tf.function(lambda c: container.orientation(c, container.image_format(c)))
    assert int(graph(tf.constant(contents))) == 1
