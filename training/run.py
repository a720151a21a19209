"""The run folder: the one place that knows its file names, and writes them whole or not at all."""

import csv
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from keras_vit.config import UserError


@dataclass(frozen=True)
class Run:
    """A folder that `keras-vit train` wrote; `saved_models/README.md` lists its files."""

    path: Path

    @classmethod
    def create(cls, path: str | Path, overwrite: bool = False) -> "Run":
        """A new, empty run folder. Raises: UserError: it exists, or cannot be made."""
        path = Path(path)
        if not cls(path).is_empty():
            check_free(path, overwrite)
        try:
            if path.exists() and any(path.iterdir()):
                shutil.rmtree(path)
            (path / "checkpoints").mkdir(parents=True)
        except OSError as error:
            reason = error.strerror or error
            raise UserError(f"output={str(path)!r} cannot be made: {reason}") from error
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> "Run":
        """An existing run. Raises: UserError: it is none, or it has no trained model yet."""
        run = cls(Path(path))
        if not run.path.is_dir():
            raise UserError(f"run folder {str(path)!r} does not exist")
        for name in ("config.yaml", "preprocess.json", "labels.txt", "model.keras"):
            if not (run.path / name).is_file():
                raise UserError(f"{str(path)!r} is no finished run: {name} is missing")
        return run

    def has_begun(self) -> bool:
        """Whether there is a run to go on with."""
        return (self.path / "config.yaml").is_file()

    def is_empty(self) -> bool:
        """Whether nothing is there but what a run that was killed in its first moment leaves."""
        if self.path.exists() and not self.path.is_dir():
            return False
        remains = {self.checkpoints_path, self.path / ".config.yaml.tmp"}
        return remains.issuperset(self.path.rglob("*"))

    @property
    def model_path(self) -> Path:
        return self.path / "model.keras"

    @property
    def checkpoints_path(self) -> Path:
        return self.path / "checkpoints"

    @property
    def history_path(self) -> Path:
        return self.path / "history.csv"

    @property
    def logs_path(self) -> Path:
        return self.path / "logs"

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.json"

    @property
    def confusion_path(self) -> Path:
        return self.path / "confusion_matrix.png"

    def write_config(self, settings: dict, made_with: dict) -> None:
        """Every setting, and under `made_with` the versions and the data's fingerprint."""
        plain = {key: list(v) if isinstance(v, tuple) else v for key, v in settings.items()}
        text = yaml.safe_dump(plain | {"made_with": made_with}, sort_keys=False, allow_unicode=True)
        self._write("config.yaml", text)

    def read_config(self) -> dict:
        return yaml.safe_load((self.path / "config.yaml").read_text(encoding="utf-8"))

    def read_history(self) -> list[dict[str, str]]:
        """history.csv, a row an epoch."""
        with self.history_path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def write_history(self, rows: list[dict]) -> None:
        """history.csv; a column for each name that any row has."""
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
        self._write("history.csv", text.getvalue())

    def write_labels(self, class_names: Iterable[str]) -> None:
        names = list(class_names)
        for name in names:
            if "\n" in name or "\r" in name:
                raise UserError(f"class name {name!r} holds a line break; rename its folder")
        self._write("labels.txt", "".join(f"{name}\n" for name in names))

    def read_labels(self) -> list[str]:
        text = (self.path / "labels.txt").read_text(encoding="utf-8", errors="surrogateescape")
        return text.split("\n")[:-1]

    def write_preprocess(self, values: dict) -> None:
        self._write("preprocess.json", json.dumps(values, indent=2) + "\n")

    def read_preprocess(self) -> dict:
        path = self.path / "preprocess.json"
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise UserError(f"{path} is no JSON: {error}") from error

    def write_metrics(self, values: dict) -> None:
        """metrics.json: a line for each value, and for each row of a table."""
        self._write("metrics.json", json_lines(values) + "\n")

    def write_probe(self, values: dict) -> None:
        """probe.json: what the run's frozen features are worth."""
        self._write("probe.json", json_lines(values) + "\n")

    def write_picture(self, path: Path, draw: Callable[[Path], None]) -> None:
        """A picture that `draw` writes to the path it is given."""
        temporary = path.with_name(f".{path.name}.tmp")
        draw(temporary)
        self._replace(temporary, path.name)

    def write_skipped(self, skipped: Iterable[tuple[str, str]]) -> None:
        """skipped_files.csv: path and reason of each file that was left out."""
        temporary = self.path / ".skipped_files.csv.tmp"
        with temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["path", "reason"])
            writer.writerows(skipped)
        self._replace(temporary, "skipped_files.csv")

    def save_model(self, model, path: Path) -> None:
        """Write a Keras model under a temporary name, then rename: a kill leaves the old one."""
        temporary = path.with_name(f".{path.stem}.tmp.keras")
        model.save(temporary)
        self._replace(temporary, path.relative_to(self.path).as_posix())

    def load_model(self):
        """The best model, not compiled. Raises: UserError: broken, or not of this run."""
        import keras

        import keras_vit  # noqa: F401, registers the layers

        try:
            model = keras.saving.load_model(self.model_path, compile=False)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise UserError(f"{self.model_path} cannot be loaded: {first_line(error)}") from error
        preprocess, num_classes = self.read_preprocess(), len(self.read_labels())
        if model.output_shape[-1] != num_classes:
            raise UserError(
                f"labels.txt has {num_classes} classes, {self.model_path} {model.output_shape[-1]}"
            )
        shape = (*preprocess["image_size"], preprocess["channels"])
        if model.input_shape[1:] != shape:
            raise UserError(
                f"preprocess.json gives {shape}, {self.model_path} takes {model.input_shape[1:]}"
            )
        return model

    def _write(self, name: str, text: str) -> None:
        temporary = self.path / f".{name}.tmp"
        temporary.write_text(text, encoding="utf-8", errors="surrogateescape")
        self._replace(temporary, name)

    def _replace(self, temporary: Path, name: str) -> None:
        put_in_place(temporary, self.path / name)


def put_in_place(temporary: Path, path: Path) -> None:
    """Flush a whole file, then give it its name: a kill leaves the old one."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)


def json_lines(values: dict) -> str:
    """JSON that people can read too: rows of tables stay on one line."""
    texts = []
    for key, value in values.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list):
            rows = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in value)
            text = f"[\n{rows}\n  ]"
        texts.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(texts) + "\n}"


def first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def check_free(path: str | Path, overwrite: bool) -> None:
    """Raises: UserError: no new run may be written there, so that nothing is lost."""
    path = Path(path)
    if not path.exists() or path.is_dir() and not any(path.iterdir()):
        return
    if not overwrite:
        raise UserError(f"output={str(path)!r} exists; choose another folder or add --overwrite")
    if not Run(path).has_begun():
        raise UserError(f"output={str(path)!r} is no run folder; it is not overwritten")


def unused_path(name: str, parent: str | Path = "saved_models") -> Path:
    """The first of parent/name, parent/name-2, ... that does not exist."""
    path, number = Path(parent) / name, 2
    while path.exists():
        path, number = Path(parent) / f"{name}-{number}", number + 1
    return path
