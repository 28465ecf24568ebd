"""app-server signal: put a message into a thread of a running server, and follow it."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from app_server.cli.wake import ACTIONS, add_wake, run_wake, source_of
from app_server.clients.chosen_server import NoOneServer, server_address, server_parser
from app_server.clients.command_line import command_parser, whole_number
from app_server.peer.address import UNIX, HandshakeRefused, ServerAddress
from app_server.peer.connection import Client, open_client
from app_server.peer.token_file import NoToken, TokenWanted
from app_server.runtime.clock import SystemClock
from app_server.runtime.standard_streams import lacks_working_directory, one_line, print_now
from protocol.jsonrpc.errors import OVERLOADED, RpcError
from protocol.model import JsonObject

SOURCE = "app-server signal"
COMMANDS = ("send", "list", "recall", "wake")
ADDRESSES = ("ws://", "wss://", UNIX)
ENDS = ("answered", "expired", "recalled", "failed")
STAGES = ("accepted", "inHistory", "seen", *ENDS)
RETRIES = 5
"""Tries of a delivery whose answer got lost, or that the server put off; it is safe to repeat."""
RETRY_S = 0.5
MAX_TTL_S = 2**32 - 1
"""Seconds: the largest TTL on the wire."""

EPILOG = """\
examples:
  app-server signal send --cwd . --from ann --type Question --wake "Is the build green?"
  app-server signal send --thread ID --from ci --type StatusUpdate "main is red"
  app-server signal list --thread ID
  app-server signal list ws://127.0.0.1:4500
  app-server signal recall ID
  app-server signal wake set --thread ID --in 3600 "Is the release out?"

A thread is chosen by its id, by its working directory (the one that was last active there) or by
its name. Without --wake the message waits for the thread's next turn. With --wake an idle thread
begins one. `send` prints the receipt; with --wait it follows the signal until it is answered.
The server is the one at --url, or whose address stands right behind the command, else the one that
runs with --home, else the one that APP_SERVER_URL names, else the one that runs with the usual home
folder; of several the addresses are listed. Where a server that is named wants a token,
--token-file or APP_SERVER_TOKEN_FILE names the file that has it; of one that is found it is
known."""

SEND_EPILOG = """\
examples:
  app-server signal send --cwd . --from ann --type Question --wake --wait "Is the build green?"
                            the thread that was last active in this folder answers at once
  app-server signal send --thread ID --from ci --type StatusUpdate --id build-512 "main is red"
                            the thread reads it at its next turn; sent again it is one signal

The exit status is 1 if the signal failed or nobody took it in time (--ttl)."""


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit status: 0, 1 for a failure, 2 for a wrong call."""
    parser = make_parser()
    options = parser.parse_args(_with_url(arguments))
    if options.command == "send" and options.steer and not options.wake:
        parser.error("--steer is for signals that wake: give --wake too")
    if options.command == "wake" and options.action == "set":
        try:
            source_of(options)
        except ValueError as exc:
            parser.error(str(exc))
    command, status = f"app-server signal {options.command}", 1
    try:
        server = server_address(options.url, options.home, options.token_file, command, "--url")
    except NoOneServer as exc:
        print(f"app-server signal: {exc}", file=sys.stderr)
        return exc.exit_status
    except ValueError as exc:
        parser.error(str(exc))
    except OSError as exc:
        if lacks_working_directory(exc):
            raise
        print(f"app-server signal: {exc.filename}: {exc.strerror}", file=sys.stderr)
        return 1
    try:
        return asyncio.run(_run(options, server))
    except (RpcError, OSError, anyio.EndOfStream) as exc:
        problem = _told(exc, server.url)
    except ValueError as exc:
        problem, status = str(exc), 2
    except KeyboardInterrupt:
        return 130
    print(f"app-server signal: {problem}", file=sys.stderr)
    return status


def _told(failure: Exception, url: str) -> str:
    """Say why a server was not asked, or did not do it.

    Raises:
        OSError: the working directory is gone, which an address is relative to.
    """
    if isinstance(failure, RpcError):
        return failure.message
    if isinstance(failure, NoToken | TokenWanted | HandshakeRefused):
        return str(failure)
    if isinstance(failure, PermissionError):
        return f"{url} is of another user: only that user may connect"
    is_relative = url.startswith(UNIX) and not Path(url.removeprefix(UNIX)).is_absolute()
    if is_relative and isinstance(failure, OSError) and lacks_working_directory(failure):
        raise failure
    return (
        f"no server answers at {url}: {str(failure) or 'the connection ended'}\n"
        "Start one with `app-server --listen ws://127.0.0.1:4500`, or name it with --url."
    )


