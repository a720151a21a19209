"""Files are written whole or not at all."""

import pytest

from keras_vit.weights.writing import write_json, write_npz, write_safetensors, write_whole


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})

    def fail(temporary):
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(path, fail)
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    assert path.read_text() == '{\n  "a": 1\n}\n'


def test_folders_are_made_and_views_copied(tmp_path):
    import numpy as np
    from safetensors.numpy import load_file

    array = np.arange(6, dtype="f").reshape(2, 3)
    write_safetensors(tmp_path / "x/y/a.safetensors", {"a": array.T}, {"k": "v"})
    np.testing.assert_array_equal(load_file(tmp_path / "x/y/a.safetensors")["a"], array.T)
    write_npz(tmp_path / "x/b.npz", {"a/b": array.T})
    np.testing.assert_array_equal(np.load(tmp_path / "x/b.npz")["a/b"], array.T)
