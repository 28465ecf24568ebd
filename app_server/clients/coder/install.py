"""`coder install`: the receiver in the agent's config.toml, and the launcher on PATH.

What is as it should be is not touched, so that a second run changes nothing. It serves nothing and
binds no port.
Source: docs/receiver.md, "Install".
"""

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
import anyio.to_thread

from app_server.clients.coder.plan import SERVER
from app_server.clients.coder.receiver_entry import TABLE, NotOurs, Wanted, changes_for
from app_server.config.config_toml import read_config
from app_server.config.editing.file import ConfigFile
from app_server.config.values import ConfigError, NotRecorded
from app_server.runtime.user_paths import expand_user

LAUNCHER = "coder"
HELP_S = 30.0
"""For `app-server --help`."""

Verdict: TypeAlias = Literal["ok", "new", "todo", "FAIL"]
"""As it should be; now as it should be; would be made so; cannot be made so."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What is to be where."""

    homes: tuple[Path, ...]
    """Folders with a config.toml that an agent's MCP servers are read from."""
    options: Mapping[str, str]
    """Options of the receiver."""
    folder: Path
    """Where the launcher is put, if it is not on PATH."""

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
