"""What people look at: the table of a run's scores and the picture of its confusion matrix."""

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

NAMED = 30  # classes up to which axes carry names
NUMBERED = 15  # classes up to which cells carry counts


def print_metrics(metrics: dict, console: Console | None = None) -> None:
    """The summary, the weakest classes and the commonest mix-ups of `metrics.json`'s content."""
    console = console or Console()
    summary = Table(title=f"{metrics['num_images']} {metrics['split']} images of {metrics['data']}")
    summary.add_column("score")
    summary.add_column("value", justify="right")
    for key, name in (("top1", "top-1 accuracy"), ("top5", "top-5 accuracy")):
        if key in metrics:
            summary.add_row(name, f"{metrics[key]:.2%}")
    if "real" in metrics:
        summary.add_row("ImageNet-ReaL accuracy", f"{metrics['real']:.2%}")
    summary.add_row("log loss (nats)", f"{metrics['loss']:.4f}")
    summary.add_row("calibration error", f"{metrics['calibration_error']:.2%}")
    summary.add_row("images/s", f"{metrics['images_per_second']:.0f}")
    console.print(summary)

    rows = sorted(metrics["per_class"].items(), key=lambda item: _lowest_first(item[1]["f1"]))
    shown = rows if len(rows) <= 10 else rows[:10]
    title = "Classes, the weakest first" + (
        "" if len(shown) == len(rows) else f" (10 of {len(rows)})"
    )
    table = Table(title=title)
    table.add_column("class")
    for name in ("precision", "recall", "F1", "images"):
        table.add_column(name, justify="right")
    for name, row in shown:
        figures = [_percent(row[key]) for key in ("precision", "recall", "f1")]
        table.add_row(name, *figures, str(row["support"]))
    console.print(table)

    pairs = mix_ups(np.array(metrics["confusion_matrix"]), list(metrics["per_class"]))
    for count, true, predicted in pairs[:3]:
        console.print(f"{count} x {true} taken for {predicted}", markup=False, highlight=False)


def mix_ups(matrix: np.ndarray, class_names: list[str]) -> list[tuple[int, str, str]]:
    """(count, true class, predicted class) of every kind of mistake, the commonest first."""
    wrong = matrix - np.diag(np.diag(matrix))
    pairs = zip(*np.nonzero(wrong), strict=True)
    found = [(int(wrong[i, j]), class_names[i], class_names[j]) for i, j in pairs]
    return sorted(found, key=lambda pair: -pair[0])


def _lowest_first(value: float | None) -> float:
    return -1.0 if value is None else value


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def save_confusion_matrix(matrix: np.ndarray, class_names: list[str], title: str, path: Path):
    """Write the picture: shades are parts of each true class, numbers are images."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    count = len(class_names)
    support = matrix.sum(axis=1, keepdims=True)
    parts = np.divide(matrix, support, out=np.zeros(matrix.shape), where=support > 0)
    side = min(12.0, 4.0 + 0.3 * min(count, NAMED))
    figure, axes = plt.subplots(figsize=(side + 1.5, side), layout="constrained")
    image = axes.imshow(parts, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    figure.colorbar(image, ax=axes, label="part of the true class", shrink=0.8)
    axes.set(xlabel="predicted", ylabel="true", title=title)
    if count <= NAMED:
        names = [name if len(name) <= 20 else name[:19] + "…" for name in class_names]
        axes.set_xticks(range(count), names, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(count), names)
    if count <= NUMBERED:
        for (row, column), number in np.ndenumerate(matrix):
            color = "white" if parts[row, column] > 0.5 else "black"
            axes.text(column, row, number, ha="center", va="center", color=color, fontsize=9)
    figure.savefig(path, dpi=120, format="png")
    plt.close(figure)
