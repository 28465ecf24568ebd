"""app-server signal wake: what wakes threads of a running server, set, listed and cancelled.

Source: docs/wakes.md.
"""

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path

from app_server.clients.command_line import whole_number
from app_server.peer.connection import Client
from app_server.runtime.standard_streams import one_line, print_now
from protocol.model import JsonObject

ACTIONS = ("set", "list", "cancel")
STATES = ("armed", "fired", "delivered", "cancelled", "lost")
CHANGES = ("created", "modified", "deleted", "any")
MAX_S = 366 * 24 * 3600
MAX_PAGE = 100

EPILOG = """\
examples:
  app-server signal wake set --thread ID --in 3600 "Look whether the release is out."
  app-server signal wake set --thread ID --every 86400 --at 2026-12-01T03:00:00Z "Nightly check."
  app-server signal wake set --thread ID --file /srv/report.txt --change created
  app-server signal wake list --thread ID --state armed
  app-server signal wake cancel --thread ID WAKE"""


def add_wake(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", where: argparse.ArgumentParser
) -> None:
    """Describe the command line of `wake`; `where` has the options of the server."""
    wake = commands.add_parser(
        "wake",
        parents=[where],
        help="have a thread woken by a time, a process or a file",
        description="Have a thread go on by itself: at a time, or with an event.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = wake.add_subparsers(dest="action", required=True, metavar="|".join(ACTIONS))
    armed = actions.add_parser(
        "set", parents=[where], help="arm a wake and print it", description="Arm a wake."
    )
    armed.add_argument("--thread", required=True, metavar="ID", help="the thread")
    when = armed.add_argument_group("when; one of these, and --at also with --every")
    when.add_argument("--at", type=_time, metavar="TIME", help="such as 2026-12-01T08:00:00Z")
    when.add_argument("--in", type=whole_number(1, MAX_S), dest="after", metavar="SECONDS")
    when.add_argument("--every", type=whole_number(60, MAX_S), metavar="SECONDS")
    when.add_argument("--process", metavar="ID", help="the end of a command of the thread")
    when.add_argument("--file", type=_absolute, metavar="PATH", help="a change of a file")
    armed.add_argument("--until", type=_time, metavar="TIME", help="with --every: the last time")
    armed.add_argument("--change", choices=CHANGES, default="any", help="of --file (default: any)")
    armed.add_argument("--queue", action="store_true", help="begin no turn for it")
    armed.add_argument("note", nargs="?", default="", metavar="NOTE", help="what the model reads")
    shown = actions.add_parser(
        "list", parents=[where], help="print wakes", description="Print wakes, newest first."
    )
    shown.add_argument("--thread", metavar="ID", help="of this thread alone")
    shown.add_argument("--state", choices=STATES, help="that are in this state")
    shown.add_argument("--limit", type=whole_number(1), default=25, metavar="N", help="how many")
    cancelled = actions.add_parser(
        "cancel", parents=[where], help="cancel a wake", description="Cancel a wake."
    )
    cancelled.add_argument("--thread", required=True, metavar="ID", help="the thread")
    cancelled.add_argument("wake", metavar="WAKE", help="its id; `list` shows it")


def _time(text: str) -> int:
    """Read a time as Unix milliseconds; without a zone it is that of the machine."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a time such as 2026-12-01T08:00:00Z") from None


def _absolute(path: str) -> str:
    return str(Path(path).absolute())


def source_of(options: argparse.Namespace) -> JsonObject:
    """Return the source that options name.

    Raises:
        ValueError: they name none, or several.
    """
    given = {
        name: getattr(options, name)
        for name in ("at", "after", "every", "process", "file")
        if getattr(options, name) is not None
    }
    if len(given) != 1 and set(given) != {"at", "every"}:
        raise ValueError("give one of --at, --in, --every, --process and --file")
    if options.until is not None and "every" not in given:
        raise ValueError("--until is for --every")
    if "process" in given:
        return {"type": "process", "processId": options.process}
    if "file" in given:
        return {"type": "file", "path": options.file, "change": options.change}
    at_ms = options.at
    if "after" in given:
        at_ms = time.time_ns() // 1_000_000 + options.after * 1000
    return {
        "type": "timer",
        "atMs": at_ms,
        "everySecs": options.every,
        "untilMs": options.until,
    }


async def run_wake(options: argparse.Namespace, client: Client) -> int:
    """Do what the command line says with a connected server; returns the exit status.

    Raises:
        RpcError: the server refuses.
        ValueError: the options do not fit together.
    """
    match options.action:
        case "set":
            params = {
                "threadId": options.thread,
                "source": source_of(options),
                "note": options.note,
                "mode": "queue" if options.queue else "wake",
            }
            _print((await client.call("thread/wake/set", params))["wake"])
        case "cancel":
            named = {"threadId": options.thread, "wakeId": options.wake}
            _print((await client.call("thread/wake/cancel", named))["wake"])
        case _:
            await _list(options, client)
    return 0


async def _list(options: argparse.Namespace, client: Client) -> None:
    left, cursor = options.limit, None
    while left:
        asked = {
            "threadId": options.thread,
            "state": options.state,
            "cursor": cursor,
            "limit": min(left, MAX_PAGE),
        }
        page = await client.call("thread/wake/list", asked)
        for wake in page["data"]:
            _print(wake)
        left -= len(page["data"])
        cursor = page["nextCursor"]
        if cursor is None:
            return


def _print(wake: JsonObject) -> None:
    words = [_shown(wake["changedAtMs"]), wake["state"], wake["id"], f"thread={wake['threadId']}"]
    source = wake["source"]
    match source["type"]:
        case "timer":
            if wake["nextAtMs"] is not None:
                words.append(f"at={_shown(wake['nextAtMs'])}")
            if source["everySecs"] is not None:
                words.append(f"every={source['everySecs']}")
        case "process":
            words.append(f"process={source['processId']}")
        case "file":
            words.append(f"file={source['path']} change={source['change']}")
    if wake["error"] is not None:
        words.append(f"({wake['error']['code']}: {wake['error']['message']})")
    if wake["note"]:
        words.append(wake["note"])
    print_now(one_line(" ".join(words)))


def _shown(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
