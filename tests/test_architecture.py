"""The shape of the house: which way imports point, how long a module is, that tests are found."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    path.relative_to(ROOT)
    for name in ("keras_vit", "training")
    for path in (ROOT / name).rglob("*.py")
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
# Read by tests, hold none themselves.
HELPERS = {"check_layer.py", "keras_vit/reference.py", "keras_vit/models.py"}
# Longer than 300 lines for a reason: a table of data (all settings of all commands).
LONG = {"training/config.py"}


def test_imports_point_one_way():
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def imports(path):
    """Every module that a file imports, wherever in it."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize(
    "path", [path for path in MODULES if path.parts[0] == "keras_vit"], ids=str
)
def test_the_library_is_keras_only(path):
    allowed = {"keras", "keras_vit", "numpy"} | sys.stdlib_module_names
    if path.parent.name == "weights":  # what their formats need
        allowed |= {"h5py", "huggingface_hub", "ml_dtypes", "safetensors"}
    if path.name == "torch_file.py":
        allowed |= {"torch"}
    used = {name.split(".")[0] for name in imports(path)}
    assert used <= allowed
    assert not [name for name in imports(path) if name.startswith("keras.src")]


COMMANDS = {"train", "evaluate", "predict", "tfrecord", "models", "weights", "features"}
COMMANDS |= {"evaluate_transfer"}


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[0] == "training"], ids=str)
def test_no_command_is_imported_by_another(path):
    if path == Path("training/cli.py"):  # starts them
        return
    used = {name.removeprefix("training.") for name in imports(path) if "training." in name}
    assert not used & COMMANDS


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_has_one_job(path):
    lines = len((ROOT / path).read_text().splitlines())
    assert lines <= 300 or str(path) in LONG


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_says_what_it_is(path):
    text = (ROOT / path).read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text))


def test_every_test_file_is_collected():
    for path in TESTS:
        name = str(path.relative_to(ROOT / "tests"))
        functions = [
            node.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
        ]
        if path.name.startswith("test_"):
            assert functions, f"{name} tests nothing"
        elif path.name != "conftest.py":
            assert name in HELPERS and not functions, f"{name} is not collected"


def test_no_test_hides_another_of_the_same_name():
    for path in TESTS:
        for scope in ast.walk(ast.parse(path.read_text())):
            if isinstance(scope, (ast.Module, ast.ClassDef)):
                names = [
                    n.name for n in scope.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))
                ]
                assert len(names) == len(set(names)), path


@pytest.mark.parametrize("path", [path for path in MODULES if path.name != "__init__.py"], ids=str)
def test_every_module_of_the_library_has_its_test_file(path):
    if path.parts[0] != "keras_vit" or path.name == "composite.py":  # by test_every_layer.py
        return
    assert (ROOT / "tests" / path.parent / f"test_{path.name}").is_file()