def _with_url(arguments: Sequence[str]) -> Sequence[str]:
    """Take an address right behind the command for that of the server, as `inspect` does."""
    for at, word in enumerate(arguments):
        following = arguments[at + 1 : at + 2]
        if word in (*COMMANDS, *ACTIONS) and following and following[0].startswith(ADDRESSES):
            return [*arguments[: at + 1], "--url", *arguments[at + 1 :]]
    return arguments


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = command_parser(
        "app-server signal",
        "Put messages from outside into threads, once each, with receipts.",
        EPILOG,
        parents=[server_parser()],
    )
    # They may also stand behind the command.
    where = server_parser(
        "a file with the token that the server wants", argument_default=argparse.SUPPRESS
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))
    send = commands.add_parser(
        "send",
        parents=[where],
        help="deliver a signal and print its receipt",
        description="Put a message into a thread, and print its receipt.",
        epilog=SEND_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    target = send.add_mutually_exclusive_group(required=True)
    target.add_argument("--thread", metavar="ID", help="to the thread with this id")
    target.add_argument(
        "--cwd", type=_absolute, metavar="DIR", help="to the thread that was last active there"
    )
    target.add_argument("--name", metavar="NAME", help="to the thread with this name")
    send.add_argument("--from", dest="sender", required=True, metavar="NAME", help="who writes")
    send.add_argument("--type", required=True, metavar="TYPE", help="such as Question")
    send.add_argument("--source", default=SOURCE, help="the system it comes from")
    send.add_argument("--id", help="the signal's id; the same one twice is one signal")
    send.add_argument("--wake", action="store_true", help="let an idle thread begin a turn")
    send.add_argument(
        "--steer",
        action="store_true",
        help="with --wake: go into the turn that runs, if there is one",
    )
    send.add_argument(
        "--ttl",
        type=whole_number(0, MAX_TTL_S),
        metavar="SECONDS",
        help="let it expire unless it is in the thread by then",
    )
    send.add_argument("--wait", action="store_true", help="follow it until it is answered")
    send.add_argument("text", metavar="TEXT", help="what the thread reads")
    shown = commands.add_parser(
        "list",
        parents=[where],
        help="print receipts, newest first",
        description="Print receipts, newest first: stage, id, thread, and what became of it.",
    )
    shown.add_argument("--thread", metavar="ID", help="of this thread alone")
    shown.add_argument("--stage", choices=STAGES, help="that are at this stage")
    shown.add_argument(
        "--limit",
        type=whole_number(1),
        default=25,
        metavar="N",
        help="how many (default: %(default)s)",
    )
    recall = commands.add_parser(
        "recall",
        parents=[where],
        help="take a signal back that no model has seen",
        description="Take a signal back that no model has seen. `list` shows the ids.",
    )
    recall.add_argument("--source", default=SOURCE, help="the system it came from")
    recall.add_argument("id", metavar="ID", help="the signal's id")
    add_wake(commands, where)
    return parser


def _absolute(folder: str) -> str:
    return str(Path(folder).absolute())


async def _run(options: argparse.Namespace, server: ServerAddress) -> int:
    match options.command:
        case "send":
            return await _send(options, server)
        case "list":
            return await _list(options, server)
        case "wake":
            async with _open(server) as client:
                return await run_wake(options, client)
    async with _open(server) as client:
        params = {"source": options.source, "id": options.id}
        _print((await client.call("signal/recall", params))["receipt"])
    return 0


def _open(server: ServerAddress) -> Any:
    return open_client(
        server.url, "app-server-signal", token_file=server.token_file, experimentalApi=True
    )


async def _send(options: argparse.Namespace, server: ServerAddress) -> int:
    params = _delivery(options)
    for attempt in range(RETRIES):
        last = attempt == RETRIES - 1
        try:
            async with _open(server) as client:
                receipt = (await client.call("signal/deliver", params))["receipt"]
                _print(receipt)
                if options.wait:
                    receipt = await _follow(client, receipt)
                return 0 if receipt["stage"] not in ("failed", "expired") else 1
        except RpcError as exc:
            if last or exc.code != OVERLOADED:
                raise
        except (anyio.EndOfStream, TimeoutError):
            if last:
                raise
        await anyio.sleep(RETRY_S * 2**attempt)
    raise AssertionError("the last try returns or raises")


async def _follow(client: Client, receipt: JsonObject) -> JsonObject:
    key = receipt["source"], receipt["signalId"]

    def is_ours(params: JsonObject) -> bool:
        event = params["receipt"]
        return (event["source"], event["signalId"]) == key

    while receipt["stage"] not in ENDS:
        event = await client.wait_for("signal/updated", is_ours, timeout_s=float("inf"))
        # What had happened before the answer is told after it too.
        if STAGES.index(event["receipt"]["stage"]) > STAGES.index(receipt["stage"]):
            receipt = event["receipt"]
            _print(receipt)
    return receipt


def _delivery(options: argparse.Namespace) -> JsonObject:
    if options.thread is not None:
        target = {"threadId": options.thread}
    elif options.cwd is not None:
        target = {"cwd": options.cwd}
    else:
        target = {"name": options.name}
    return {
        "signal": {
            "id": options.id or SystemClock().new_id(),
            "source": options.source,
            "type": options.type,
            "sender": options.sender,
            "summary": options.text,
            "ttlSeconds": options.ttl,
        },
        "target": target,
        "mode": "wake" if options.wake else "passive",
        "onBusy": "steer" if options.steer else None,
    }


async def _list(options: argparse.Namespace, server: ServerAddress) -> int:
    left, cursor = options.limit, None
    async with _open(server) as client:
        while left:
            page = await client.call(
                "signal/list",
                {
                    "threadId": options.thread,
                    "stage": options.stage,
                    "cursor": cursor,
                    "limit": min(left, 100),
                },
            )
            for receipt in page["data"]:
                _print(receipt)
            left -= len(page["data"])
            cursor = page["nextCursor"]
            if cursor is None:
                break
    return 0


def _print(receipt: JsonObject) -> None:
    at = datetime.fromtimestamp(receipt["at"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    words = [at, receipt["stage"], receipt["signalId"], f"thread={receipt['threadId']}"]
    if receipt["turnId"] is not None:
        words.append(f"turn={receipt['turnId']}")
    if receipt["woken"]:
        words.append("woken")
    if receipt["error"] is not None:
        words.append(f"({receipt['error']['code']}: {receipt['error']['message']})")
    print_now(one_line(" ".join(words)))
