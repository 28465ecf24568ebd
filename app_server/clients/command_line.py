"""What command lines have in common: texts that are shown as they are written, and the home."""

import argparse
from typing import Any


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
