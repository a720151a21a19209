"""Kill a training run at 25 places, resume it, and compare with the run that was never killed.

    python -m benchmarks.kills FOLDER [--kills 25] [--strategy mirrored --devices 2]

A third of the kills hit a step in the middle of an epoch, a third the end of an epoch, a third the
writing of a checkpoint (before the file is flushed, before it is renamed, after). Prints a table;
exit status 1 if any weight, history row or best model differs.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from training import checkpoint
from training.run import Run

RUN = "--data digits --model vit_mu4 --batch-size 128 --epochs 4 --dropout 0.1 --drop-path 0.1"
RUN += " --ema 0.9 --early-stopping 3 --mixup 0.2 --checkpoint-every 4"
STEPS, EPOCHS = 9, 4
TIMES = {"images_per_second", "minutes_left", "data_wait", "mfu"}

# Runs `keras-vit train` and kills itself at the Nth call of a function: argv: place, N, words.
CHILD = """
import importlib, os, signal, sys
from training.cli import main
place, number, words = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
module, name = place.split(":")
owner = importlib.import_module(module)
*path, name = name.split(".")
for part in path:
    owner = getattr(owner, part)
function, calls = getattr(owner, name), 0
def counting(*args, **kwargs):
    global calls
    calls += 1
    if calls == number:
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*args, **kwargs)
setattr(owner, name, counting)
sys.exit(main(words))
"""
STEP = "training.callbacks:Checkpoints.on_train_batch_end"
EPOCH_END = "training.callbacks:Checkpoints.on_epoch_end"
BEST = "training.run:Run.save_model"
WRITING = ("numpy:savez", "os:fsync", "os:replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    config, more = parser.parse_known_args()
    config.folder.mkdir(parents=True, exist_ok=True)
    words = ["train", *RUN.split(), *more]
    whole = config.folder / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    finish(words, whole)
    print("kill  where                                                    call  steps kept  equal")
    draw, wrong = random.Random(config.seed), 0
    for number in range(config.kills):
        place, call = choose(number, draw)
        path = config.folder / "killed"
        shutil.rmtree(path, ignore_errors=True)
        child = [sys.executable, "-c", CHILD, place, str(call), *words, "--output", str(path)]
        status = quiet(child)
        kept = checkpoint.checkpoints(Run(path).checkpoints_path)
        kept = int(kept[-1].stem.removeprefix("step_")) if kept else 0
        finish([*words, "--resume"], path)
        equal = status == -signal.SIGKILL and same(whole, path)
        wrong += not equal
        print(f"{number + 1:4}  {place:55}  {call:4}  {kept:10}  {equal}", flush=True)
    print(f"{config.kills - wrong} of {config.kills} runs are bit-identical to the whole one")
    sys.exit(bool(wrong))


def choose(number: int, draw: random.Random) -> tuple[str, int]:
    """(function, its call) to die in."""
    if number % 3 == 0:
        return STEP, draw.randrange(1, STEPS * EPOCHS + 1)
    if number % 3 == 1:
        return draw.choice([EPOCH_END, EPOCH_END, BEST]), draw.randrange(1, EPOCHS)
    # Also the files of the run are flushed and renamed: 5 to 25 are amid the checkpoints.
    place = WRITING[number // 3 % 3]
    return place, draw.randrange(1, 9) if place == "numpy:savez" else draw.randrange(5, 20)


def quiet(command: list[str]) -> int:
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode not in (0, -signal.SIGKILL):
        sys.exit(f"{' '.join(command[3:])}\n{result.stdout}\n{result.stderr}")
    return result.returncode


def finish(words: list[str], path: Path) -> None:
    quiet([sys.executable, "-m", "training", *words, "--output", str(path)])


def same(one: Path, other: Path) -> bool:
    """Whether both ended, with the same last state, best model and history, bit for bit."""
    (a, facts), (b, other_facts) = (
        checkpoint.newest(Run(path).checkpoints_path) for path in (one, other)
    )
    weights = [Run(path).load_model().get_weights() for path in (one, other)]
    return (
        facts["finished"]
        and other_facts["finished"]
        and a.keys() == b.keys()
        and all(np.array_equal(a[name], b[name]) for name in a)
        and rows(one) == rows(other)
        and all(np.array_equal(x, y) for x, y in zip(*weights, strict=True))
    )


def rows(path: Path) -> list[dict]:
    """The history without what the clock decides."""
    history = Run(path).read_history()
    return [{name: v for name, v in row.items() if name not in TIMES} for row in history]


if __name__ == "__main__":
    main()
