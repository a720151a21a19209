"""A plan promises what a run then does, and writes nothing."""

import re

import pytest

import keras_vit
from training import cli
from training.checkpoint import checkpoints
from training.config import TrainConfig
from training.plan import activation_bytes
from training.run import Run

WORDS = ("train", "--data", "digits", "--model", "vit_mu2", "--batch-size", "128")


def plan_of(capsys, *words) -> dict[str, str]:
    assert cli.main([*WORDS, *words, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    return dict(
        re.split(r" {2,}", line, maxsplit=1) for line in lines if re.match(r"\w+ {2,}", line)
    )


@pytest.mark.parametrize("more", [(), ("--steps-per-execution", "2"), ("--on-nan", "rollback")])
def test_the_run_does_what_the_plan_says(tmp_path, capsys, more):
    words = ["--epochs", "2", "--checkpoint-every", "3", "--keep-checkpoints", "99", *more]
    path = tmp_path / "run"
    words += ["--output", str(path)]
    plan = plan_of(capsys, *words)
    assert not path.exists()
    assert cli.main([*WORDS, *words]) == 0
    run = Run.open(path)
    saved = checkpoints(run.checkpoints_path)
    assert plan["Checkpoints"].startswith(f"{len(saved)} will be saved, {len(saved)} kept")
    last = int(saved[-1].stem.split("_")[1])
    assert plan["Steps"].startswith(f"{last}: 2 epochs of {last // 2}, each 128 images")
    assert plan["Parameters"] == f"{run.load_model().count_params():,}"
    size = float(re.search(r"kept: ([\d.,]+) MB", plan["Checkpoints"])[1].replace(",", ""))
    assert size == pytest.approx(sum(p.stat().st_size for p in saved) / 1e6, abs=0.15, rel=0.5)


def test_slices_and_devices_share_the_batch(capsys):
    plan = plan_of(
        capsys, "--strategy", "mirrored", "--devices", "2", "--accumulate", "4", "--epochs", "1"
    )
    assert plan["Steps"].endswith("128 images = 2 devices x 4 slices x 16")
    assert "of 16 images" in plan["Memory"]


def test_it_tells_the_published_result(capsys):
    words = ("--recipe", "simple-vit", "--model", "vit_mu2", "--warmup-epochs", "1")
    plan = plan_of(capsys, *words, "--image-size", "8", "--batch-size", "64")
    assert "76.5" in plan["Expected"] and "Beyer" in plan["Source"]


@pytest.mark.parametrize(
    ("name", "images", "measured"),
    [("vit_s16", 32, 4343 - 265), ("vit_s16", 16, 2030 - 265), ("vit_ti16", 16, 1000 - 69)],
)
def test_the_estimate_is_near_what_was_measured(name, images, measured):
    """benchmarks/memory.py, MB above the built model less gradients and AdamW's two moments."""
    model = keras_vit.find_config(name, image_size=224)
    found = activation_bytes(TrainConfig(), model, images) / 1e6
    assert found == pytest.approx(measured, rel=0.12)


def test_recomputing_needs_less():
    found = [
        activation_bytes(TrainConfig(), keras_vit.find_config("vit_s16", remat=remat), 8)
        for remat in ("none", "attention", "block")
    ]
    assert found[0] > found[1] > 2 * found[2]


def test_smaller_images_of_the_first_stages_cost_less(capsys):
    words = ("--epochs", "2")
    spent = [
        float(re.search(r"training ([\d.e-]+) GFLOPs", plan["Compute"])[1])
        for plan in (plan_of(capsys, *words), plan_of(capsys, *words, "--progressive", "4"))
    ]
    assert 0.5 * spent[0] < spent[1] < 0.8 * spent[0]
