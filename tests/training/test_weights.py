"""`keras-vit weights` as a user runs it, and training that starts from a weight file."""

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

import keras_vit
from keras_vit import create_model, from_weights
from tests.check_layer import images_like, randomise
from training import cli
from training.run import Run


@pytest.fixture(scope="module")
def npz(tmp_path_factory):
    """A random tiny model with a head of 7 classes, 16 pixels."""
    path = tmp_path_factory.mktemp("weights") / "mu.npz"
    model = randomise(create_model("vit_mu4", image_size=16, num_classes=7))
    keras_vit.save_weights(model, path, "google")
    return path


def run(capsys, *words):
    status = cli.main([str(word) for word in words])
    return status, capsys.readouterr()


def test_inspect_says_what_a_file_is(shared, capsys):
    path = shared / "weights/dinov2_vits14_backbone_fp16.safetensors"
    status, printed = run(capsys, "weights", "inspect", path)
    assert status == 0
    for words in (
        "huggingface: Hugging Face ViT, DeiT, Dinov2",
        "vit_s14 (layer_scale=1.0, gelu=erf)",
        f"{sum(array.size for array in load_file(path).values()):,}",
        "518x518 pixels, patches 14x14, grid 37x37",
        "no head",
        "mean [0.485, 0.456, 0.406]",
        "sha256",
    ):
        assert words in printed.out


def test_convert_there_and_back(npz, tmp_path, capsys):
    folder, back = tmp_path / "hub", tmp_path / "back.npz"
    assert run(capsys, "weights", "convert", npz, folder, "--to", "huggingface")[0] == 0
    assert run(capsys, "weights", "convert", folder, back, "--to", "google")[0] == 0
    ours, theirs = np.load(npz), np.load(back)
    assert set(ours) == set(theirs)
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name])


def test_convert_notes_what_the_other_code_computes(npz, shared, tmp_path, capsys):
    path = shared / "reference/huggingface/vit"
    words = ("weights", "convert", path, tmp_path / "x.npz", "--to", "google")
    status, printed = run(capsys, *words)
    assert status == 0
    assert "Note: format=google: its code computes with gelu=tanh, not this" in printed.out
    status, printed = run(capsys, *words)
    assert status == 2
    assert "x.npz exists; choose another name or add --overwrite" in printed.err
    assert run(capsys, *words, "--overwrite")[0] == 0


@pytest.mark.parametrize(
    "words, message",
    [
        ("inspect", "the following arguments are required: PATH..."),
        ("look a.npz", "action='look' must be inspect or convert"),
        ("inspect a b", "inspect needs one path, not 2"),
        ("convert a --to timm", "convert needs two paths, FROM and TO, not 1"),
        ("convert a b", "convert needs --to google, timm, huggingface, torchvision or keras"),
        ("inspect nothing.npz", "weights 'nothing.npz' do not exist"),
    ],
)
def test_mistakes_are_one_line(words, message, capsys):
    status, printed = run(capsys, "weights", *words.split())
    assert status == 2
    assert message in printed.err
    assert printed.err.count("\n") == 1


def fine_tuned(npz, path, *words):
    flags = ("--data", "digits", "--weights", npz, "--epochs", 1, "--output", path, *words)
    return cli.main(["train", *map(str, flags)])


def test_a_run_starts_from_weights_and_says_what_became_of_them(npz, tmp_path, capsys):
    assert fine_tuned(npz, tmp_path / "run", "--learning-rate", 1e-9, "--image-size", 8) == 0
    printed = capsys.readouterr().out
    assert "mu.npz (google): " in printed
    assert "grid 4x4 to 2x2, bilinear_corners" in printed
    assert "3 to 1 channels" in printed
    assert "the file has 7 classes, the model 10" in printed
    model, before = Run.open(tmp_path / "run").load_model(), from_weights(npz)
    ours, theirs = (m.get_layer("block_00").mlp.expand.kernel for m in (model, before))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_its_preprocessing_travels_with_it(npz, tmp_path):
    hub = tmp_path / "hub"
    preprocessing = {
        "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.4, 0.4], "resize": "squash", "crop_fraction": 1.0,
        "interpolation": "bilinear",
    }  # fmt: skip
    keras_vit.save_weights(from_weights(npz), hub, "huggingface", preprocessing)
    assert fine_tuned(hub, tmp_path / "run") == 0
    run = Run.open(tmp_path / "run")
    preprocess = run.read_preprocess()
    assert preprocess["mean"] == [pytest.approx(0.2)]  # digits are gray
    assert (preprocess["resize"], preprocess["interpolation"]) == ("squash", "bilinear")
    assert preprocess["image_size"] == [16, 16]
    config = run.read_config()
    assert len(config["made_with"]["weights_sha256"]) == 64
    # The run is itself a weight file that knows its preprocessing.
    known = keras_vit.open_weights(tmp_path / "run").preprocessing
    assert known["resize"] == "squash"


def test_a_runs_own_config_repeats_it(npz, tmp_path):
    assert fine_tuned(npz, tmp_path / "a", "--recipe", "paper-finetune") == 0
    config = tmp_path / "a/config.yaml"
    assert yaml.safe_load(config.read_text())["recipe"] == "paper-finetune"
    words = ("train", "--config", config, "--output", tmp_path / "b")
    assert cli.main([str(word) for word in words]) == 0
    ours, theirs = (Run.open(tmp_path / name).load_model() for name in "ab")
    for one, other in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_trained_run_goes_out_to_timm(npz, tmp_path, capsys):
    assert fine_tuned(npz, tmp_path / "run") == 0
    out = tmp_path / "timm.safetensors"
    assert run(capsys, "weights", "convert", tmp_path / "run", out, "--to", "timm")[0] == 0
    assert load_file(out)["head.weight"].shape == (10, 32)
    images = images_like((2, 16, 16, 1))
    model = Run.open(tmp_path / "run").load_model()
    np.testing.assert_array_equal(model(images), from_weights(out)(images))


@pytest.mark.parametrize(
    "words, message",
    [
        ("--weights nothing.npz", "weights 'nothing.npz' do not exist"),
        ("--weights {npz} --model vit_ti4", "does not fit the model (the file's model has hidden"),
        ("--recipe large", "recipe='large' is unknown; there are augreg-light1"),
        ("--weights {npz} --image-size 10", "a height of 8 or 12 would fit"),
    ],
)
def test_mistakes_of_fine_tuning_write_nothing(words, message, npz, tmp_path, capsys):
    words = words.format(npz=npz).split()
    status = cli.main(["train", "--data", "digits", "--output", str(tmp_path / "run"), *words])
    assert status == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
