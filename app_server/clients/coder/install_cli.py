"""`coder install`: the command line, and a report of files found and written."""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread

from app_server.clients.coder.plan import AGENTS, SERVER, spelled
from app_server.clients.command_line import command_parser
from app_server.clients.receiver.agent.environment import (
    MODE_VARIABLE,
    SURFACE_VARIABLE,
    THREAD_VARIABLE,
    URL_VARIABLE,
)
from app_server.clients.receiver.router.wire import KEY_VARIABLE, SESSION_VARIABLE, check_router_url
from app_server.clients.receiver.router.wire import URL_VARIABLE as ROUTER_VARIABLE
from app_server.config.config_toml import read_config
from app_server.config.editing.file import ConfigFile
from app_server.config.home import resolve_home
from app_server.config.values import ConfigError, NotRecorded
from app_server.peer.token_file import TOKEN_FILE_VARIABLE
from app_server.runtime.user_paths import expand_user

NAME = "prism"
"""Name of the receiver in the agent's configuration."""

TABLE = ("mcp_servers", NAME)

RECEIVER = "receiver"

ENV_VARS = (
    KEY_VARIABLE,
    ROUTER_VARIABLE,
    SESSION_VARIABLE,
    SURFACE_VARIABLE,
    MODE_VARIABLE,
    URL_VARIABLE,
    THREAD_VARIABLE,
    TOKEN_FILE_VARIABLE,
    "APP_SERVER_HOME",
    "CODEX_HOME",
)
"""Agents give their MCP servers few variables, and these if they are named. Values stay where they
are: no key gets into the file."""

Changes: TypeAlias = Sequence[tuple[Sequence[str], Any]]
"""Values to set, each at a path of keys."""


class NotOurs(Exception):
    """The name is taken by another MCP server; the text says so."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The receiver as it should be started."""

    command: str
    """The program `app-server`."""
    options: Mapping[str, str]
    """Options of the receiver with a value each; others keep what the file says."""


def changes_for(
    document: Mapping[str, Any], wanted: Wanted, runs: Callable[[str], bool]
) -> Changes:
    """Return the changes to make; none if the agent starts the receiver already.

    Of an entry that is there everything stays that is neither missing nor asked for: its command as
    long as `runs` says that there is such a program, its other arguments, and all other keys.

    Raises:
        NotOurs
    """
    servers = document.get(TABLE[0], {})
    entry = servers.get(NAME) if isinstance(servers, Mapping) else None
    if entry is None:
        found: dict[str, Any] = {"command": wanted.command, "args": [RECEIVER], "env_vars": []}
        there: Mapping[str, Any] = {}
    else:
        there = entry
        found = {"env_vars": [], **_read(entry)}
        if not runs(found["command"]):
            found["command"] = wanted.command
            # Words before the first of ours were for a program that is not there.
            found["args"] = found["args"][found["args"].index(RECEIVER) :]
    args = found["args"]
    for option, value in wanted.options.items():
        args = _with_option(args, option, value)
    names = [*found["env_vars"], *(name for name in ENV_VARS if name not in found["env_vars"])]
    values = {"command": found["command"], "args": args, "env_vars": names}
    return [((*TABLE, key), value) for key, value in values.items() if there.get(key) != value]


def _read(entry: Any) -> Mapping[str, Any]:
    taken = f"[{'.'.join(TABLE)}] is another MCP server; give it another name first"
    if not isinstance(entry, Mapping) or not isinstance(entry.get("command"), str):
        raise NotOurs(taken)
    for key in ("args", "env_vars"):
        value = entry.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise NotOurs(f"`{'.'.join(TABLE)}.{key}` must be a list of strings")
    if RECEIVER not in entry.get("args", []):
        raise NotOurs(taken)
    return {key: entry[key] for key in ("command", "args", "env_vars") if key in entry}


def _with_option(args: Sequence[str], option: str, value: str) -> list[str]:
    """Return arguments in which an option has a value, where it was or else at the end."""
    kept: list[str] = []
    place: int | None = None
    words = iter(args)
    for word in words:
        if word == option:
            next(words, None)
        elif not word.startswith(f"{option}="):
            kept.append(word)
            continue
        place = len(kept) if place is None else place
    place = len(kept) if place is None else place
    return [*kept[:place], option, value, *kept[place:]]


LAUNCHER = "coder"
HELP_S = 30.0
"""For `app-server --help`."""

Verdict: TypeAlias = Literal["ok", "new", "todo", "FAIL"]
"""As it should be; now as it should be; would be made so; cannot be made so."""


@dataclass(frozen=True, slots=True)
class Installation:
    """Files and settings of an installation."""

    homes: tuple[Path, ...]
    """Folders with a config.toml that an agent's MCP servers are read from."""
    options: Mapping[str, str]
    """Options of the receiver."""
    folder: Path
    """Folder for the launcher, if it is not on PATH."""

    def wanted(self) -> Wanted:
        """Return how the receiver is started: by the program beside this interpreter."""
        return Wanted(str(Path(sys.executable).with_name("app-server")), self.options)


