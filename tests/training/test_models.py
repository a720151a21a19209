"""`keras-vit models`."""

import keras_vit
from training import cli


def test_every_model_with_its_size(capsys):
    assert cli.main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and not any("…" in line for line in lines)
    rows = {words[1]: words for words in (line.split() for line in lines) if len(words) > 10}
    assert set(keras_vit.list_models()) <= set(rows)
    # model, patch, hidden size, blocks, heads, tokens, parameters: Dosovitskiy et al. 2021, table 1
    assert rows["vit_b16"][1::2] == "vit_b16 16x16 768 12 12 197 86,567,656".split()
    assert rows["mixer_b16"][1::2] == "mixer_b16 16x16 768 12 - 196 59,880,472".split()
    assert rows["r_vit_ti16"][-2] == "6,337,704"


def test_nothing_is_built(monkeypatch, capsys):
    def refuse(*args, **kwargs):
        raise AssertionError("a model was built")

    monkeypatch.setattr(keras_vit, "create_model", refuse)
    monkeypatch.setattr("keras.Model.__init__", refuse)
    assert cli.main(["models"]) == 0
