import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import cli
from training.config import TrainConfig


def parse(*words):
    return cli.parse(["train", *map(str, words)])[1]


def refused(capsys, *words) -> str:
    """The one line that a mistake gives, with exit status 2 and nothing on stdout."""
    assert cli.main(list(map(str, words))) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1, output.err
    return output.err.strip()


def test_flags_become_the_config_with_dashes_or_underscores():
    config = parse("--image-size", "48x64", "--batch_size", 7, "--no-flip", "--balance")
    assert config == TrainConfig(image_size=(48, 64), batch_size=7, flip=False, balance=True)
    assert parse("--image-size", 96).image_size == (96, 96)
    assert parse("--clip-norm", "none").clip_norm is None
    assert parse() == TrainConfig()


def test_a_yaml_file_says_the_same_as_flags_and_flags_win(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text(
        "epochs: 3\nlearning_rate: 1e-3\nimage-size: [48, 64]\nflip: false\nclip_norm: null\n"
        "balance: true\nema: null\nflip: null\nmade_with: {keras: 1}\n",
        encoding="utf-8",
    )
    config = parse("--config", path, "--epochs", 5)
    assert config == TrainConfig(
        epochs=5, learning_rate=1e-3, image_size=(48, 64), clip_norm=None, balance=True
    )


@given(
    st.builds(
        TrainConfig,
        epochs=st.none() | st.integers(1, 1000),
        learning_rate=st.none() | st.floats(1e-8, 10),
        image_size=st.none() | st.tuples(st.integers(1, 999), st.integers(1, 999)),
        flip=st.none() | st.booleans(),
        balance=st.booleans(),
        clip_norm=st.none() | st.floats(0.1, 10),
        precision=st.sampled_from(["float32", "bfloat16", "float16"]),
        data=st.sampled_from(["digits", "folder:/a b/ü", "tfds:x"]),
        mixup=st.none() | st.floats(0, 2),
    )
)
def test_what_a_run_saves_reads_back_as_the_same_config(tmp_path_factory, config):
    from dataclasses import asdict

    from training.run import Run

    run = Run(tmp_path_factory.mktemp("run"))
    run.write_config(asdict(config), {"keras": "3"})
    assert parse("--config", run.path / "config.yaml") == config


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "keras-vit: no command 'trian'; did you mean train?"),
        (["train", "--epoch", "3"], "keras-vit train: no flag --epoch; did you mean --epochs?"),
        (
            ["train", "--epochs", "many"],
            "keras-vit train: argument --epochs: 'many' must be a whole number",
        ),
        (
            ["train", "--learning-rate", "fast"],
            "keras-vit train: argument --learning-rate/--learning_rate: 'fast' must be a number",
        ),
        (
            ["train", "--precision", "int8"],
            "keras-vit train: argument --precision:"
            " 'int8' must be one of float32, bfloat16, float16",
        ),
        (
            ["train", "--image-size", "big"],
            "keras-vit train: argument --image-size/--image_size: 'big' must be like 224 or"
            " 192x256",
        ),
        (["train", "--epochs", "0"], "keras-vit train: epochs=0 must be greater than 0"),
        (
            ["predict", "run"],
            "keras-vit predict: the following arguments are required: IMAGE",
        ),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(capsys, words, message):
    assert refused(capsys, *words) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch: 3", "no setting 'epoch'; did you mean epochs?"),
        ("epochs: many", "'many' must be a whole number"),
        ("balance: maybe", "ignored explicit argument 'maybe'"),
        ("epochs: [", "is no YAML, line"),
        ("- epochs", "must hold lines like `epochs: 10`"),
        ("precision: int8", "must be one of float32, bfloat16, float16"),
    ],
)
def test_a_mistake_in_a_yaml_file_names_the_file(capsys, tmp_path, text, message):
    path = tmp_path / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    line = refused(capsys, "train", "--config", path)
    assert str(path) in line
    assert message in line


def test_a_missing_yaml_file_is_named(capsys, tmp_path):
    line = refused(capsys, "train", "--config", tmp_path / "none.yaml")
    assert line.endswith("none.yaml: No such file or directory")


def test_a_users_mistake_shows_a_traceback_only_with_debug(capsys):
    from keras_vit import UserError

    line = refused(capsys, "train", "--data", "photos")
    assert line == (
        "keras-vit train: data='photos' must be digits, folder:PATH, tfds:NAME or tfrecord:GLOB"
    )
    with pytest.raises(UserError):
        cli.main(["train", "--data", "photos", "--debug"])


def test_ctrl_c_ends_with_130(capsys, monkeypatch):
    import training.models

    def stop(config):
        raise KeyboardInterrupt

    monkeypatch.setattr(training.models, "main", stop)
    assert cli.main(["models"]) == 130
    assert capsys.readouterr().err == "keras-vit models: stopped by Ctrl-C\n"


def test_a_bug_is_no_users_mistake(monkeypatch):
    import training.models

    def fail(config):
        raise ValueError("a bug")

    monkeypatch.setattr(training.models, "main", fail)
    with pytest.raises(ValueError, match="a bug"):
        cli.main(["models"])


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["--version"], []])
def test_help_comes_without_tensorflow(words):
    code = (
        "import sys; from training import cli\n"
        f"try: cli.main({words!r})\n"
        "except SystemExit as end: status = end.code\n"
        "sys.exit(status or any(m in sys.modules for m in ('tensorflow', 'keras', 'keras_vit')))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_python_m_training_is_the_same_command():
    result = subprocess.run(
        [sys.executable, "-m", "training", "train", "--epoch", "1"], capture_output=True, text=True
    )
    assert result.returncode == 2
    assert result.stderr == "keras-vit train: no flag --epoch; did you mean --epochs?\n"
