"""Each mistake on the command line: one line that names it, exit status 2."""

import subprocess
import sys

import pytest

import keras_vit
from training import cli, train
from training.config import COMMANDS


def refused(capsys, *words) -> str:
    """The one line that a wrong command ends with."""
    capsys.readouterr()
    assert cli.main(list(map(str, words))) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err.strip()


@pytest.mark.parametrize(
    "words, message",
    [
        ("trian", "keras-vit: no command 'trian'; did you mean train?"),
        (
            "xyz",
            "keras-vit: no command 'xyz'; there are train, evaluate, predict, tfrecord, models",
        ),
        ("--epochs 3", "keras-vit: no command '--epochs'; there are train, evaluate, predict,"),
        ("train --epoch 3", "keras-vit train: no flag --epoch; did you mean --epochs?"),
        (
            "train --image_sise=3",
            "keras-vit train: no flag --image-sise; did you mean --image-size?",
        ),
        ("train --qqq", "keras-vit train: no flag --qqq; there are --data, --data-dir,"),
        ("train digits", "keras-vit train: unexpected argument 'digits'"),
        ("predict run a.jpg --top 3 b.jpg", "keras-vit predict: unexpected argument 'b.jpg'"),
        ("evaluate", "keras-vit evaluate: the following arguments are required: RUN"),
        ("predict run", "keras-vit predict: the following arguments are required: IMAGE..."),
        ("train --epochs", "argument --epochs: expected one argument"),
        ("train --epochs x", "argument --epochs: 'x' must be a whole number"),
        ("train --epochs 1.5", "argument --epochs: '1.5' must be a whole number"),
        ("train --epochs 0", "keras-vit train: epochs=0 must be greater than 0"),
        ("train --epochs -1", "keras-vit train: epochs=-1 must be greater than 0"),
        ("train --seed none", "argument --seed: 'none' must be a whole number"),
        ("train --learning-rate fast", "argument --learning-rate: 'fast' must be a number"),
        ("train --learning-rate nan", "argument --learning-rate: 'nan' must be a number"),
        ("train --clip-norm inf", "argument --clip-norm: 'inf' must be a number"),
        ("train --image-size 48x", "argument --image-size: '48x' must be like 224 or 192x256"),
        ("train --image-size 0", "argument --image-size: '0' must be like 224 or 192x256"),
        ("train --image-size 1x2x3", "argument --image-size: '1x2x3' must be like 224 or 192x256"),
        ("train --optimizer adam", "argument --optimizer: 'adam' must be one of adamw, sgd"),
        ("train --config", "keras-vit train: argument --config: expected one argument"),
        ("train --cache=yes", "argument --cache/--no-cache: ignored explicit argument 'yes'"),
    ],
)
def test_a_wrong_word_is_named(capsys, words, message):
    assert message in refused(capsys, *words.split())


@pytest.mark.parametrize(
    "text, message",
    [
        ("epoch: 3", "{path}: no setting 'epoch'; did you mean epochs?"),
        ("config: b.yaml", "{path}: no setting 'config'"),
        ("3: 4", "{path}: no setting '3'"),
        ("epochs: x", "{path}: setting epochs: 'x' must be a whole number"),
        ("epochs: {a: 1}", "{path}: setting epochs: \"{{'a': 1}}\" must be a whole number"),
        ("epochs: true", "{path}: setting epochs: 'True' must be a whole number"),
        ("epochs: [1, 2]", "{path}: setting epochs: '[1, 2]' must be a whole number"),
        ("seed: null", "{path}: setting seed: 'none' must be a whole number"),
        ("cache: 3", "{path}: setting cache: 3 must be true or false"),
        ("cache: null", "{path}: setting cache: None must be true or false"),
        ("image_size: [1, 2, 3]", "{path}: setting image_size: '1x2x3' must be like 224"),
        ("image_size: [-1, 2]", "{path}: setting image_size: '-1x2' must be like 224"),
        ("precision: half", "{path}: setting precision: 'half' must be one of float32, bfloat16"),
        ("epochs: 0", "keras-vit train: epochs=0 must be greater than 0"),
        ("a: b: c", "--config {path}: is no YAML, line 1"),
        ("epochs: 3\nx: [1", "--config {path}: is no YAML, line 2"),
        ("- epochs", "--config {path}: must hold lines like `epochs: 10`"),
        ("", "--config {path}: must hold lines like `epochs: 10`"),
        ("\x00", "--config {path}: is no YAML"),
    ],
)
def test_a_wrong_line_of_a_file_is_named(capsys, tmp_path, text, message):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    assert message.format(path=path) in refused(capsys, "train", "--config", path)


def test_a_file_that_is_not_there_or_no_text_is_named(capsys, tmp_path):
    missing, binary = tmp_path / "missing.yaml", tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    line = refused(capsys, "train", "--config", missing)
    assert line == f"--config {missing}: No such file or directory"
    assert refused(capsys, "train", "--config", tmp_path) == f"--config {tmp_path}: Is a directory"
    assert refused(capsys, "train", "--config", binary) == f"--config {binary}: is no YAML"


def test_debug_shows_where(capsys):
    assert cli.main(["train", "--data", "nothing", "--debug"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "open_source" in err
    assert "data='nothing' must be digits, folder:PATH" in err


def test_a_command_s_refusal_is_one_line(capsys):
    line = refused(capsys, "train", "--data", "nothing")
    assert line == (
        "keras-vit train: data='nothing' must be digits, folder:PATH, tfds:NAME, tfrecord:GLOB or"
        " vtab:NAME"
    )


def test_a_fault_of_ours_is_not_hidden(monkeypatch):
    def broken(config):
        raise ValueError("bug")

    monkeypatch.setattr(train, "main", broken)
    with pytest.raises(ValueError, match="bug"):
        cli.main(["train"])


def test_ctrl_c_is_one_line(monkeypatch, capsys):
    def interrupted(config):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "main", interrupted)
    assert cli.main(["train"]) == 130
    assert capsys.readouterr().err == "keras-vit: stopped by Ctrl-C\n"


def test_alone_it_names_the_commands(capsys):
    with pytest.raises(SystemExit) as exit:
        cli.main([])
    assert exit.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for name, config_class in COMMANDS.items():
        assert f" {name} {' '.join(config_class.__doc__.split())}" in text


def test_the_version_is_the_library_s(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"keras-vit {keras_vit.__version__}\n"


def test_python_m_training_is_the_same_command():
    done = subprocess.run(
        [sys.executable, "-m", "training", "train", "--epoch", "3"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == "keras-vit train: no flag --epoch; did you mean --epochs?\n"
    assert done.stdout == ""


def test_a_reader_that_leaves_early_is_no_error():
    code = "from training import cli; cli.main = lambda argv: print('x\\n' * 10**6); cli.run()"
    command = f'{sys.executable} -c "{code}" | head -1'
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout == "x\n"
    assert done.stderr == ""


def test_a_name_that_is_no_utf_8_is_printed():
    code = r"from training import cli; cli.main = lambda argv: print('a\udcffb'); cli.run()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "a\\udcffb\n"), done.stderr


def test_what_an_import_prints_is_shown_only_if_it_fails(tmp_path, monkeypatch, capfd):
    monkeypatch.syspath_prepend(tmp_path)
    noise = "import os\nos.write(2, b'noise')\n"
    (tmp_path / "noisy_module.py").write_text(noise)
    (tmp_path / "broken_module.py").write_text(f"{noise}import no_such_module\n")
    cli.import_quietly("noisy_module")
    assert capfd.readouterr().err == ""
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        cli.import_quietly("broken_module")
    assert capfd.readouterr().err == "noise"
