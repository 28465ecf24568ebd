"""`app-server usage`: from a command line to a table of what models and tools have used."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence

import anyio

from app_server.clients.chosen_server import NoOneServer, server_address, server_parser
from app_server.clients.command_line import command_parser
from app_server.peer.address import HandshakeRefused, ServerAddress
from app_server.peer.connection import open_client
from app_server.peer.token_file import NoToken, TokenWanted
from app_server.runtime.standard_streams import lacks_working_directory, one_line, print_now
from protocol.jsonrpc.errors import RpcError
from protocol.model import JsonObject

GROUPS = ("thread", "turn", "model", "day", "origin", "folder")
PAGE = 100
"""Groups that a server is asked for at a time."""

DESCRIPTION = """\
Print what models and tools have used, as the logs of the threads have it: tokens, requests, seconds
and cost. Prices are those of [model_prices] in config.toml; there are none built in."""

EPILOG = """\
examples:
  app-server usage                            by day, of all threads
  app-server usage --by model --since 2026-11-01
  app-server usage --by turn --thread ID
  app-server usage --by folder --json         the same for programs, as one JSON object

The server is the one at --url, else the one that runs with --home, else the one that
APP_SERVER_URL names, else the one that runs with the usual home folder. Days are days in UTC.
The exit status is 0, 1 if the server cannot be asked, and 2 for a wrong call."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 1 for a failure, 2 for a wrong call."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.by == "turn" and options.thread is None:
        parser.error("--by turn needs --thread")
    try:
        server = server_address(
            options.url, options.home, options.token_file, "app-server usage", "--url"
        )
    except NoOneServer as exc:
        print(f"app-server usage: {exc}", file=sys.stderr)
        return exc.exit_status
    except ValueError as exc:
        parser.error(str(exc))
    except OSError as exc:
        if lacks_working_directory(exc):
            raise
        return _failed(f"{exc.filename}: {exc.strerror}")
    try:
        usage = asyncio.run(_read(server, options))
    except RpcError as exc:
        return _failed(exc.message)
    except (NoToken, TokenWanted, HandshakeRefused) as exc:
        return _failed(str(exc))
    except (OSError, anyio.EndOfStream) as exc:
        return _failed(f"no server answers at {server.url}: {str(exc) or 'the connection ended'}")
    except KeyboardInterrupt:
        return 130
    print_now(json.dumps(usage, indent=2) if options.json else "\n".join(render(usage, options.by)))
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = command_parser("app-server usage", DESCRIPTION, EPILOG, parents=[server_parser()])
    parser.add_argument(
        "--by", choices=GROUPS, default="day", help="what is summed up (default: %(default)s)"
    )
    parser.add_argument("--thread", metavar="ID", help="of this thread alone")
    parser.add_argument("--since", metavar="DAY", help="the first day, YYYY-MM-DD")
    parser.add_argument("--until", metavar="DAY", help="the last day")
    parser.add_argument("--json", action="store_true", help="write the figures as JSON")
    return parser


async def _read(server: ServerAddress, options: argparse.Namespace) -> JsonObject:
    """Ask for all pages; returns one answer with the groups of all."""
    params = {
        "groupBy": options.by,
        "threadId": options.thread,
        "since": options.since,
        "until": options.until,
        "limit": PAGE,
    }
    async with open_client(
        server.url, "app-server-usage", token_file=server.token_file, experimentalApi=True
    ) as client:
        answer: JsonObject = await client.call("usage/read", params)
        groups: list[JsonObject] = answer["data"]
        while (cursor := answer["nextCursor"]) is not None:
            answer = await client.call("usage/read", {**params, "cursor": cursor})
            groups += answer["data"]
    return {**answer, "data": groups}


HEADINGS = ("in", "cached", "out", "reasoning", "requests", "model s", "tools s", "cost")


def render(usage: JsonObject, by: str) -> list[str]:
    """Write the figures for people."""
    rows: list[tuple[str, ...]] = [(by, *HEADINGS)]
    rows += [(one_line(row["group"]), *_figures(row["usage"])) for row in usage["data"]]
    rows.append(("total", *_figures(usage["total"])))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [word.rjust(width) for word, width in zip(row[1:], widths[1:], strict=True)]
        ).rstrip()
        for row in rows
    ]
    total = usage["total"]
    if total["unreportedRequests"]:
        lines.append(f"of {total['unreportedRequests']} requests the model reported no tokens")
    if total["unpricedTokens"]:
        lines.append(f"{total['unpricedTokens']} tokens are of models without a price")
    if usage.get("pricesSource") is not None:
        lines.append(f"prices: {usage['pricesSource']}")
    return lines


def _figures(usage: JsonObject) -> tuple[str, ...]:
    cost = ", ".join(f"{money['amount']} {money['currency']}" for money in usage["cost"])
    return (
        str(usage["inputTokens"]),
        str(usage["cachedInputTokens"]),
        str(usage["outputTokens"]),
        str(usage["reasoningOutputTokens"]),
        str(usage["requests"]),
        f"{usage['modelMs'] / 1000:.1f}",
        f"{usage['toolMs'] / 1000:.1f}",
        cost or "-",
    )


def _failed(text: str) -> int:
    print(f"app-server usage: {text}", file=sys.stderr)
    return 1
