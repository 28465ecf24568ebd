"""Shared parts of command lines: verbatim texts, the home, numbers."""

import argparse
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app_server.runtime.standard_streams import NO_WORKING_DIRECTORY
from app_server.runtime.user_paths import expand_user

MAX_PORT = 65535


def command_parser(
    program: str, description: str, epilog: str, **more: Any
) -> argparse.ArgumentParser:
    """Make a parser; `more` are options of argparse."""
    return argparse.ArgumentParser(
        prog=program,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **more,
    )


def add_home(parser: argparse.ArgumentParser) -> None:
    """Add the option for the home of the server that a command is about."""
    parser.add_argument(
        "--home", metavar="DIR", help="the home folder (default: the one that the server uses)"
    )


def add_folder(parser: argparse.ArgumentParser, *flags: str) -> None:
    """Add the option for the folder that an agent works in; `working_folder` reads it."""
    parser.add_argument(
        *flags, dest="cd", type=_folder, metavar="DIR", help="the agent's folder (default: .)"
    )


def _folder(text: str) -> Path:
    """Read a folder that is there: the `type` of an option.

    Raises:
        ArgumentTypeError
        FileNotFoundError: it is relative, and there is no working directory.
    """
    if not text:
        raise argparse.ArgumentTypeError("must name a folder")
    folder = expand_user(text).absolute()
    try:
        is_folder = stat.S_ISDIR(folder.stat().st_mode)
    except FileNotFoundError:
        raise argparse.ArgumentTypeError(f"there is no folder {folder}") from None
    except OSError as exc:
        raise argparse.ArgumentTypeError(f"{folder}: {exc.strerror}") from None
    if not is_folder:
        raise argparse.ArgumentTypeError(f"{folder} is no folder")
    return folder


def working_folder(parser: argparse.ArgumentParser, given: Path | None) -> Path:
    """Return the folder of the option, absolute, else the working directory.

    Raises:
        SystemExit: there is neither; it is told, and the exit status is 1.
    """
    if given is not None:
        return given
    try:
        return Path.cwd()
    except FileNotFoundError:
        parser.exit(1, f"{parser.prog}: {NO_WORKING_DIRECTORY}, or name one with --cd\n")


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return the `type` of an option: a whole number within bounds."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"must be a whole number {bounds}")
        return number

    return read
