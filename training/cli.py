"""`keras-vit <command>`: flags and YAML become a command's config, mistakes become one line.

YAML values are turned into flags and go through the same parser, so both are checked alike.
Nothing heavy is imported before a command really runs.
"""

import argparse
import difflib
import importlib
import os
import sys
import tempfile
import types
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Literal, Union, get_args, get_origin, get_type_hints

from training.config import COMMANDS

# A run's config.yaml keeps these beside the settings; they say how it was made.
INFORMATION = ("made_with",)


class UsageError(Exception):
    """A command line or YAML file that cannot be read; the message says what would be right."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UsageError(f"{self.prog}: {message}")


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    """Run one command. Returns the exit status: 0, 2 for a user's mistake, 130 for Ctrl-C."""
    debug = "--debug" in argv
    try:
        command, config = parse([word for word in argv if word != "--debug"])
        module = import_quietly(f"training.{command}")
        from keras_vit.config import UserError
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    try:
        return module.main(config) or 0
    except UserError as error:
        if debug:
            raise
        print(f"keras-vit {command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if debug:
            raise
        print(f"keras-vit {command}: stopped by Ctrl-C", file=sys.stderr)
        return 130


def import_quietly(name: str):
    """Import a module without TensorFlow's start-up notes; if it fails, they are shown."""
    # 3: of a broken JPEG or a missing CPU feature it would log an "error" beside our own line.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as notes:
        os.dup2(notes.fileno(), 2)
        try:
            return importlib.import_module(name)
        except BaseException:
            notes.seek(0)
            os.write(terminal, notes.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def parse(argv: list[str]):
    """The command's name and its config. Raises: UsageError."""
    parser = Parser(prog="keras-vit", description="Vision Transformers for Keras.")
    parser.add_argument("--version", action="version", version=_version())
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, config_class in COMMANDS.items():
        command = subparsers.add_parser(
            name, help=config_class.__doc__, description=config_class.__doc__, allow_abbrev=False
        )
        add_fields(command, config_class)
    if not argv:
        parser.print_help()
        raise SystemExit(0)
    if argv[0] in COMMANDS:
        argv = [argv[0], *yaml_flags(argv, COMMANDS[argv[0]]), *argv[1:]]
    elif not argv[0].startswith("-"):
        raise UsageError(f"keras-vit: no command {argv[0]!r}{nearest(argv[0], COMMANDS)}")
    values, unknown = parser.parse_known_args(argv)
    values = vars(values)
    command = values.pop("command")
    values.pop("config")
    config_class = COMMANDS[command]
    if unknown:
        known = [f"--{field.name.replace('_', '-')}" for field in fields(config_class)]
        raise UsageError(f"keras-vit {command}: no flag {unknown[0]}{nearest(unknown[0], known)}")
    try:
        return command, config_class(**values)
    except ValueError as error:
        raise UsageError(f"keras-vit {command}: {error}") from error


def add_fields(parser: argparse.ArgumentParser, config_class, places=True) -> None:
    """One flag or (with `places`) one positional argument for each field of a config."""
    hints = get_type_hints(config_class)
    for field in fields(config_class):
        help = field.metadata["help"].replace("%", "%%")
        kind, optional, many = unwrap(hints[field.name])
        if field.metadata.get("positional"):
            metavar = field.metadata.get("metavar", field.name.upper())
            if places:
                parser.add_argument(
                    field.name, metavar=metavar, help=help, nargs="+" if many else None
                )
            continue
        if field.default is not None and field.default is not MISSING:
            help += f" (default: {field.default})"
        flags = [f"--{field.name.replace('_', '-')}"]
        if "_" in field.name:
            flags.append(f"--{field.name}")
        options = {"help": help, "default": field.default, "dest": field.name}
        if kind is bool:
            parser.add_argument(*flags, action=argparse.BooleanOptionalAction, **options)
        else:
            options["type"] = reader(kind, optional)
            if get_origin(kind) is Literal:
                options["metavar"] = "{" + ",".join(get_args(kind)) + "}"
            else:
                options["metavar"] = field.name.upper()
            parser.add_argument(*flags, **options)
    parser.add_argument("--config", metavar="FILE.yaml", help="settings as YAML; flags win")


def unwrap(hint) -> tuple[type, bool, bool]:
    """(type of one value, whether None is allowed, whether there are many) of a field's type."""
    optional = get_origin(hint) in (Union, types.UnionType)
    if optional:
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is tuple and get_args(hint)[-1] is Ellipsis:
        return get_args(hint)[0], optional, True
    return hint, optional, False


def reader(kind, optional: bool):
    """A function from a word on the command line to a value of the type."""

    def read(word: str):
        if optional and word.lower() == "none":
            return None
        if get_origin(kind) is Literal:
            if word not in get_args(kind):
                raise argparse.ArgumentTypeError(
                    f"{word!r} must be one of {', '.join(get_args(kind))}"
                )
            return word
        if get_origin(kind) is tuple:  # height x width
            sides = word.lower().split("x")
            sides = sides * 2 if len(sides) == 1 else sides
            if len(sides) != 2 or not all(side.isdigit() for side in sides):
                raise argparse.ArgumentTypeError(f"{word!r} must be like 224 or 192x256")
            return tuple(int(side) for side in sides)
        try:
            return kind(word)
        except ValueError:
            what = {int: "a whole number", float: "a number"}[kind]
            raise argparse.ArgumentTypeError(f"{word!r} must be {what}") from None

    return read


def yaml_flags(argv: list[str], config_class) -> list[str]:
    """The flags that `--config FILE` stands for. Raises: UsageError that names the file."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config")
    path = finder.parse_known_args(argv)[0].config
    if path is None:
        return []
    known = [field.name for field in fields(config_class)]
    flags = []
    for key, value in read_yaml(path).items():
        if key in INFORMATION:
            continue
        name = str(key).replace("-", "_")
        if name not in known:
            raise UsageError(f"{path}: no setting {key!r}{nearest(name, known)}")
        flags += yaml_flag(name, value)
    try:
        check = Parser(prog=path, add_help=False, allow_abbrev=False)
        add_fields(check, config_class, places=False)
        check.parse_args(flags)
    except UsageError as error:
        raise UsageError(str(error).replace("argument --", "setting ")) from error
    return flags


def yaml_flag(name: str, value) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    if value is None:
        return [f"{flag}=none"]
    if isinstance(value, list):
        value = "x".join(str(item) for item in value)
    return [f"{flag}={value}"]


def read_yaml(path: str) -> dict:
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        raise UsageError(f"--config {path}: is no YAML{line}") from error
    if not isinstance(content, dict):
        raise UsageError(f"--config {path}: must hold lines like `epochs: 10`")
    return content


def nearest(word: str, known) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"


def _version() -> str:
    from importlib.metadata import version

    return f"keras-vit {version('keras-vit')}"
