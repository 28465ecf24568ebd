"""`app-server config`: check a file of settings, and print the JSON Schema of such files."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from app_server.clients.command_line import add_home, command_parser
from app_server.config.config_toml import (
    MAX_FILE_BYTES,
    parse_config,
    profile_file,
    read_config,
    read_profile,
    refuse_older_selector,
    with_profile,
)
from app_server.config.effective import default_provider_id
from app_server.config.home import resolve_home
from app_server.config.json_schema import config_schema
from app_server.config.key_check import keys_without_effect, unknown_keys
from app_server.config.values import Config, ConfigError
from app_server.runtime.standard_streams import one_line, print_now

DESCRIPTION = """\
Check a file of settings as a server does, or print the JSON Schema with which editors check and
complete one."""

EPILOG = """\
examples:
  app-server config check                     config.toml of the home folder
  app-server config check --profile work      with work.config.toml over it
  app-server config check config.toml         another file; - is standard input
  app-server config schema >config.schema.json
                                              beside config.toml, whose first line then is
                                              `#:schema ./config.schema.json`

What is wrong goes to stdout, two lines each: FILE:LINE:COLUMN, key and rule; and what to do. The
exit status of `check` is 0 if a server with --strict-config starts with the file, 1 if not or if it
cannot be read, and 2 for a wrong call."""

STDIN = Path("<stdin>")


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 1 for findings, 2 for a wrong call."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.command == "schema":
        print_now(render_schema().removesuffix("\n"))
        return 0
    if options.file is not None and options.profile is not None:
        parser.error("--profile is for config.toml of the home folder: leave out FILE, or name it")
    try:
        config = _read(options.file, resolve_home(options.home), options.profile)
        found = list(_findings(config))
    except ConfigError as exc:
        print(f"{one_line(str(exc))}\n  correct the file; nothing can be read of it before")
        return 1
    if found:
        print("\n".join(found))
        return 1
    for path in keys_without_effect(config.document):
        print(f"{'.'.join(path)} has an effect in Codex, and none here")
    is_there = config.text or config.source == STDIN
    print(f"{config.source} {'can be used' if is_there else 'is not there: all has its default'}")
    return 0


def render_schema() -> str:
    """Return the text of the JSON Schema, as it is committed in schema/ of the sources."""
    return json.dumps(config_schema(), indent=2) + "\n"


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = command_parser("app-server config", DESCRIPTION, EPILOG)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser(
        "check",
        help="say what is wrong with a file of settings",
        description="Name each key that is unknown, and each value that does not fit.",
    )
    check.add_argument(
        "file", nargs="?", metavar="FILE", help="the file, or - (default: config.toml of the home)"
    )
    add_home(check)
    check.add_argument(
        "-p", "--profile", metavar="NAME", help="put NAME.config.toml over config.toml"
    )
    commands.add_parser(
        "schema",
        help="print the JSON Schema of such files",
        description="Print the JSON Schema (draft 7) of config.toml.",
    )
    return parser


def _read(file: str | None, home: Path, profile: str | None) -> Config:
    if file == "-":
        return parse_config(sys.stdin.buffer.read(MAX_FILE_BYTES + 1), STDIN)
    path = home / "config.toml" if file is None else Path(file)
    config = read_config(path)
    if file is not None and not path.exists():
        raise ConfigError(f"{path}: No such file or directory")
    if profile is None:
        return config
    over = profile_file(home, profile)
    read_profile(over, profile)
    return with_profile(config, profile, over)


def _findings(config: Config) -> Iterator[str]:
    # What a server checks is most of what it imports.
    from app_server.handlers.server.config_check import wrong_values
    from app_server.models.catalogue.providers import chosen_provider

    for file in config.sources:
        for unknown in unknown_keys(file.document):
            meant = "" if unknown.nearest is None else f"write `{unknown.nearest}`, or "
            yield (
                f"{file.position_of_key(unknown.path)}: {unknown.detail}\n"
                f"  {meant}remove it: nothing reads this key"
            )
    wrong = wrong_values(config)
    for error, instead in wrong:
        yield f"{one_line(str(error).strip())}\n  correct the value; until then {instead}"
    if wrong:
        return
    try:
        refuse_older_selector(config)
        chosen_provider(config)
    except ConfigError as exc:
        table = f"[model_providers.{default_provider_id(config)}]"
        yield f"{one_line(str(exc).strip())}\n  add a table {table}, or choose another provider"
