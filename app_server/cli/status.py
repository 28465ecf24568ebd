"""`app-server status`: from a command line to a list of the servers of a home."""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import anyio

from app_server.clients.command_line import add_home, command_parser
from app_server.config.effective import ConfigSources, read_start_settings
from app_server.config.home import resolve_home
from app_server.config.store_url import STORE_VARIABLE, StoreUrl, chosen_store
from app_server.config.values import ConfigError
from app_server.runtime.loader import LoadFailed, load
from app_server.runtime.standard_streams import one_line
from app_server.threads.nodes import Node
from app_server.threads.opening.checks import store_checks
from app_server.threads.opening.servers import running_servers
from app_server.threads.opening.stores import NO_PSYCOPG
from app_server.threads.servers import FoundServer

DESCRIPTION = """\
List the servers that run with a home folder. No server is asked: each keeps a file in the folder
while it runs, and the threads that it has loaded are locked. Where threads are kept in a database,
its nodes follow, on this machine or another, as the database knows them."""

EPILOG = """\
what is shown of each:
  its process, its version, since when it runs, and how many threads it has loaded (those that are
  kept in memory alone are not counted); then where clients connect, and the file with the token
  that they need. A server that was killed is shown as stale until the next one starts. Of a node:
  its id, machine and process, version, address, how long its lease lasts if it is not renewed, and
  the threads that it writes.

examples:
  app-server status                      the home that a server without --home uses
  app-server status --home DIR --json    the same for programs, as one JSON object
  app-server status --store postgresql://USER@HOST/DATABASE
                                         with the nodes of this database

The exit status is 0 if a server of the home runs, 1 if none does or the database cannot be asked,
and 2 for a wrong call."""

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
    failure, store, nodes = None, None, list[Node]()
    try:
        store = anyio.run(_store, home, options.store)
        nodes = [] if store is None else anyio.run(_nodes, store)
    except LoadFailed as exc:
        failure = NO_PSYCOPG if isinstance(exc.__cause__, ModuleNotFoundError) else str(exc)
    except (ConfigError, OSError) as exc:
        failure = str(exc).strip()
    now = int(time.time())
    if options.json:
        shown = as_json(home, servers, threads)
        if store is not None:
            shown |= {"store": str(store), "nodes": list(map(_node_as_json, nodes))}
        print(json.dumps(shown, indent=2))
    else:
        lines = render(home, servers, threads, now)
        if nodes:
            lines += [f"nodes of {store}:", *render_nodes(nodes, now)]
        print("\n".join(lines))
    if failure is not None:
        print(f"app-server status: {one_line(failure)}", file=sys.stderr)
        return 1
    return 0 if any(server.is_running for server in servers) else 1


async def _store(home: Path, option: str | None) -> StoreUrl | None:
    chosen = chosen_store(option, {}, os.environ)
    return (await read_start_settings(ConfigSources(home, Path.cwd()), chosen)).store


async def _nodes(store: StoreUrl) -> list[Node]:
    database = await load(_database)
    return list(await anyio.to_thread.run_sync(database.nodes, store.url))


def _database() -> ModuleType:
    # Homes with files need no psycopg.
    from app_server.threads.opening import database

    return database


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = command_parser("app-server status", DESCRIPTION, EPILOG)
    add_home(parser)
    parser.add_argument("--json", action="store_true", help="write the list as JSON")
    parser.add_argument(
        "--store",
        metavar="URL",
        help="the database whose nodes are listed, without a password "
        f"(default: {STORE_VARIABLE}, then `store` of config.toml)",
    )
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


def _node_as_json(node: Node) -> dict[str, object]:
    return {
        "id": node.id,
        "state": _state(node),
        "host": node.host,
        "pid": node.holder.pid,
        "version": node.version,
        "startedAt": node.holder.started_at,
        "address": node.holder.address,
        "leaseLeftSeconds": None if node.is_dead else round(node.lease_left_s, 1),
        "threads": node.threads,
    }


def _state(node: Node) -> str:
    if node.is_dead:
        return "dead"
    return "running" if node.lease_left_s > 0 else "silent"


def render_nodes(nodes: Sequence[Node], now: int) -> list[str]:
    """Write the nodes of a database for people."""
    lines = []
    for node in nodes:
        count = f"{node.threads} thread{'' if node.threads == 1 else 's'}"
        head = f"node {node.id}  process {node.holder.pid} on {node.host}"
        match _state(node):
            case "dead":
                lines.append(f"dead: {head}; it left {count} to the others")
                continue
            case "silent":
                lease = f"silent: its lease ran out {_duration(round(-node.lease_left_s))} ago"
            case _:
                lease = f"lease {node.lease_left_s:.1f} s"
        since = (
            ""
            if node.holder.started_at is None
            else (f"  since {_duration(now - node.holder.started_at)}")
        )
        lines.append(f"{head}  version {node.version}{since}  {lease}  {count}")
        if node.holder.address is not None:
            lines.append(f"  {node.holder.address}")
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
