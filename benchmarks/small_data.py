"""What the small-data recipe is worth: accuracy on test images against the plain defaults.

    python -m benchmarks.small_data IMAGES FOLDER [--seeds 3]

IMAGES is a class folder with test images of its own (train/, test/). A run that is there already is
gone on with, so that the study may be stopped and started. Prints a row a run, then the means.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

CASES = {"defaults": [], "small-data": ["--recipe", "small-data"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    config = parser.parse_args()
    found = {name: [] for name in CASES}
    print("settings    seed  top-1 of the test images")
    for seed in range(config.seeds):
        for name, flags in CASES.items():
            run = config.folder / f"{name}-{seed}"
            words = ["--data", f"folder:{config.images}", "--seed", str(seed), *flags]
            keras_vit("train", *words, "--output", str(run), "--resume")
            keras_vit("evaluate", str(run), "--split", "test")
            top1 = json.loads((run / "metrics.json").read_text())["top1"]
            found[name].append(top1)
            print(f"{name:10}  {seed:4}  {top1:.2%}", flush=True)
    for name, values in found.items():
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{name:10}  mean  {statistics.mean(values):.2%}, standard deviation {spread:.2%}")


def keras_vit(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "training", *words], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()
