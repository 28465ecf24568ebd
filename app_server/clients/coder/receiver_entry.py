"""The receiver in an agent's config.toml: what has to be set so that it is started. No I/O.

Source: docs/receiver.md, "Install".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from app_server.clients.receiver.agent.environment import (
    MODE_VARIABLE,
    SURFACE_VARIABLE,
    THREAD_VARIABLE,
    URL_VARIABLE,
)
from app_server.clients.receiver.router.wire import KEY_VARIABLE, SESSION_VARIABLE
from app_server.clients.receiver.router.wire import URL_VARIABLE as ROUTER_VARIABLE
from app_server.clients.token_file import TOKEN_FILE_VARIABLE

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
    """Return what has to be set; nothing if the agent starts the receiver like that already.

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
