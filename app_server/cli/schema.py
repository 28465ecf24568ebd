"""The commands for client authors: write the wire's JSON Schema and TypeScript, or check them."""

import argparse
import importlib
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from app_server.runtime.standard_streams import lacks_working_directory

COMMANDS = {
    "generate-json-schema": "Write the wire's types as JSON Schema (draft 7): one file a type in "
    "v1/, v2/ and DIR itself, and two bundles with all of them.",
    "generate-ts": "Write the wire's types as TypeScript: one file a type, an index, and "
    "MethodMaps.ts, which gives the params and result of every method by its name.",
    "schema": "Write the wire's types as JSON Schema and TypeScript, stable and experimental, and "
    "the JSON Schema of config.toml, as they are committed in schema/ of the sources.",
}
"""Command to what it does."""

CONFIG_SCHEMA = "config.schema.json"

EXAMPLES = """\
examples:
  app-server {command} --out generated                   what every client may use
  app-server {command} --out generated --experimental    also what a client has to ask for

Clients that use what --experimental adds send `"capabilities": {{"experimentalApi": true}}` with
`initialize`."""


def main(command: str, arguments: Sequence[str]) -> int:
    """Run one of COMMANDS; returns the exit status: 0, 1 for a failure or a difference."""
    options = make_parser(command).parse_args(arguments)
    # A server has no use for the generators.
    tree = importlib.import_module("protocol.export.tree")
    try:
        # Where it is to be is known before all that is made.
        folder = options.out.absolute()
        match command:
            case "generate-json-schema" | "generate-ts":
                render = tree.render_ts if command == "generate-ts" else tree.render_json
                files = render(experimental=options.experimental)
                tree.write_files(folder, files)
            case _:
                settings = importlib.import_module("app_server.cli.config")
                files = tree.render_bundles() | {CONFIG_SCHEMA: settings.render_schema()}
                if options.check:
                    return _check(tree.differences(folder, files), options.out)
                tree.replace_files(folder, files)
    except OSError as exc:
        if lacks_working_directory(exc):
            raise
        print(f"app-server: {exc}", file=sys.stderr)
        return 1
    print(f"{len(files)} files in {options.out}", file=sys.stderr)
    return 0


def make_parser(command: str) -> argparse.ArgumentParser:
    """Describe the command line of one of COMMANDS."""
    parser = argparse.ArgumentParser(prog=f"app-server {command}", description=COMMANDS[command])
    if command == "schema":
        parser.add_argument(
            "--out",
            type=Path,
            default=Path("schema"),
            metavar="DIR",
            help="where (default: %(default)s)",
        )
        parser.add_argument(
            "--check", action="store_true", help="write nothing; exit with 1 if a file differs"
        )
        return parser
    parser.description = textwrap.fill(COMMANDS[command], 80)
    parser.epilog = EXAMPLES.format(command=command)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "-o", "--out", type=Path, required=True, metavar="DIR", help="made if it is not there"
    )
    parser.add_argument(
        "--experimental",
        action="store_true",
        help="also what needs capabilities.experimentalApi",
    )
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        metavar="KEY=VALUE",
        help="taken from launchers that put it before every command; has no effect here",
    )
    return parser


def _check(differences: Iterable[str], folder: Path) -> int:
    found = list(differences)
    for difference in found:
        print(f"{folder}: {difference}", file=sys.stderr)
    if found:
        print(f"{folder} is not what the types say; run: app-server schema", file=sys.stderr)
    return 1 if found else 0
