"""`app-server status`: from a command line to a list of the servers of a home."""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from app_server.clients.command_line import add_home, command_parser
from app_server.config.home import resolve_home
from app_server.runtime.standard_streams import one_line
from app_server.threads.opening.checks import store_checks
from app_server.threads.opening.servers import running_servers
from app_server.threads.servers import FoundServer

DESCRIPTION = """\
List the servers that run with a home folder. No server is asked: each keeps a file in the folder
while it runs, and the threads that it has loaded are locked."""

EPILOG = """\
what is shown of each:
  its process, its version, since when it runs, and how many threads it has loaded (those that are
  kept in memory alone are not counted); then where clients connect, and the file with the token
  that they need. A server that was killed is shown as stale until the next one starts.

examples:
  app-server status                      the home that a server without --home uses
  app-server status --home DIR --json    the same for programs, as one JSON object

The exit status is 0 if a server runs, 1 if none does, and 2 for a wrong call."""

Process: TypeAlias = tuple[int | None, int | None]
"""Its id, and when it started: ids are used again."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 1 if no server runs, 2 for a wrong call."""
    options = make_parser().parse_args(arguments)
    home = resolve_home(options.home)
    try:
        servers, threads = running_servers(home).all(), threads_of(home)
    except OSError as exc:
        print(f"app-server status: {exc.filename or home}: {exc.strerror}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(as_json(home, servers, threads), indent=2))
    else:
        print("\n".join(render(home, servers, threads, int(time.time()))))
    return 0 if any(server.is_running for server in servers) else 1


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = command_parser("app-server status", DESCRIPTION, EPILOG)
    add_home(parser)
    parser.add_argument("--json", action="store_true", help="write the list as JSON")
    return parser


def threads_of(home: Path) -> Mapping[Process, int]:
    """Count the threads that processes hold."""
    counts: Counter[Process] = Counter()
    for holder in store_checks(home).holders():
        counts[holder.pid, holder.started_at] += 1
    return counts


def as_json(
    home: Path, servers: Sequence[FoundServer], threads: Mapping[Process, int]
) -> dict[str, object]:
    """Return the list for programs; times are Unix seconds."""
    return {
        "home": str(home),
        "servers": [
            {
                "pid": server.entry.pid,
                "state": "running" if server.is_running else "stale",
                "version": server.entry.version,
                "startedAt": server.entry.started_at,
                "threads": _count(server, threads),
                "addresses": list(server.entry.addresses),
                "tokenFile": server.entry.token_file,
            }
            for server in servers
        ],
    }


def render(
    home: Path, servers: Sequence[FoundServer], threads: Mapping[Process, int], now: int
) -> list[str]:
    """Write the list for people."""
    lines = []
    if not any(server.is_running for server in servers):
        lines.append(f"no server runs with {home}")
    for server in servers:
        entry = server.entry
        since = datetime.fromtimestamp(entry.started_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if not server.is_running:
            lines.append(f"stale: process {entry.pid} was killed; it had started {since}")
            continue
        count = _count(server, threads)
        lines.append(
            f"process {entry.pid}  version {entry.version}  since {since} "
            f"({_duration(now - entry.started_at)})  {count} thread{'' if count == 1 else 's'}"
        )
        lines += [f"  {address}" for address in entry.addresses]
        if entry.token_file is not None:
            lines.append(f"  token: {entry.token_file}")
    return [one_line(line) for line in lines]


def _count(server: FoundServer, threads: Mapping[Process, int]) -> int:
    is_running, entry = server.is_running, server.entry
    return threads.get((entry.pid, entry.started_at), 0) if is_running else 0


def _duration(seconds: int) -> str:
    minutes, rest = divmod(max(seconds, 0), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next((at for at, (number, _) in enumerate(parts) if number), len(parts) - 1)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2])
