"""Reading weight files: lazily, and hostile ones without harm."""

import io
import json
import pickle
import struct
import tracemalloc
import zipfile

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_vit import UserError, from_weights
from keras_vit.weights.opening import open_tensors


def npy(array, shape=None):
    """The bytes of an .npy file, if wanted with a lie about the shape."""
    buffer = io.BytesIO()
    header = np.lib.format.header_data_from_array_1_0(array)
    if shape is not None:
        header["shape"] = shape
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + array.tobytes()


def zipped(path, **members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def safetensors_header(path, header, data=b""):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


class Bomb:
    def __reduce__(self):
        return (print, ("code was executed",))


ONE = np.ones(3, "f")
HOSTILE = {
    "empty": (lambda p: p.write_bytes(b""), "no weights are recognised in it"),
    "text": (lambda p: p.write_text("hello, world, I am no weights"), "no weights are recognised"),
    "zip_of_nothing": (lambda p: zipfile.ZipFile(p, "w").close(), "no weights are recognised"),
    "zip_text": (
        lambda p: zipfile.ZipFile(p, "w").writestr("a.txt", "a"),
        "is a zip archive, but",
    ),
    "npz_truncated": (
        lambda p: (np.savez(p, a=np.ones(999)), p.write_bytes(p.read_bytes()[:2000])),
        "is broken: File is not a zip file",
    ),
    "npz_pickled": (
        lambda p: np.savez(p, a=np.array([Bomb()], dtype=object)),
        "is broken: a.npy holds pickled objects, which are not loaded",
    ),
    "npz_no_npy": (lambda p: zipped(p, a=b"nothing"), "is broken: "),
    "npz_absurd_shape": (
        lambda p: zipped(p, a=npy(ONE, (10**12,))),
        r"a.npy claims shape \(1000000000000,\), which is not what it holds",
    ),
    "npz_negative_shape": (lambda p: zipped(p, a=npy(ONE, (-3,))), "a.npy claims shape"),
    "npz_overflow": (
        lambda p: zipped(p, a=npy(ONE, (2**40, 2**40))),
        "a.npy claims shape",
    ),
    "npz_bomb": (
        lambda p: np.savez_compressed(p, a=np.zeros(10**7)),
        "is broken: it claims to unpack to 80,000,",
    ),
    "safetensors_truncated": (
        lambda p: (save_file({"a": np.ones(999)}, p), p.write_bytes(p.read_bytes()[:2000])),
        "is broken: ",
    ),
    "safetensors_long_header": (
        lambda p: p.write_bytes(struct.pack("<Q", 2**60) + b"{"),
        "is broken: ",
    ),
    "safetensors_no_json": (
        lambda p: p.write_bytes(struct.pack("<Q", 4) + b"{,},"),
        "is broken: ",
    ),
    "safetensors_absurd_shape": (
        lambda p: safetensors_header(
            p, {"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}, b"1234"
        ),
        "is broken: ",
    ),
    "safetensors_outside": (
        lambda p: safetensors_header(
            p, {"a": {"dtype": "F32", "shape": [250], "data_offsets": [0, 1000]}}, b"1234"
        ),
        "is broken: ",
    ),
    "pickle": (lambda p: p.write_bytes(pickle.dumps(Bomb())), "torch|is broken"),
    "other_npz": (lambda p: np.savez(p, a=ONE, b=ONE), "holds a, b..., the names of none of these"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_a_hostile_file_is_one_line_and_does_nothing(name, suffix, tmp_path, capfd):
    make, message = HOSTILE[name]
    path = tmp_path / "weights.npz"  # np.savez would add the suffix
    make(path)
    path = path.rename(tmp_path / f"w.{suffix}")  # the name decides nothing
    tracemalloc.start()
    with pytest.raises(UserError, match=message) as error:
        from_weights(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert peak < 30e6
    assert "code was executed" not in capfd.readouterr().out


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_nothing_is_read_before_it_is_asked_for(suffix, tmp_path):
    arrays = {"a": np.zeros((1000, 1000), "f"), "b": np.arange(6, dtype="f").reshape(2, 3)}
    path = tmp_path / f"w.{suffix}"
    np.savez(path, **arrays) if suffix == "npz" else save_file(arrays, path)
    tracemalloc.start()
    tensors = open_tensors(path)
    assert tensors.shapes == {"a": (1000, 1000), "b": (2, 3)}
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()
    np.testing.assert_array_equal(tensors.read("b"), arrays["b"])


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_bfloat16_is_read(suffix, tmp_path):
    array = np.array([1.0, 2.5, -3.0], ml_dtypes.bfloat16)
    path = tmp_path / f"w.{suffix}"
    np.savez(path, a=array) if suffix == "npz" else save_file({"a": array}, path)
    np.testing.assert_array_equal(open_tensors(path).read("a").astype("f"), [1.0, 2.5, -3.0])


def test_a_compressed_npz_is_read(tmp_path):
    path = tmp_path / "w.npz"
    np.savez_compressed(path, a=np.arange(6.0))
    np.testing.assert_array_equal(open_tensors(path).read("a"), np.arange(6.0))


def test_damage_in_the_middle_is_found(tmp_path):
    path = tmp_path / "w.npz"
    np.savez(path, a=np.ones(1000, "f"))
    content = bytearray(path.read_bytes())
    content[2000] ^= 255
    path.write_bytes(content)
    with pytest.raises(UserError, match="is broken: Bad CRC-32"):
        open_tensors(path).read("a")


def test_json_beside_the_weights_must_be_an_object(tmp_path):
    save_file({"a": ONE}, tmp_path / "model.safetensors")
    for text, message in (("[1]", "must hold a JSON object"), ("{", "is broken: ")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UserError, match=f"config.json: {message}"):
            open_tensors(tmp_path / "model.safetensors")
