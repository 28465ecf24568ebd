"""`app-server bench`: from a command line to a table of figures."""

import argparse
import asyncio
import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from app_server.clients.bench.rows import ROWS
from app_server.clients.bench.run import BLOCKS, Measured, bench
from app_server.clients.chosen_server import URL_VARIABLE, NoOneServer, server_address
from app_server.clients.command_line import add_home, command_parser, whole_number
from app_server.host.listening import listener_of
from app_server.peer.address import ServerAddress, check_server_url
from app_server.peer.token_file import TOKEN_FILE_HELP, chosen_token_file
from app_server.runtime.standard_streams import lacks_working_directory
from protocol.jsonrpc.errors import RpcError

STEPS = 200

DESCRIPTION = """\
Measure running app-servers side by side: how long a client waits for each kind of call, and what
the server's process uses of a processor for it. Any server of this wire can be measured. Threads
are answered by a model of this command, which answers at once, so nothing leaves the machine."""

EPILOG = """\
what is shown, in milliseconds for one call:
  p50    half of the calls took no longer; calls are made one after another, except where a row says
         how many are in flight, whose time together is divided by their number
  p99    of a hundred calls 99 took no longer. A busy machine shows here first
  cpu    processor time of the process that listens, on all its threads, without its children.
         Linux only, and of processes that you may look at; `-` where it cannot be read
With several URLs the last two columns of each are its p50 and cpu divided by those of the first.

how to get figures that mean something:
  Give all servers in one call: they are measured in turns, so what else the machine does meets
  all of them. Compare ratios, and cpu before p50: cpu hardly depends on what else runs.
  Start each server with a home folder of its own: lists show what is in a home. Threads that are
  made here are deleted again, by a server that can do that.

examples:
  app-server --listen ws://127.0.0.1:4500 --home /tmp/one &
  app-server bench --home /tmp/one                          the one server of this home folder
  app-server bench ws://127.0.0.1:4600 ws://127.0.0.1:4500  two: the second beside the first
  app-server bench ws://127.0.0.1:4500 --row thread/list --steps 2000
  app-server bench ws://127.0.0.1:4500 --json               for programs, as JSON on stdout

The table goes to stdout, progress to stderr. The exit status is 0, 1 when a server cannot be
measured, and 2 for a wrong call."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 1 for a failure, 2 for a wrong call."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    rows = [row for row in ROWS if options.row is None or options.row in row.name]
    if not rows:
        names = ", ".join(row.name for row in ROWS)
        parser.error(f"--row {options.row!r} is part of no row: {names}")
    count = max(len(options.urls), 1)
    if options.pid and len(options.pid) != count:
        parser.error("--pid must be given once for every URL, in their order, or not at all")
    if options.token_file and len(options.token_file) not in (1, count):
        parser.error("--token-file must be given once, or once for every URL in their order")
    try:
        for url in options.urls:
            check_server_url(url)
    except ValueError as exc:
        parser.error(str(exc))
    try:
        servers = _servers(options)
        pids = options.pid or [server.pid or _process_at(server.url) for server in servers]
        targets = [replace(server, pid=pid) for server, pid in zip(servers, pids, strict=True)]
        measured = asyncio.run(bench(targets, rows, options.steps, _report))
    except NoOneServer as exc:
        print(f"app-server bench: {exc}", file=sys.stderr)
        return exc.exit_status
    except (OSError, ValueError, RpcError) as exc:
        if isinstance(exc, OSError) and lacks_working_directory(exc):
            raise
        print(f"app-server bench: {exc}", file=sys.stderr)
        return 1
    print(as_json(targets, measured) if options.json else "\n".join(table(targets, measured)))
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = command_parser("app-server bench", DESCRIPTION, EPILOG)
    parser.add_argument(
        "urls",
        nargs="*",
        metavar="URL",
        help="ws://HOST:PORT or unix://PATH of a running server (default: the one that runs with "
        f"the home folder; without --home {URL_VARIABLE} may name another one)",
    )
    add_home(parser)
    parser.add_argument(
        "--steps",
        type=whole_number(1),
        default=STEPS,
        metavar="N",
        help=f"steps of each row (default: %(default)s, in {BLOCKS} blocks); slow rows make fewer",
    )
    parser.add_argument("--row", metavar="TEXT", help="only rows with this in their name")
    parser.add_argument(
        "--pid",
        type=whole_number(1),
        action="append",
        metavar="PID",
        help="the server's process, once for every URL in their order "
        "(default: whichever listens there)",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        action="append",
        metavar="FILE",
        help=f"{TOKEN_FILE_HELP}; once for all servers, or once for every URL in their order",
    )
    parser.add_argument("--json", action="store_true", help="write the figures as JSON")
    return parser


def _servers(options: argparse.Namespace) -> list[ServerAddress]:
    """Return the servers that the options name, or the one that runs.

    Raises:
        NoOneServer, OSError
    """
    files = options.token_file or [None]
    if not options.urls:
        return [server_address(None, options.home, files[0], "app-server bench")]
    if len(files) == 1:
        files = files * len(options.urls)
    return [
        ServerAddress(url, chosen_token_file(file, os.environ))
        for url, file in zip(options.urls, files, strict=True)
    ]


def _process_at(url: str) -> int | None:
    port = urlsplit(url).port
    return None if port is None else listener_of(port)


def table(targets: Sequence[ServerAddress], measured: Sequence[Measured]) -> list[str]:
    """Write the figures for people: a legend, then a line for each row."""
    lines = [
        f"{_letter(number)}  {target.url}  pid {'-' if target.pid is None else target.pid}"
        for number, target in enumerate(targets)
    ]
    width = max(len(row.name) for row in measured)
    header = " " * width
    for number in range(len(targets)):
        columns = [f"{_letter(number)} {name}" for name in ("p50", "p99", "cpu")]
        header += "".join(f"{column:>9}" for column in columns)
        header += "".join(f"{column:>6}" for column in ("p50/", "cpu/")) if number else ""
    lines += ["", header]
    for row in measured:
        first, line = row.figures[0], f"{row.name:{width}}"
        for number, figures in enumerate(row.figures):
            values = (figures.p50_ms, figures.p99_ms, figures.processor_ms)
            line += "".join(f"{_shown(value, 3):>9}" for value in values)
            if number:
                line += f"{_shown(_ratio(figures.p50_ms, first.p50_ms), 2):>6}"
                line += f"{_shown(_ratio(figures.processor_ms, first.processor_ms), 2):>6}"
        lines.append(line)
    return lines


def as_json(targets: Sequence[ServerAddress], measured: Sequence[Measured]) -> str:
    """Write the figures for programs."""
    rows = [
        {
            "name": row.name,
            "figures": [
                {"p50Ms": one.p50_ms, "p99Ms": one.p99_ms, "processorMs": one.processor_ms}
                for one in row.figures
            ],
        }
        for row in measured
    ]
    shown = [{"url": target.url, "pid": target.pid} for target in targets]
    return json.dumps({"targets": shown, "rows": rows}, indent=2)


def _letter(number: int) -> str:
    return chr(ord("A") + number % 26)


def _ratio(value: float | None, first: float | None) -> float | None:
    return None if value is None or not first else value / first


def _shown(value: float | None, digits: int) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
