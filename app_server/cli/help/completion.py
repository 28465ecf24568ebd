"""`app-server completion`: print a script with which a shell completes commands and options.

The script is made from the parsers of all commands (shtab), so that it lacks none of them.
"""

import argparse
import importlib
from collections.abc import Mapping, Sequence

import shtab

from app_server.clients.command_line import command_parser
from app_server.runtime.standard_streams import print_now

SHELLS = ("bash", "zsh", "fish")

DESCRIPTION = "Print a script with which a shell completes commands, options and their values."

EPILOG = """\
examples:
  app-server completion bash >~/.local/share/bash-completion/completions/app-server
  app-server completion zsh >~/.zfunc/_app-server
                          and in ~/.zshrc: fpath+=~/.zfunc; autoload -Uz compinit; compinit
  app-server completion fish >~/.config/fish/completions/app-server.fish

The script has the commands of this version: print it again after an update."""

MODULES = {
    "acp": "app_server.cli.acp",
    "bench": "app_server.cli.bench",
    "completion": "app_server.cli.help.completion",
    "config": "app_server.cli.config",
    "doctor": "app_server.cli.doctor",
    "exec": "app_server.cli.exec.command_line",
    "exec-server": "app_server.cli.exec_server",
    "inspect": "app_server.cli.inspect",
    "mcp": "app_server.cli.mcp",
    "receiver": "app_server.clients.receiver.cli",
    "signal": "app_server.cli.signal",
    "status": "app_server.cli.status",
    "store": "app_server.cli.store",
    "usage": "app_server.cli.usage",
}
"""Command to the module that has its `make_parser`."""

FILES = {"FILE": shtab.FILE, "PATH": shtab.FILE, "DIR": shtab.DIRECTORY}
"""Metavariable to what a shell completes in its place."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 2 for a wrong call."""
    options = make_parser().parse_args(arguments)
    print_now(shtab.complete(whole_parser(), options.shell).removesuffix("\n"))
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = command_parser("app-server completion", DESCRIPTION, EPILOG)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    return parser


def whole_parser() -> argparse.ArgumentParser:
    """Join the parsers of all commands to one, in which a command is a sub-command."""
    texts = importlib.import_module("app_server.cli.help.command_help")
    schema = importlib.import_module("app_server.cli.schema")
    parsers = {name: make() for name, make in texts.PARSERS.items()}
    parsers |= {name: schema.make_parser(name) for name in schema.COMMANDS}
    parsers["serve"] = _server_parser("app-server serve")
    parsers |= {
        name: importlib.import_module(module).make_parser() for name, module in MODULES.items()
    }
    root = _server_parser("app-server")
    commands = root.add_subparsers(metavar="COMMAND")
    for name, parser in sorted(parsers.items()):
        text = (parser.description or name).partition(". ")[0].partition(": ")[0]
        shown = " ".join(text.removesuffix(".").split())
        commands.add_parser(name, parents=[parser], add_help=False, help=shown, description=shown)
    helped = commands.add_parser("help", help="Print the help of a command")
    helped.add_argument("command", nargs="*", choices=sorted(parsers), help="the command")
    _complete_files(root)
    return root


def _server_parser(program: str) -> argparse.ArgumentParser:
    # The server's own parser takes a command as an argument, whatever it is.
    parser = argparse.ArgumentParser(prog=program, description="Serve clients")
    importlib.import_module("app_server.cli.serve").add_options(parser)
    return parser


def _complete_files(parser: argparse.ArgumentParser) -> None:
    # No public name lists the arguments of a parser; shtab reads this one too.
    for action in parser._actions:
        if isinstance(action.choices, Mapping):
            for inner in action.choices.values():
                _complete_files(inner)
        elif action.metavar in FILES:
            action.complete = FILES[action.metavar]  # type: ignore[attr-defined]
