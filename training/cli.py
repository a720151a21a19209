"""`keras-vit <command>`: from the words of a command line to the command's `main(config)`.

A user's mistake becomes one line on stderr and exit status 2. Nothing heavy is imported before a
command really runs.
"""

import importlib
import os
import re
import sys
import tempfile
import traceback
from dataclasses import fields
from importlib.metadata import version

from training.config import COMMANDS
from training.flags import (
    Parser,
    UsageError,
    add_flags,
    flag,
    is_positional,
    nearest,
    place,
    values_of,
    yaml_flags,
)


def run() -> None:
    """The console script."""
    sys.stdout.reconfigure(errors="backslashreplace")  # a file's name may be no UTF-8
    try:
        status = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # `keras-vit ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 141  # what a shell gives for SIGPIPE
    sys.exit(status)


def main(argv: list[str]) -> int:
    """Run one command. Returns the exit status: 0, 2 for a user's mistake, 130 for Ctrl-C, 143."""
    try:
        return start(*parse([word for word in argv if word != "--debug"]))
    except UsageError as error:
        if "--debug" in argv:
            traceback.print_exc()
        else:
            print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("keras-vit: stopped by Ctrl-C", file=sys.stderr)
        return 130


def start(command: str, config) -> int:
    """Import a command and run it. Raises: UsageError: what the command refused."""
    module = import_quietly(f"training.{command.replace('-', '_')}")
    from keras_vit.config import UserError  # brings Keras in
    from training.signals import Stopped

    try:
        return module.main(config) or 0
    except Stopped as stop:
        print(f"keras-vit {command}: {stop}", file=sys.stderr)
        return stop.status
    except UserError as error:
        raise UsageError(f"keras-vit {command}: {error}") from error


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
    """The command's name and its config. Raises: UsageError; SystemExit after --help, --version."""
    argv = [re.sub(r"^--[^=]+", lambda name: name[0].replace("_", "-"), word) for word in argv]
    parser = make_parser()
    if not argv:
        parser.print_help()
        raise SystemExit(0)
    values, unknown = parser.parse_known_args(with_yaml(argv))
    values = values_of(values)
    if values.pop("version"):
        print(f"keras-vit {version('keras-vit')}")
        raise SystemExit(0)
    command = values.pop("command")
    if unknown:
        raise UsageError(f"keras-vit {command}: {what_is_wrong(unknown[0], COMMANDS[command])}")
    values.pop("config")
    values.pop("debug")
    try:
        return command, COMMANDS[command](**values)
    except ValueError as error:
        raise UsageError(f"keras-vit {command}: {error}") from error


def make_parser() -> Parser:
    parser = Parser(prog="keras-vit", description="Vision Transformers for Keras.")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", parser_class=Parser, title="commands"
    )
    for name, config_class in COMMANDS.items():
        places = [f"{place(field)} " for field in fields(config_class) if is_positional(field)]
        command = commands.add_parser(
            name,
            help=config_class.__doc__,
            description=config_class.__doc__,
            usage=f"keras-vit {name} {''.join(places)}[flags]",
            allow_abbrev=False,
        )
        add_flags(command, config_class)
        general = command.add_argument_group("general")
        general.add_argument("--config", metavar="FILE.yaml", help="settings as YAML; flags win")
        general.add_argument("--debug", action="store_true", help="show where a mistake came up")
    return parser


def with_yaml(argv: list[str]) -> list[str]:
    """The words with the flags that `--config FILE` stands for before the user's own."""
    command, *words = argv
    if command in ("-h", "--help", "--version"):
        return argv
    if command not in COMMANDS:
        raise UsageError(f"keras-vit: no command {command!r}{nearest(command, COMMANDS)}")
    finder = Parser(prog=f"keras-vit {command}", add_help=False, allow_abbrev=False)
    finder.add_argument("--config")
    finder.add_argument("--resume", action="store_true")
    finder.add_argument("--output")
    found = finder.parse_known_args(words)[0]
    path = found.config
    if found.resume and found.output and os.path.exists(kept := f"{found.output}/config.yaml"):
        path = path or kept  # a run is gone on with as it was begun
    if path is None:
        return argv
    # --config once more, so that a flag of many values ends before an argument by place.
    return [command, *yaml_flags(path, COMMANDS[command]), f"--config={path}", *words]


def what_is_wrong(word: str, config_class) -> str:
    """Of a word that no parser knows."""
    if not word.startswith("-"):
        return f"unexpected argument {word!r}"
    known = [flag(field.name) for field in fields(config_class) if not is_positional(field)]
    return f"no flag {word.split('=')[0]}{nearest(word.split('=')[0], known)}"
