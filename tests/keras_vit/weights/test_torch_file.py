"""PyTorch files: without torch a line that says how to convert; with it, its safe reader."""

import importlib.util
import pickle
import sys
import zipfile

import pytest

from keras_vit import UserError, from_weights

HAS_TORCH = importlib.util.find_spec("torch") is not None


class Bomb:
    def __reduce__(self):
        return (print, ("code was executed",))


def torch_zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Bomb()))


@pytest.mark.parametrize(
    "write", [torch_zip, lambda p: p.write_bytes(pickle.dumps(Bomb()))], ids=["zip", "pickle"]
)
def test_without_torch_the_line_says_how_to_convert(write, tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    write(tmp_path / "a.pth")
    with pytest.raises(UserError, match="is a PyTorch file.*convert a.pth model.keras --to"):
        from_weights(tmp_path / "a.pth")
    assert "code was executed" not in capfd.readouterr().out


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch, which the project does not")
def test_with_torch_a_state_dict_is_read(shared, tmp_path):
    import numpy as np
    import torch
    from safetensors.torch import load_file

    path = shared / "reference/timm/vit_token.safetensors"
    torch.save({"epoch": 3, "state_dict": load_file(path)}, tmp_path / "a.pth")
    ours = from_weights(tmp_path / "a.pth", num_heads=3)
    for one, other in zip(ours.weights, from_weights(path).weights, strict=True):
        np.testing.assert_array_equal(one, other)
    torch.save(Bomb(), tmp_path / "bomb.pth")
    with pytest.raises(UserError, match="is broken"):
        from_weights(tmp_path / "bomb.pth")