def homes(server_home: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the homes of the server and of Codex, once if they are the same.

    With a server the agent's MCP servers are those of the server's home, without one those of its
    own.
    """
    own = expand_user(environ.get("CODEX_HOME") or "~/.codex").absolute()
    same = os.path.realpath(own) == os.path.realpath(server_home)
    return (own,) if same else (own, server_home)


def check(agent: str) -> Iterator[tuple[bool, str]]:
    """Give a verdict and a sentence for each thing that a session needs."""
    path = shutil.which(agent)
    yield path is not None, f"{agent}: {path or 'not found on PATH'}"
    problem = _problem_of_server()
    yield problem is None, f"app-server: {problem or 'listens on WebSockets'}"


def _problem_of_server() -> str | None:
    try:
        shown = subprocess.run(
            [*SERVER, "--help"],
            capture_output=True,
            text=True,
            timeout=HELP_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"cannot be asked ({type(exc).__name__})"
    if shown.returncode != 0:
        return f"--help ended with exit status {shown.returncode}"
    return None if "--listen" in shown.stdout else "--help does not name --listen"


async def install(wanted: Installation, *, write: bool) -> AsyncIterator[tuple[Verdict, str]]:
    """Give a verdict and a sentence for each thing; without `write` none of them is changed."""
    for home in wanted.homes:
        yield await _receiver_in(home, wanted.wanted(), write=write)
    yield await anyio.to_thread.run_sync(lambda: _launcher(wanted.folder, write=write))


async def _receiver_in(home: Path, wanted: Wanted, *, write: bool) -> tuple[Verdict, str]:
    path = home / "config.toml"
    what = f"receiver: [{'.'.join(TABLE)}] in {path}"
    try:
        config = await anyio.to_thread.run_sync(read_config, path)
        changes = changes_for(config.document, wanted, lambda name: shutil.which(name) is not None)
        if not changes:
            return "ok", what
        if not write:
            return "todo", what
        await anyio.Path(home).mkdir(mode=0o700, parents=True, exist_ok=True)
        await ConfigFile(home).write_all(changes)
    except NotOurs as exc:
        return "FAIL", f"receiver: {path}: {exc}"
    except (ConfigError, NotRecorded, OSError) as exc:
        return "FAIL", f"receiver: {exc}"
    return "new", what


def _launcher(folder: Path, *, write: bool) -> tuple[Verdict, str]:
    own = Path(sys.executable).with_name(LAUNCHER)
    found = shutil.which(LAUNCHER)
    if found is not None and os.path.realpath(found) == os.path.realpath(own):
        return "ok", f"launcher: {found}"
    if not own.exists():
        return "FAIL", f"launcher: {own} is not there; install the package again"
    link = folder / LAUNCHER
    there = os.environ.get("PATH", "").split(os.pathsep)
    hint = "" if str(folder) in there else f" ({folder} is not on PATH)"
    what = f"launcher: {link}{hint}"
    if os.path.realpath(link) == os.path.realpath(own):
        return "ok", what
    if link.exists() or (link.is_symlink() and link.readlink().name != LAUNCHER):
        return "FAIL", f"launcher: {link} is another program; choose a folder with -bin"
    if not write:
        return "todo", what
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # One that leads nowhere is of an installation that has gone.
        link.unlink(missing_ok=True)
        link.symlink_to(own)
    except OSError as exc:
        return "FAIL", f"launcher: {link}: {exc.strerror}"
    return "new", what


DESCRIPTION = """\
Make the receiver known to an agent, so that messages of other agents reach it: its entry
[mcp_servers.prism] in the config.toml of Codex, and in that of the app-server where that is another
file; and put the launcher where the shell finds it. What is as it should be is left alone, comments
too. No server is started, no port is bound."""

EPILOG = """\
example:
  coder install -router-url wss://router.example.com -session Texi -key-file ~/.router-key

The key itself is never written. Without a router the receiver carries only what waits already; a
router can be added by another run, or by the variables of `app-server receiver --help`."""


def main(words: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 1 if something is not as it should be."""
    parser = make_parser()
    options = parser.parse_args(words)
    try:
        receiver = _receiver_options(options)
    except ValueError as exc:
        parser.error(str(exc))
    wanted = Installation(
        homes=homes(resolve_home(None), os.environ),
        options=receiver,
        folder=expand_user(options.bin).absolute(),
    )
    is_good = True
    for is_there, sentence in check(options.agent):
        is_good = _report("ok" if is_there else "FAIL", sentence) and is_good
    if not is_good and not options.check:
        print("coder: nothing was written", file=sys.stderr)
        return 1

    async def go_through() -> bool:
        verdicts = install(wanted, write=not options.check)
        return all([_report(*verdict) async for verdict in verdicts])

    return 0 if asyncio.run(go_through()) and is_good else 1


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line of `coder install`."""
    usage = "coder install [OPTION...]"
    parser = command_parser("coder install", DESCRIPTION, EPILOG, usage=usage, allow_abbrev=False)
    parser.add_argument(
        *spelled("check"),
        action="store_true",
        help="say what is there and what would be written; write nothing",
    )
    parser.add_argument(
        *spelled("agent"), choices=AGENTS, default=AGENTS[0], help="which agent (%(default)s)"
    )
    parser.add_argument(*spelled("router-url"), metavar="URL", help="the router, wss://HOST/PATH")
    parser.add_argument(*spelled("session"), metavar="NAME", help="the agent's name there")
    parser.add_argument(
        *spelled("key-file"),
        type=Path,
        metavar="FILE",
        help=f"a file with the key to the router (default: the variable {KEY_VARIABLE})",
    )
    parser.add_argument(
        *spelled("bin"),
        type=Path,
        default=Path("~/.local/bin"),
        metavar="DIR",
        help="where the launcher is put if it is not on PATH (default: %(default)s)",
    )
    return parser


def _receiver_options(options: argparse.Namespace) -> dict[str, str]:
    given: dict[str, str] = {}
    if options.router_url is not None:
        given["--router-url"] = check_router_url(options.router_url)
    if options.session is not None:
        if not options.session:
            raise ValueError("-session must be a name")
        given["--session"] = options.session
    if options.key_file is not None:
        given["--key-file"] = str(expand_user(options.key_file).absolute())
    return given


def _report(verdict: str, sentence: str) -> bool:
    print(f"{verdict:<4} {sentence}")
    return verdict != "FAIL"
