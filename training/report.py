"""What people look at: tables of a model's scores and the picture of its confusion matrix."""

from collections.abc import Iterable

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from rich.table import Table

# Up to so many classes the picture has room for names on its axes, for counts in its cells.
NAMED, NUMBERED = 40, 15
SHOWN = 10  # rows of a table of classes


def console(stderr: bool = False) -> Console:
    """Where tables go. Names of classes and files are printed as they are, never as markup."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def progress(batches: Iterable, total: int, what: str) -> Iterable:
    """`batches`, with a progress bar on stderr if somebody is watching."""
    screen = console(stderr=True)
    return track(batches, what, total, console=screen, disable=not screen.is_terminal)


def print_scores(scores: dict) -> None:
    """The content of `metrics.json`: summary, weakest classes, commonest mistakes."""
    screen = console()
    screen.print(summary_table(scores))
    screen.print(class_table(scores["per_class"]))
    names = [row["class"] for row in scores["per_class"]]
    pairs = mistakes(np.array(scores["confusion_matrix"]), names)
    if pairs:
        screen.print(mistake_table(pairs))


def summary_table(scores: dict) -> Table:
    """Every figure of the whole, one a row; those that `scores` lacks are left out."""
    table = Table(title=f"{scores['num_images']} images, {scores['split']} of {scores['data']}")
    table.add_column("score")
    table.add_column("value", justify="right")
    for key, name, form in (
        ("top1", "top-1 accuracy", ".2%"),
        ("top5", "top-5 accuracy", ".2%"),
        ("real", "ImageNet-ReaL accuracy", ".2%"),
        ("precision", "precision, mean of classes", ".2%"),
        ("recall", "recall, mean of classes", ".2%"),
        ("f1", "F1, mean of classes", ".2%"),
        ("loss", "log loss (nats)", ".4f"),
        ("calibration_error", "calibration error", ".2%"),
        ("images_per_second", "images/s", ".0f"),
    ):
        if key in scores:
            table.add_row(name, format(scores[key], form))
    return table


def class_table(per_class: list[dict]) -> Table:
    """Precision, recall, F1 and number of images of the classes with the lowest F1."""
    rows = sorted(per_class, key=lambda row: -1 if row["f1"] is None else row["f1"])
    some = f" ({SHOWN} of {len(rows)})" if len(rows) > SHOWN else ""
    table = Table(title=f"Weakest classes{some}")
    table.add_column("class", overflow="fold")
    for name in ("precision", "recall", "F1", "images"):
        table.add_column(name, justify="right")
    for row in rows[:SHOWN]:
        figures = (row[key] for key in ("precision", "recall", "f1"))
        shares = ("-" if value is None else f"{value:.1%}" for value in figures)
        table.add_row(row["class"], *shares, str(row["support"]))
    return table


def mistakes(matrix: np.ndarray, class_names: list[str]) -> list[tuple[int, str, str]]:
    """(count, true class, predicted class) of every kind of mistake, the commonest first."""
    wrong = matrix - np.diag(np.diag(matrix))
    true, predicted = np.nonzero(wrong)
    order = np.argsort(-wrong[true, predicted], kind="stable")
    return [
        (int(wrong[i, j]), class_names[i], class_names[j])
        for i, j in zip(true[order], predicted[order], strict=True)
    ]


def mistake_table(pairs: list[tuple[int, str, str]]) -> Table:
    some = f" ({SHOWN} of {len(pairs)})" if len(pairs) > SHOWN else ""
    table = Table(title=f"Commonest mistakes{some}")
    table.add_column("images", justify="right")
    table.add_column("true class", overflow="fold")
    table.add_column("taken for", overflow="fold")
    for count, true, predicted in pairs[:SHOWN]:
        table.add_row(str(count), true, predicted)
    return table


def confusion_figure(matrix: np.ndarray, class_names: list[str], title: str) -> Figure:
    """The picture of a confusion matrix: shades are parts of a true class, numbers are images.

    A row without images stays gray. Shades go with the square root, so that rare mistakes show.
    """
    num_classes = len(class_names)
    support = matrix.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        parts = np.ma.masked_invalid(matrix / support)  # (K, K)
    named, numbered = num_classes <= NAMED, num_classes <= NUMBERED
    side = 3.6 + (0.5 * num_classes if numbered else 0.24 * num_classes if named else 6.4)
    # No pyplot: a figure of its own keeps no state and needs no screen.
    figure = Figure(figsize=(side + 1.2, side), dpi=150, layout="constrained")
    axes = figure.add_subplot(facecolor="lightgray")
    # Blues can be read without colour vision: it only gets darker.
    norm = PowerNorm(0.5, vmin=0, vmax=1)
    image = axes.imshow(parts, cmap="Blues", norm=norm, interpolation="nearest")
    bar = figure.colorbar(image, ax=axes, shrink=0.8, label="part of the true class")
    bar.set_ticks([0, 0.01, 0.05, 0.25, 0.5, 1])
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_title(title.replace("$", r"\$"), wrap=True)  # wrapping ignores parse_math=False
    axes.set(xlabel="predicted class", ylabel="true class")
    if named:
        _name_axes(axes, class_names)
    if numbered:
        _number_cells(axes, matrix, parts)
    return figure


def _name_axes(axes, class_names: list[str]) -> None:
    # A lone surrogate (a name that is no UTF-8) cannot be drawn; "$" must not start a formula.
    names = [name.encode("utf-8", "replace").decode() for name in class_names]
    names = [name if len(name) <= 20 else f"{name[:19]}…" for name in names]
    style = {"fontsize": 10 if len(names) <= NUMBERED else 8, "parse_math": False}
    places = range(len(names))
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(places, names, **style, **(turned if max(map(len, names)) > 3 else {}))
    axes.set_yticks(places, names, **style)


def _number_cells(axes, matrix: np.ndarray, parts: np.ndarray) -> None:
    for (row, column), count in np.ndenumerate(matrix):
        if count:
            color = "white" if parts[row, column] > 0.3 else "black"
            axes.text(column, row, count, ha="center", va="center", color=color, fontsize=9)
