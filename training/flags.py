"""A command's config as flags, and a YAML file as the same flags: both go through one parser."""

import argparse
import difflib
import math
import types
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Literal, Union, get_args, get_origin, get_type_hints

# A run's config.yaml keeps these beside the settings; they say how it was made.
INFORMATION = ("made_with",)
TYPE_NAMES = {int: "a whole number", float: "a number"}


class UsageError(Exception):
    """A command line or YAML file that cannot be read; the message says what would be right."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UsageError(f"{self.prog}: {message}")


def add_flags(parser: argparse.ArgumentParser, config_class) -> None:
    """A flag, or an argument by place, for each field; a field's `group` starts a heading."""
    hints, group = get_type_hints(config_class), parser
    for field in fields(config_class):
        group_name = field.metadata.get("group")
        group = parser.add_argument_group(group_name) if group_name else group
        kind, optional, many = unwrap(hints[field.name])
        help = field.metadata["help"].replace("%", "%%")
        if is_positional(field):
            nargs = {"nargs": "+"} if many else {}
            parser.add_argument(field.name, metavar=place(field), help=help, **nargs)
            continue
        if field.default not in (None, MISSING) and field.default is not False:
            help += f" (default: {field.default})"
        options = {"help": help, "default": field.default, "dest": field.name}
        if kind is bool:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options |= {
                "type": reader(kind, optional and not many),
                "metavar": placeholder(field.name, kind),
            }
            options |= {"nargs": "+"} if many else {}
        group.add_argument(flag(field.name), **options)


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def is_positional(field: Field) -> bool:
    return field.metadata.get("positional", False)


def place(field: Field) -> str:
    """What stands for an argument by place in `--help`."""
    return field.metadata.get("metavar", field.name.upper())


def unwrap(hint) -> tuple[type, bool, bool]:
    """(type of one value, whether None is allowed, whether there are many) of a field's type."""
    optional = get_origin(hint) in (Union, types.UnionType)
    if optional:
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is tuple and get_args(hint)[-1] is Ellipsis:
        return get_args(hint)[0], optional, True
    return hint, optional, False


def placeholder(name: str, kind) -> str:
    """What stands for the value in `--help`."""
    if get_origin(kind) is Literal:
        return "{" + ",".join(get_args(kind)) + "}"
    if get_origin(kind) is tuple:
        return "HxW"
    return {int: "N", float: "X"}.get(kind, name.upper())


def reader(kind, optional: bool):
    """A function from a word on the command line to a value of the type."""

    def read(word: str):
        if optional and word == "none" and "none" not in get_args(kind):  # augment's is a preset
            return None
        try:
            return read_value(kind, word)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{word!r} must be {error}") from None

    return read


def read_value(kind, word: str):
    """The value that a word stands for. Raises: ValueError: says what would be right."""
    if get_origin(kind) is Literal:
        if word not in get_args(kind):
            raise ValueError(f"one of {', '.join(get_args(kind))}")
        return word
    if get_origin(kind) is tuple:  # height x width
        sides = word.lower().split("x")
        if len(sides) > 2 or not all(side.isdecimal() and int(side) for side in sides):
            raise ValueError("like 224 or 192x256")
        return int(sides[0]), int(sides[-1])
    try:
        value = kind(word)
    except ValueError:
        raise ValueError(TYPE_NAMES[kind]) from None
    if kind is float and not math.isfinite(value):
        raise ValueError(TYPE_NAMES[kind])
    return value


def values_of(namespace: argparse.Namespace) -> dict:
    """What a parser found, by name, many values as a tuple."""
    return {key: tuple(v) if isinstance(v, list) else v for key, v in vars(namespace).items()}


def yaml_flags(path: str, config_class) -> list[str]:
    """The flags that a YAML file stands for. Raises: UsageError that names the file."""
    return words_of(read_yaml(path), path, config_class)


def words_of(content: dict, path: str, config_class) -> list[str]:
    """The flags that settings stand for. Raises: UsageError that names the file they are from."""
    known = {field.name: field for field in fields(config_class) if not is_positional(field)}
    hints = get_type_hints(config_class)
    flags = []
    for key, value in content.items():
        name = str(key).replace("-", "_")
        if name in INFORMATION:
            continue
        if name not in known:
            raise UsageError(f"{path}: no setting {str(key)!r}{nearest(name, known)}")
        if value is None and known[name].default is None:
            continue  # is so already, and no flag says that of a switch
        try:
            flags += yaml_words(name, value, hints[name])
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"{path}: setting {name}: {error}") from error
    return flags


def yaml_words(name: str, value, hint) -> list[str]:
    """One flag, with all its values. Raises: argparse.ArgumentTypeError: none of this type."""
    kind, optional, many = unwrap(hint)
    if kind is bool:
        if not isinstance(value, bool):
            raise argparse.ArgumentTypeError(f"{value!r} must be true or false")
        return [flag(name) if value else f"--no-{flag(name)[2:]}"]
    if many:
        items = value if isinstance(value, list) else [value]
        return [flag(name), *(word_of(item, kind) for item in items)]
    word = word_of(value, kind)
    reader(kind, optional)(word)  # here, where the mistake can still be laid to the file
    return [f"{flag(name)}={word}"]


def word_of(value, kind) -> str:
    """A value of a YAML file as on the command line."""
    if isinstance(value, list) and get_origin(kind) is tuple:
        return "x".join(str(item) for item in value)
    return "none" if value is None else str(value)


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
