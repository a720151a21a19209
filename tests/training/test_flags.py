"""The whole surface of the command line, so that it grows on purpose, and how words are read."""

from dataclasses import asdict, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.cli import parse
from training.config import COMMANDS, PredictConfig, TrainConfig
from training.flags import UsageError, flag, is_positional, yaml_flags
from training.run import Run

FLAGS = {
    "train": """
        --data --data-dir --validation-fraction --max-skipped --cache --model --weights --recipe
        --image-size --dropout --drop-path --pre-logits --patch-dropout --freeze --epochs
        --batch-size --optimizer --learning-rate --scale-learning-rate --schedule --warmup-epochs
        --warmup-steps --weight-decay --layer-decay --clip-norm --label-smoothing --balance --ema
        --early-stopping --precision --seed --teacher --distillation --distillation-alpha
        --distillation-tau --progressive --resize --crop-fraction --interpolation --augment --flip
        --crop-scale --randaugment --randaugment-layers --color-jitter --erasing
        --repeated-augmentation --mixup --cutmix --peak-tflops --tensorboard-images
        --tensorboard-histograms --wandb --mlflow --strategy --devices --cluster --task --accumulate
        --remat --steps-per-execution --dry-run --output --overwrite --resume --resume-weights-only
        --checkpoint-every --keep-checkpoints --on-nan --deterministic
    """,
    "evaluate": """
        RUN --data --data-dir --split --batch-size --real-labels
        --probe --shots --seeds --image-size --json
    """,
    "predict": "RUN IMAGE... --top --json --batch-size",
    "tfrecord": """
        --data --data-dir --output --shards --validation-fraction --max-skipped --seed --overwrite
    """,
    "models": "",
    "weights": "ACTION PATH... --to --image-size --num-heads --overwrite",
    "features": "RUN --data --data-dir --image-size --batch-size --output --overwrite",
    "evaluate-transfer": """
        WEIGHTS --data --data-dir --method --seeds --shots --recipe --image-size --epochs
        --batch-size --output
    """,
}


def test_the_list_of_all_flags():
    found = {
        command: [
            field.metadata.get("metavar", field.name.upper())
            if is_positional(field)
            else flag(field.name)
            for field in fields(config_class)
        ]
        for command, config_class in COMMANDS.items()
    }
    expected = {command: flags.split() for command, flags in FLAGS.items()}
    assert found == expected


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_every_flag_with_its_help(command, capsys):
    with pytest.raises(SystemExit) as exit:
        parse([command, "--help"])
    assert exit.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for word in [*FLAGS[command].split(), "--config", "--debug"]:
        assert word in text
    for field in fields(COMMANDS[command]):
        assert field.metadata["help"] in text


def read(*words) -> TrainConfig:
    command, config = parse(["train", *words])
    assert command == "train"
    return config


@pytest.mark.parametrize(
    "words, name, value",
    [
        ("", "image_size", None),
        ("--image-size 48", "image_size", (48, 48)),
        ("--image-size 48x64", "image_size", (48, 64)),
        ("--image-size 48X64", "image_size", (48, 64)),
        ("--image_size=48x64", "image_size", (48, 64)),
        ("--image-size none", "image_size", None),
        ("--epochs 3", "epochs", 3),
        ("--epochs 3 --epochs 4", "epochs", 4),
        ("--learning-rate 1e-3", "learning_rate", 0.001),
        ("--warmup_epochs 0", "warmup_epochs", 0.0),
        ("--clip-norm none", "clip_norm", None),
        ("--optimizer sgd", "optimizer", "sgd"),
        ("--augment none", "augment", "none"),
        ("--flip", "flip", True),
        ("--no-flip", "flip", False),
        ("--no_flip", "flip", False),
        ("--scale_learning_rate", "scale_learning_rate", True),
        ("--freeze 3", "freeze", "3"),
        ("--output my_runs/a_b", "output", "my_runs/a_b"),
        ("--output=my_runs/a_b", "output", "my_runs/a_b"),
        ("--data folder:a=b_c", "data", "folder:a=b_c"),
    ],
)
def test_words_become_values(words, name, value):
    found = getattr(read(*words.split()), name)
    assert found == value
    assert type(found) is type(value)


def test_python_flags_and_yaml_agree(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("image_size: [48, 64]\nlearning_rate: 1e-3\nflip: false\nclip-norm: null\n")
    expected = TrainConfig(image_size=(48, 64), learning_rate=1e-3, flip=False, clip_norm=None)
    assert read("--config", str(path)) == expected
    assert read("--image-size", "48x64", "--learning-rate", "1e-3", "--no-flip",
                "--clip-norm", "none") == expected  # fmt: skip


@pytest.mark.parametrize(
    "text, name, value",
    [
        ("epochs: 3", "epochs", 3),
        ("epochs: null", "epochs", None),
        ("flip: null", "flip", None),
        ("flip: yes", "flip", True),
        ("cache: true", "cache", True),
        ("image_size: 48", "image_size", (48, 48)),
        ("image_size: 48x64", "image_size", (48, 64)),
        ("freeze: 3", "freeze", "3"),
        ("freeze: none", "freeze", "none"),
        ("augment: none", "augment", "none"),
        ("augment: null", "augment", None),
        ("output: -x -y", "output", "-x -y"),
        ("data: 'folder:Blüten und Gräser'", "data", "folder:Blüten und Gräser"),
        ("made_with: {keras: 3.15.1}", "data", "digits"),
    ],
)
def test_yaml_becomes_values(tmp_path, text, name, value):
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    assert getattr(read("--config", str(path)), name) == value


def test_flags_win_over_yaml_wherever_they_stand(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("epochs: 3\nseed: 5\nflip: true\n")
    for words in (
        ("--epochs", "4", "--no-flip", "--config", str(path)),
        (f"--config={path}", "--epochs", "4", "--no-flip"),
    ):
        config = read(*words)
        assert (config.epochs, config.seed, config.flip) == (4, 5, False)


def test_arguments_by_place():
    assert parse(["predict", "run", "a.jpg", "b.jpg", "--top", "3", "--json"])[1] == PredictConfig(
        run="run", images=("a.jpg", "b.jpg"), top=3, json=True
    )


@given(
    st.builds(
        TrainConfig,
        epochs=st.none() | st.integers(1, 1000),
        learning_rate=st.none() | st.floats(1e-8, 10),
        image_size=st.none() | st.tuples(st.integers(1, 999), st.integers(1, 999)),
        augment=st.sampled_from([None, "none", "strong"]),
        flip=st.none() | st.booleans(),
        balance=st.booleans(),
        clip_norm=st.none() | st.floats(0.1, 10),
        precision=st.sampled_from(["float32", "bfloat16", "float16"]),
        data=st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1),
        freeze=st.sampled_from(["none", "backbone", "0", "007"]),
        mixup=st.none() | st.floats(0, 2),
    )
)
def test_what_a_run_saves_reads_back_as_the_same_config(tmp_path_factory, config):
    run = Run(tmp_path_factory.mktemp("run"))
    run.write_config(asdict(config), {"keras": "3.15.1", "data_fingerprint": "0e12"})
    assert read("--config", str(run.path / "config.yaml")) == config


@pytest.mark.parametrize("key", ["run", "images"])
def test_yaml_cannot_hold_an_argument_by_place(tmp_path, key):
    path = tmp_path / "a.yaml"
    path.write_text(f"{key}: x")
    with pytest.raises(UsageError, match=f"no setting '{key}'"):
        yaml_flags(str(path), PredictConfig)
