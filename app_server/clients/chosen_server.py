"""The server that a command means: the one that is named, else the one that runs with the home.

Source: docs/operations.md, "Which servers run".
"""

import argparse
import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app_server.config.home import resolve_home
from app_server.peer.address import ServerAddress, check_server_url
from app_server.peer.token_file import TOKEN_FILE_HELP, chosen_token_file
from app_server.threads.opening.servers import running_servers
from app_server.threads.servers import FoundServer, ServerEntry

URL_VARIABLE = "APP_SERVER_URL"
"""Names the server where no option does."""

START_S = 3.0
"""For a server that was started just now to be there, where none is."""
POLL_S = 0.1

MAX_SHOWN = 20
"""Servers that are listed where there are several."""


class NoOneServer(Exception):
    """No server runs, or several do; the text has the remedy."""

    def __init__(self, text: str, *, are_several: bool) -> None:
        super().__init__(text)
        self.are_several = are_several

    @property
    def exit_status(self) -> int:
        """Of the command: where several run, the call is wrong for it names none."""
        return 2 if self.are_several else 1


def server_parser(token_help: str = TOKEN_FILE_HELP, **more: Any) -> argparse.ArgumentParser:
    """Make a parent of parsers, with the options that `server_address` takes.

    They are --url, --home and --token-file; `more` are options of argparse.
    """
    parser = argparse.ArgumentParser(add_help=False, **more)
    parser.add_argument(
        "--url",
        metavar="URL",
        help="the server (default: the one that runs with the home folder)",
    )
    parser.add_argument(
        "--home",
        metavar="DIR",
        help="the home folder of the server (default: the one that a server without --home uses)",
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help=token_help)
    return parser


def server_address(
    url: str | None,
    home: str | None,
    token_file: Path | None,
    command: str,
    url_option: str = "",
    wait_s: float = START_S,
) -> ServerAddress:
    """Return the address that an option or URL_VARIABLE names, else that of the server that runs.

    `url`, `home` and `token_file` are options of the command, None where they are not given; they
    are stronger than variables. Blocks and raises as `choose_server`, which has the others.

    Raises:
        ValueError: what the option or the variable has is no address.
    """
    shown = chosen_token_file(token_file, os.environ)
    if url is None and home is None:
        url = os.environ.get(URL_VARIABLE) or None
    if url is not None:
        return ServerAddress(check_server_url(url), shown)
    server = choose_server(resolve_home(home), command, url_option, wait_s)
    if token_file is None and server.token_file is not None:
        # The variable may be about another server.
        return server
    return replace(server, token_file=shown)


def choose_server(
    home: Path, command: str, url_option: str = "", wait_s: float = START_S
) -> ServerAddress:
    """Return the one server of a home that clients can connect to.

    Blocks, for `wait_s` where there is none. `command` is what the user typed, such as
    `app-server inspect`; `url_option` is what stands before an address there, if anything does.

    Raises:
        NoOneServer
        OSError: the home cannot be read.
    """
    give_up_s = time.monotonic() + wait_s
    while True:
        running = [server for server in running_servers(home).all() if server.is_running]
        found = [
            (address, server.entry)
            for server in running
            if (address := _address(server.entry)) is not None
        ]
        if found or time.monotonic() >= give_up_s:
            break
        time.sleep(POLL_S)
    if not found:
        raise NoOneServer(_how_to_start(home, command, running), are_several=False)
    if len(found) > 1:
        raise NoOneServer(_how_to_choose(home, command, url_option, found), are_several=True)
    return found[0][0]


def _address(entry: ServerEntry) -> ServerAddress | None:
    if (found := entry.for_clients) is None:
        return None
    url, token_file = found
    return ServerAddress(url, None if token_file is None else Path(token_file), entry.pid)


def _how_to_start(home: Path, command: str, running: Sequence[FoundServer]) -> str:
    option = "" if home == resolve_home(None) else f" --home {shlex.quote(str(home))}"
    if running:
        shown = ", ".join(str(server.entry.pid) for server in running[:MAX_SHOWN])
        why = (
            f"no server that runs with {home} has an address for other programs (processes {shown})"
        )
    else:
        why = f"no server runs with {home}"
    return (
        f"{why}. Start one:\n"
        f"  app-server{option} --listen ws://127.0.0.1:4500 &\n"
        f"  {command}{option}"
    )


def _how_to_choose(
    home: Path,
    command: str,
    url_option: str,
    found: Sequence[tuple[ServerAddress, ServerEntry]],
) -> str:
    lines = [f"{len(found)} servers run with {home}. Choose one by its address:"]
    for address, entry in found[:MAX_SHOWN]:
        words = [command, *filter(None, [url_option]), shlex.quote(address.url)]
        if address.token_file is not None:
            words += ["--token-file", shlex.quote(str(address.token_file))]
        since = datetime.fromtimestamp(entry.started_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        lines.append(f"  {' '.join(words)}   # process {entry.pid}, since {since}")
    if len(found) > MAX_SHOWN:
        lines.append(f"  … and {len(found) - MAX_SHOWN} more: app-server status")
    return "\n".join(lines)
