"""Plan of a session: programs to start, their arguments and variables. No I/O.

Source: docs/receiver.md, "The launcher".
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app_server.clients.receiver.agent.environment import (
    MODE_VARIABLE,
    SURFACE_VARIABLE,
    URL_VARIABLE,
    AppServerMode,
)
from app_server.peer.token_file import TOKEN_FILE_VARIABLE

TOKEN_VARIABLE = "APP_SERVER_TOKEN"
"""Environment variable with the token itself; Codex is given its name."""

FIRST_PORT = 47100
LAST_PORT = 47199

SERVER = (sys.executable, "-m", "app_server.cli.serve")
"""Command that starts a server."""

PROBE_S = 5.0
"""For somebody at a port to introduce themselves; a server that has just started loads first."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One session."""

    agent: str
    mode: AppServerMode
    home: Path
    folder: Path
    agent_words: Sequence[str]
    """Arguments of the agent besides `--remote` and `--cd`."""
    url: str | None = None
    """A server that is there already."""
    first_port: int = FIRST_PORT
    token_file: Path | None = None
    """Token file of the server, started or found."""
    server: Sequence[str] = SERVER
    """Program of a server that is started, with its first arguments."""
    probe_s: float = field(default=PROBE_S, kw_only=True)
    """Seconds for somebody at a port to introduce themselves."""

    @property
    def ports(self) -> range:
        """The ports to try: up to 47199, or a hundred where the first is outside of that."""
        if FIRST_PORT <= self.first_port <= LAST_PORT:
            return range(self.first_port, LAST_PORT + 1)
        return range(self.first_port, min(self.first_port + 100, 65536))

    def server_command(self, url: str) -> list[str]:
        """Return the command line of a server."""
        guard = [] if self.token_file is None else ["--token-file", str(self.token_file)]
        return [*self.server, "--listen", url, "--home", str(self.home), *guard]

    def agent_command(self, url: str | None) -> list[str]:
        """Return the command line of the agent; `url` is that of its server, if it has one."""
        remote = [] if url is None else ["--remote", url]
        if url is not None and self.token_file is not None:
            remote += ["--remote-auth-token-env", TOKEN_VARIABLE]
        return [self.agent, *remote, "--cd", str(self.folder), *self.agent_words]

    def exported(self, url: str | None) -> dict[str, str]:
        """Return the variables that the server and the agent are given."""
        variables = {SURFACE_VARIABLE: self.agent, MODE_VARIABLE: self.mode}
        if url is not None:
            variables[URL_VARIABLE] = url
        if url is not None and self.token_file is not None:
            variables[TOKEN_FILE_VARIABLE] = str(self.token_file)
        return variables

    def environment(self, parent: Mapping[str, str], url: str | None) -> dict[str, str]:
        """Return the whole environment, without exports of an outer session."""
        kept = {name: value for name, value in parent.items() if name != URL_VARIABLE}
        return kept | self.exported(url)

    @property
    def variables_to_set(self) -> str:
        """Return the variables that receivers need to find a server started elsewhere."""
        wanted = [f"{URL_VARIABLE}={self.url}"]
        if self.token_file is not None:
            wanted.append(f"{TOKEN_FILE_VARIABLE}={self.token_file}")
        return (
            f"signals reach the thread if the server at {self.url} was started with "
            f"{' '.join(wanted)} in its environment; else they wait for tool results"
        )

    def describe(self) -> str:
        """Describe the plan, in lines."""
        url = self.url or url_of(self.first_port)
        lines = [f"mode: {self.mode}"]
        if self.mode == "off":
            lines += ["server: none", *_commands("agent", self.agent_command(None))]
            return "\n".join([*lines, *_variables(self.exported(None))])
        if self.url is not None:
            lines += [
                f"server: {self.url}, if it answers as an app-server",
                f"  unless it is an app-server of {self.home}: {self.variables_to_set}",
            ]
        else:
            lines += [
                f"server: ports {self.ports[0]} to {self.ports[-1]} in order; one that answers as "
                f"an app-server of {self.home} is reused,",
                "  on the first free one is started:",
                f"  {shlex.join(self.server_command(url))}",
            ]
        if self.mode == "auto":
            lines.append(
                "without a server: the agent is started without --remote, and signals wait for "
                "tool results (piggyback)"
            )
        else:
            lines.append("without a server: exit status 2")
        lines += _commands("agent", self.agent_command(url))
        return "\n".join([*lines, *_variables(self.exported(url))])


def url_of(port: int) -> str:
    """Return the URL of a port of this machine."""
    return f"ws://127.0.0.1:{port}"


def _commands(what: str, words: Sequence[str]) -> list[str]:
    return [f"{what}:", f"  {shlex.join(words)}"]


def _variables(exported: Mapping[str, str]) -> list[str]:
    return ["exported:", *(f"  {name}={value}" for name, value in exported.items())]


AGENTS = ("codex",)


def spelled(name: str) -> tuple[str, str]:
    """Spell an option as this program does, and as most others do."""
    return f"-{name}", f"--{name}"
