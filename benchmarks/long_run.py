"""Memory of a run of 200 epochs, epoch by epoch: it must not grow.

    python -m benchmarks.long_run FOLDER

Trains a tiny model on digits with the ordinary command and reads the resident memory of the process
whenever an epoch has ended. Exit status 1 where it grows by more than 50 MB after the 20th.
"""

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

RUN = "--data digits --model vit_mu4 --batch-size 256 --epochs 200 --mixup 0.2 --ema 0.9"
LIMIT = 50


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "training", "train", *RUN.split(), "--output", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    sizes = {}
    while process.poll() is None:
        epoch = epochs_done(folder / "history.csv")
        sizes.setdefault(epoch, resident(process.pid))
        time.sleep(0.05)
    for epoch in (1, 5, 10, 20, 50, 100, 150, 199):
        near = max(known for known in sizes if known <= epoch)
        print(f"after epoch {near:3}: {sizes[near]:.0f} MB")
    settled = [size for epoch, size in sizes.items() if epoch >= 20 and size]
    grown = max(settled) - settled[0]
    print(f"most after the 20th epoch: {grown:+.0f} MB")
    sys.exit(int(process.returncode != 0 or grown > LIMIT))


def epochs_done(history: Path) -> int:
    return len(history.read_text().splitlines()) - 1 if history.is_file() else 0


def resident(pid: int) -> float:
    """MB; 0 of a process that is just ending."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


if __name__ == "__main__":
    main()
