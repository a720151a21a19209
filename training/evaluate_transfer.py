"""`keras-vit evaluate-transfer WEIGHTS --data A B C`: one table over many data sets.

Each run is a child process with the public commands, so that every fine-tuning leaves an ordinary
run folder, memory is given back, and what is finished is not done again after a kill.
"""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

from keras_vit.config import UserError
from training.config import EvaluateTransferConfig
from training.data.vtab import VTAB
from training.probe import Scores, confidence

COLUMNS = ("data", "seed", "accuracy", "num_images")


def main(config: EvaluateTransferConfig) -> int:
    names = [name for spec in config.data for name in (VTAB if spec == "vtab" else (spec,))]
    folder = Path(config.output)
    check_same_experiment(config, folder)
    rows, failures = [], {}
    for data in names:
        try:
            rows += measure(config, data, folder)
        except ChildFailed as failure:
            failures[data] = str(failure)
            print(f"{data}: {failure}", file=sys.stderr)
        write_tables(config, folder, rows, failures)
    print((folder / "transfer.md").read_text(), end="")
    print(f"Written: {folder / 'transfer.md'}, transfer.json and results.csv")
    return 2 if failures else 0


class ChildFailed(Exception):
    """A command that did not end well; the message is its last line."""


def check_same_experiment(config: EvaluateTransferConfig, folder: Path) -> None:
    """Raises: UserError: the folder holds runs made with other settings, or is something else."""
    plain = {key: value for key, value in vars(config).items() if key not in ("data", "output")}
    plain = json.loads(json.dumps(plain))
    path = folder / "experiment.json"
    if not path.is_file():
        if folder.exists() and any(folder.iterdir()):
            raise UserError(f"output={config.output!r} is not empty, and no transfer experiment")
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")
        return
    before = json.loads(path.read_text(encoding="utf-8"))
    for key in plain:
        if plain[key] != before.get(key):
            raise UserError(
                f"output={config.output!r} was made with {key}={before.get(key)!r}, not"
                f" {plain[key]!r}; choose another folder"
            )


def measure(config: EvaluateTransferConfig, data: str, folder: Path) -> list[dict]:
    """The rows of one data set. Raises: ChildFailed."""
    run = folder / re.sub(r"[^\w.-]+", "-", data).strip("-")
    if config.method != "finetune":
        result = probe(config, data, run)
        return [
            {"data": data, "seed": seed, "accuracy": value, "num_images": result["num_images"]}
            for seed, value in enumerate(result["accuracies"])
        ]
    rows = []
    for seed in range(config.seeds):
        scores = finetune(config, data, run.with_name(f"{run.name}-seed{seed}"), seed)
        found = {"accuracy": scores["top1"], "num_images": scores["num_images"]}
        rows.append({"data": data, "seed": seed, **found})
    return rows


def probe(config: EvaluateTransferConfig, data: str, run: Path) -> dict:
    path = run.with_name(f"{run.name}.json")
    if not path.is_file():
        words = ["evaluate", config.weights, "--data", data, "--probe", config.method, "--json"]
        words += optional(config, "data_dir", "shots", "image_size", "batch_size")
        output = child([*words, "--seeds", str(config.seeds)])
        path.write_text(output.strip().splitlines()[-1] + "\n", encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def finetune(config: EvaluateTransferConfig, data: str, run: Path, seed: int) -> dict:
    if not (run / "metrics.json").is_file():
        words = ["train", "--data", data, "--weights", config.weights, "--seed", str(seed)]
        words += ["--recipe", config.recipe, "--output", str(run), "--overwrite"]
        child(words + optional(config, "data_dir", "image_size", "epochs", "batch_size"))
        child(["evaluate", str(run)])
    return json.loads((run / "metrics.json").read_text(encoding="utf-8"))


def optional(config: EvaluateTransferConfig, *names: str) -> list[str]:
    """Flags for the settings that are given."""
    words = []
    for name in names:
        value = getattr(config, name)
        if value is not None:
            value = "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words += [f"--{name.replace('_', '-')}", value]
    return words


def child(words: list[str]) -> str:
    """The output of `keras-vit WORDS`. Raises: ChildFailed: its last line on stderr."""
    print("keras-vit " + " ".join(words), flush=True)
    command = [sys.executable, "-m", "training", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise ChildFailed(lines[-1])
    return done.stdout


def write_tables(config, folder: Path, rows: list[dict], failures: dict[str, str]) -> None:
    """results.csv, a row a run; transfer.json and transfer.md, a row a data set."""
    table = summary(rows)
    with (folder / "results.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    content = {"weights": config.weights, "method": config.method, "table": table}
    text = json.dumps(content | {"failures": failures}, indent=2, ensure_ascii=False)
    (folder / "transfer.json").write_text(text + "\n", encoding="utf-8")
    lines = [
        f"# {config.weights}: {config.method}",
        "",
        "| data | images | runs | accuracy | 95 % interval |",
        "|---|---|---|---|---|",
    ]
    for row in table:
        around = "-" if row["interval"] is None else f"± {row['interval']:.2%}"
        cells = (row["data"], row["num_images"], row["runs"], f"{row['accuracy']:.2%}", around)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += [f"| {data} | failed: {reason} | | | |" for data, reason in failures.items()]
    (folder / "transfer.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def summary(rows: list[dict]) -> list[dict]:
    """Mean and interval of each data set, then of the mean over all of them."""
    by_data: dict[str, list[dict]] = {}
    for row in rows:
        by_data.setdefault(row["data"], []).append(row)
    table = []
    for data, some in by_data.items():
        scores = Scores(tuple(row["accuracy"] for row in some))
        table.append(
            {
                "data": data,
                "num_images": some[0]["num_images"],
                "runs": len(some),
                "accuracy": scores.mean,
                "interval": scores.interval,
            }
        )
    if len(table) > 1:
        # A run of every data set with the same seed is one measurement of the mean.
        runs = min(row["runs"] for row in table)
        means = [
            sum(some[seed]["accuracy"] for some in by_data.values()) / len(by_data)
            for seed in range(runs)
        ]
        table.append(
            {
                "data": "mean of all",
                "num_images": sum(row["num_images"] for row in table),
                "runs": runs,
                "accuracy": sum(row["accuracy"] for row in table) / len(table),
                "interval": confidence(means),
            }
        )
    return table
