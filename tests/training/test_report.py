"""Tables and the picture, for two classes and for a thousand, with any names."""

import io

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from training import report


def scores(num_classes: int) -> dict:
    return {
        "data": "folder:[bold]x",
        "split": "test",
        "num_images": 7,
        "images_per_second": 12.34,
        "top1": 0.5,
        "loss": 1.25,
        "calibration_error": 0.125,
        "precision": 0.5,
        "recall": 0.25,
        "f1": 0.3,
        "per_class": [
            {"class": f"[red]{i}", "precision": None, "recall": 0.0, "f1": i / 100, "support": i}
            for i in range(num_classes)
        ],
        "confusion_matrix": np.ones((num_classes, num_classes), int).tolist(),
    }


def texts(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def ticks(figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_xticklabels()]


def pixels(figure) -> np.ndarray:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def test_few_classes_have_names_and_counts():
    figure = report.confusion_figure(np.array([[3, 0], [1, 2]]), ["ant", "bee"], "a title")
    assert texts(figure) == ["3", "1", "2"]  # an empty cell says nothing
    assert ticks(figure) == ["ant", "bee"]
    assert figure.axes[0].get_title() == "a title"


@pytest.mark.parametrize("count, has_names, has_counts", [(15, 1, 1), (16, 1, 0), (41, 0, 0)])
def test_what_has_room(count, has_names, has_counts):
    names = [f"class {i}" for i in range(count)]
    figure = report.confusion_figure(np.eye(count, dtype=int), names, "title")
    assert bool(texts(figure)) == has_counts
    assert (ticks(figure) == names) == has_names


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_the_picture_can_be_written(count):
    file = io.BytesIO()
    names = [str(i) for i in range(count)]
    report.confusion_figure(np.eye(count, dtype=int), names, "title").savefig(file, format="png")
    with Image.open(file) as image:
        assert min(image.size) >= 600


def test_every_class_of_a_thousand_keeps_a_pixel():
    figure = report.confusion_figure(np.eye(1000, dtype=int), [""] * 1000, "")
    pixels(figure)  # the layout is made while drawing
    box = figure.axes[0].get_window_extent()
    assert min(box.width, box.height) >= 1000


def test_names_are_no_formulas_and_need_not_be_utf8():
    names = ["$\\frac{$", "a_b^c", "\udcff", "x" * 50]
    figure = report.confusion_figure(np.eye(4, dtype=int), names, "100 $\\frac{$")
    assert pixels(figure).size  # drawing parses formulas
    assert ticks(figure)[:2] == names[:2]
    assert ticks(figure)[3] == "x" * 19 + "…"


def test_shades_are_parts_of_the_true_class_and_an_empty_row_is_gray():
    figure = report.confusion_figure(np.array([[1, 3], [0, 0]]), ["a", "b"], "")
    shades = figure.axes[0].images[0].get_array()
    np.testing.assert_array_equal(shades[0], [0.25, 0.75])
    assert shades.mask[1].all()


def test_mistakes_are_sorted_and_leave_the_diagonal_out():
    matrix = np.array([[9, 1, 0], [5, 9, 0], [0, 2, 9]])
    assert report.mistakes(matrix, ["a", "b", "c"]) == [
        (5, "b", "a"),
        (2, "c", "b"),
        (1, "a", "b"),
    ]
    assert report.mistakes(np.diag([1, 2]), ["a", "b"]) == []


def test_tables_print_names_as_they_are_and_the_weakest_first(capsys):
    report.print_scores(scores(30))
    text = capsys.readouterr().out
    assert "folder:[bold]x" in text
    lines = [line for line in text.splitlines() if "[red]" in line]
    assert "[red]0 " in lines[0] and " - " in lines[0]
    assert len([line for line in lines if " - " in line]) == 10 and "(10 of 30)" in text
    assert "top-5" not in text and "ReaL" not in text


def test_no_table_of_mistakes_where_there_are_none(capsys):
    report.print_scores(scores(2) | {"confusion_matrix": [[1, 0], [0, 1]], "real": 0.5})
    text = capsys.readouterr().out
    assert "mistakes" not in text
    assert "ImageNet-ReaL accuracy" in text and "50.00%" in text


def test_progress_is_silent_where_nobody_watches(capsys):
    assert list(report.progress(iter("abc"), 3, "Images")) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")
