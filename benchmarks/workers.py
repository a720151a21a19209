"""The same run on 1, 2 and 4 devices and on two processes, and with one of two workers killed.

    python -m benchmarks.workers FOLDER

54 steps of digits with a validation set whose last batch has a single image. Prints how far each
run ends from the one on one device, then how long the other worker lives on after one is killed,
and whether the restarted job equals the undisturbed one. Exit status 1 where it does not hold.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.kills import CHILD, STEP, same
from training.run import Run

# 257 digits are held out: twice 128 and one.
RUN = "--data digits --model vit_mu4 --batch-size 128 --epochs 6 --validation-fraction 0.179"
RUN += " --dropout 0 --mixup 0.2 --cutmix 0.5 --ema 0.9 --learning-rate 1e-3"
RUN += " --checkpoint-every 4"
PLACES = {
    "2 devices": "--strategy mirrored --devices 2",
    "4 devices": "--strategy mirrored --devices 4",
    "2 devices, 2 slices": "--strategy mirrored --devices 2 --accumulate 2",
}
COLUMNS = ("loss", "accuracy", "val_loss", "val_accuracy")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    alone = folder / "alone"
    finish([start(command(alone))])
    print("furthest from one device, any epoch  " + "".join(f"{name:>14}" for name in COLUMNS))
    right = True
    for name, flags in PLACES.items():
        finish([start([*command(folder / name), *flags.split()])])
        right &= compare(name, alone, folder / name)
    whole = folder / "2 processes"
    finish(cluster(command(whole)))
    right &= compare("2 processes", alone, whole)

    killed = folder / "killed"
    for victim in (1, 0):
        shutil.rmtree(killed, ignore_errors=True)
        seconds, message = kill_one(command(killed), victim, call=31)
        print(f"\nworker {victim} killed in step 31; after {seconds:.1f} s the other: {message}")
        finish(cluster([*command(killed), "--resume"]))
        equal = same(whole, killed)
        print(f"restarted with --resume: equal to the undisturbed run: {equal}", flush=True)
        right &= equal and seconds < 60
    sys.exit(not right)


def command(path: Path) -> list[str]:
    return ["train", *RUN.split(), "--output", str(path)]


def start(words: list[str], kill_at: int | None = None) -> subprocess.Popen:
    """One process of `keras-vit`, which kills itself at the end of step `kill_at`."""
    program = ["-m", "training"] if kill_at is None else ["-c", CHILD, STEP, str(kill_at)]
    return subprocess.Popen(
        [sys.executable, *program, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    )


def cluster(words: list[str], kill: dict[int, int] | None = None) -> list[subprocess.Popen]:
    """Two workers on loopback; `kill`: worker to the step in which it dies."""
    with socket.socket() as one, socket.socket() as other:  # both open: two different ports
        ports = [listen(one), listen(other)]
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    flags = ["--strategy", "multi_worker", "--cluster", hosts]
    return [start([*words, *flags, "--task", str(n)], (kill or {}).get(n)) for n in range(2)]


def listen(free: socket.socket) -> int:
    free.bind(("127.0.0.1", 0))
    return free.getsockname()[1]


def finish(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        _, errors = process.communicate(timeout=600)
        if process.returncode:
            sys.exit(f"exit status {process.returncode}: {errors}")


def kill_one(words: list[str], victim: int, call: int) -> tuple[float, str]:
    """(seconds until the other worker exits, the last line that it says)."""
    workers = cluster(words, {victim: call})
    dead, other = workers[victim], workers[1 - victim]
    dead.communicate(timeout=600)
    since = time.monotonic()
    _, errors = other.communicate(timeout=600)
    if dead.returncode != -signal.SIGKILL or other.returncode != 1:
        sys.exit(f"exit statuses {dead.returncode} and {other.returncode}: {errors}")
    return time.monotonic() - since, errors.strip().splitlines()[-1]


def compare(name: str, alone: Path, path: Path) -> bool:
    """Print the furthest of each column; whether the losses are within 1e-5."""
    pairs = list(zip(Run(alone).read_history(), Run(path).read_history(), strict=True))
    furthest = [max(abs(float(a[c]) - float(b[c])) for a, b in pairs) for c in COLUMNS]
    print(f"{name:37}" + "".join(f"{value:14.1e}" for value in furthest), flush=True)
    return max(furthest) <= 1e-5


if __name__ == "__main__":
    main()
