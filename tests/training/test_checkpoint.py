import contextlib
import errno
import io
import os

import numpy as np
import pytest

from keras_vit import UserError
from training import checkpoint

ARRAYS = {"weights/0/a": np.arange(6.0).reshape(2, 3), "n": np.int64(3), "s": np.uint32([1, 2])}


def fill(folder, *steps, keep=9):
    for step in steps:
        checkpoint.save(folder, step, ARRAYS | {"n": np.int64(step)}, {"step": step}, keep)


def test_what_is_saved_is_loaded(tmp_path):
    fill(tmp_path, 7)
    arrays, facts = checkpoint.newest(tmp_path)
    assert facts == {"step": 7}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in arrays.items():
        assert array.dtype == np.asarray(ARRAYS[name]).dtype
    np.testing.assert_array_equal(arrays["weights/0/a"], ARRAYS["weights/0/a"])


def test_the_newest_stay(tmp_path):
    fill(tmp_path, 1, 20, 3, 100, keep=2)
    assert [path.name for path in checkpoint.checkpoints(tmp_path)] == [
        "step_0000000020.npz",
        "step_0000000100.npz",
    ]


def whole_or_said(folder, contents) -> None:
    """With these contents the newest is the same as before, or passed over with a line."""
    newest = checkpoint.checkpoints(folder)[-1]
    newest.write_bytes(contents)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        arrays, facts = checkpoint.newest(folder)
    if facts["step"] == 1:
        assert f"{newest} is not whole" in said.getvalue()
    else:  # a byte that nothing reads, like a file's date
        np.testing.assert_array_equal(arrays["weights/0/a"], ARRAYS["weights/0/a"])
        assert arrays["n"] == 2


def test_a_broken_newest_falls_back_and_says_so(tmp_path):
    """Any byte changed: it is never taken for whole with other numbers."""
    fill(tmp_path, 1, 2)
    whole = checkpoint.checkpoints(tmp_path)[-1].read_bytes()
    for place in range(len(whole)):
        for change in (1 << place % 8, 0xFF):
            broken = bytearray(whole)
            broken[place] ^= change
            whole_or_said(tmp_path, broken)


def test_a_cut_newest_falls_back_and_says_so(tmp_path):
    fill(tmp_path, 1, 2)
    whole = checkpoint.checkpoints(tmp_path)[-1].read_bytes()
    for length in range(0, len(whole), 7):
        whole_or_said(tmp_path, whole[:length])


def test_all_broken_is_an_error_and_none_is_none(tmp_path):
    assert checkpoint.newest(tmp_path) is None
    fill(tmp_path, 1)
    checkpoint.checkpoints(tmp_path)[0].write_bytes(b"")
    with pytest.raises(UserError, match="no checkpoint in .* is whole"):
        checkpoint.newest(tmp_path)


@pytest.mark.parametrize("where", ["savez", "fsync", "replace"])
def test_a_full_disk_keeps_the_one_before(tmp_path, monkeypatch, where):
    fill(tmp_path, 1)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np if where == "savez" else os, where, full)
    with pytest.raises(UserError, match="step_0000000002.npz cannot be written: No space left.*"):
        fill(tmp_path, 2)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["step_0000000001.npz"]
    assert checkpoint.newest(tmp_path)[1] == {"step": 1}


def test_a_vanished_folder_is_named(tmp_path):
    with pytest.raises(UserError, match="gone/step_0000000002.npz cannot be written: No such file"):
        fill(tmp_path / "gone", 2)


def test_setting_aside(tmp_path):
    fill(tmp_path, 1, 2)
    checkpoint.set_aside(tmp_path)
    assert checkpoint.newest(tmp_path) is None
    assert checkpoint.newest(tmp_path, or_before=True)[1] == {"step": 2}
    fill(tmp_path, 1)
    assert checkpoint.newest(tmp_path, or_before=True)[1] == {"step": 1}
