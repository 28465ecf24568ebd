"""`app-server store`: the database that threads are kept in, from its tables to copies of it."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import anyio

from app_server.clients.command_line import add_home, command_parser
from app_server.config.effective import ConfigSources, read_start_settings
from app_server.config.home import resolve_home
from app_server.config.store_url import STORE_VARIABLE, TODO, StoreUrl, chosen_store
from app_server.config.values import ConfigError
from app_server.runtime.loader import LoadFailed, load
from app_server.runtime.standard_streams import one_line
from app_server.threads.opening.stores import NO_PSYCOPG

DESCRIPTION = """\
Work on the database that threads are kept in, where they are not kept in files: make its tables,
look whether a server could use it, and copy a home's threads into it and back."""

EPILOG = """\
commands:
  check     look whether a server could use the database; changes nothing
  migrate   make its tables, or bring them to the version of this program, and make the role that
            connects a tenant; it can be repeated, and killed
  import    copy all threads, projects, sections and signals of the home folder into the database
  export    copy all of them from the database into the home folder

Copies keep what is there. A thread that is there with the same bytes is passed over, one that
differs or that a server writes is named and left alone; so a copy can be repeated, and killed.

examples:
  createdb threads
  app-server store migrate --store postgresql:///threads
  app-server store import  --store postgresql:///threads --home DIR
  app-server --listen ws://127.0.0.1:4500 --store postgresql:///threads

The exit status is 0, 1 if the database cannot be used or something was left out, and 2 for a wrong
call."""

COMMANDS = ("check", "migrate", "import", "export")


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 1 for a failure, 2 for a wrong call."""
    options = make_parser().parse_args(arguments)
    home = resolve_home(options.home)
    try:
        return anyio.run(_run, options.command, home, options.store)
    except LoadFailed as exc:
        missing = isinstance(exc.__cause__, ModuleNotFoundError)
        return _failed(NO_PSYCOPG if missing else str(exc))
    except (ConfigError, OSError) as exc:
        return _failed(str(exc).strip())
    except KeyboardInterrupt:
        return 130


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = command_parser("app-server store", DESCRIPTION, EPILOG)
    parser.add_argument("command", choices=COMMANDS, help="what to do")
    add_home(parser)
    parser.add_argument(
        "--store",
        metavar="URL",
        help="the database: postgresql://USER@HOST/DATABASE, without a password "
        f"(default: {STORE_VARIABLE}, then `store` of config.toml)",
    )
    return parser


async def _run(command: str, home: Path, option: str | None) -> int:
    chosen = chosen_store(option, {}, os.environ)
    store = (await read_start_settings(ConfigSources(home=home, cwd=Path.cwd()), chosen)).store
    if store is None:
        raise ConfigError(f"no database is named: {TODO}")
    database = await load(_database)
    return await anyio.to_thread.run_sync(_work, database, command, store, home)


def _database() -> ModuleType:
    from app_server.threads.opening import database

    return database


def _work(database: ModuleType, command: str, store: StoreUrl, home: Path) -> int:
    match command:
        case "check":
            version = database.check(store.url)
            print(f"{store} can be used: its tables have version {version}.")
            return 0
        case "migrate":
            version = database.migrate_database(store.url, _say_step)
            print(f"{store} is ready: its tables have version {version}.")
            return 0
    copy = database.import_database if command == "import" else database.export_database
    done = copy(store.url, home, _say)
    for text in done.left:
        print(f"app-server store: {one_line(text)}", file=sys.stderr)
    print(
        f"{done.threads} threads copied, {done.there} there already, {len(done.left)} left "
        f"out; {done.signals} signals."
    )
    return 1 if done.left else 0


def _say_step(step: object) -> None:
    print(f"step {step} …", flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _failed(text: str) -> int:
    print(f"app-server store: {text}", file=sys.stderr)
    return 1
