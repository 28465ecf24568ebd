"""Races requests about a thread against its deletion, from two clients, and looks what is left.

python -m tests.long.delete_races [--rounds 50] [--seed N] [--servers 2] [--only METHOD ...]

Each method meets `thread/delete` in as many rounds, half of them with the thread loaded. The
deletion must succeed, whatever the other request does: afterwards no list, file, lock or row of the
index has the thread, also after a restart. No answer may be an internal error, or that somebody
else writes the thread. With two servers on one home, one for each client, either client may be told
that the other server writes it; a deletion that is refused must leave the thread as it is. The exit
status is 1 otherwise.
"""

import argparse
import asyncio
import random
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.harness import Served, WireClient, serve

TEXT = [{"type": "text", "text": "hi"}]
ITEM = {
    "type": "message",
    "role": "developer",
    "content": [{"type": "input_text", "text": "hi"}],
}
ATTACHMENT = {"attachmentType": "note", "identityKey": "k"}
SIGNAL = {"source": "router", "type": "Question", "sender": "ann", "summary": "s", "payload": {}}

REQUESTS: dict[str, dict[str, Any]] = {
    "thread/archive": {},
    "thread/unarchive": {},
    "thread/name/set": {"name": "n"},
    "thread/metadata/update": {"gitInfo": {"branch": "b"}},
    "thread/memoryMode/set": {"mode": "disabled"},
    "thread/readState/update": {"operation": {"type": "read"}},
    "thread/section/move": {"sectionId": None},
    "thread/goal/set": {"objective": "o", "status": "paused"},
    "thread/goal/clear": {},
    "thread/attachment/add": {**ATTACHMENT, "payload": 1},
    "thread/queue/add": {"input": TEXT, "clientUserMessageId": "m"},
    "thread/inject_items": {"items": [ITEM]},
    "thread/settings/update": {"model": "other"},
    "thread/revert": {},
    "thread/compact/start": {},
    "thread/fork": {},
    "thread/resume": {},
    "thread/unsubscribe": {"unload": True},
    "thread/read": {"includeTurns": True},
    "thread/turns/list": {},
    "turn/start": {"input": TEXT},
    "signal/deliver": {"mode": "passive"},
}
"""Besides the id of the thread."""

REFUSED = {"threadNotFound", "threadArchived"}
"""The errors of a request that came too late."""
BUSY = "threadBusy"
"""Its error beside another server."""


@dataclass
class Outcome:
    """What rounds have shown."""

    rounds: Counter[str] = field(default_factory=Counter)
    """By method."""
    problems: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By method, and what was wrong."""


async def race(
    servers: tuple[Served, Served],
    clients: tuple[WireClient, WireClient],
    method: str,
    rng: random.Random,
) -> list[str]:
    """Let a request meet the deletion of its thread once; returns what was wrong."""
    first, second = clients
    is_alone = servers[0] is servers[1]
    thread_id, params = await _prepare(first, method, loaded=rng.random() < 0.5)
    requests = [(first, method, params), (second, "thread/delete", {"threadId": thread_id})]
    rng.shuffle(requests)
    answers: dict[str, Any] = {}
    ids = []
    for client, name, values in requests:
        ids.append((client, name, await client.request(name, values)))
        for _ in range(rng.randrange(4)):
            # As long as a small request takes.
            await client.call("thread/loaded/list", {})
    for client, name, number in ids:
        answers[name] = await client.answer(number)
    problems = []
    for name, answer in answers.items():
        error = answer.get("error")
        word = "" if error is None else (error.get("data") or {}).get("code", error["message"])
        if word == BUSY and not is_alone:
            continue
        if error is not None and (name == "thread/delete" or word not in REFUSED):
            problems.append(f"{name}: {error['code']} {word}")
    if "result" not in answers["thread/delete"]:
        problems += await _still_there(first, thread_id)
        return problems
    problems += await left_of(second, servers[0].home, thread_id)
    refusal = await second.answer(await second.request("thread/delete", {"threadId": thread_id}))
    if "error" not in refusal:
        problems.append("deleted twice")
    # By now it has received what came before this answer.
    await first.call("thread/loaded/list", {})
    if is_alone:
        problems += [text for client in clients for text in _sent_after(client, thread_id)]
    return problems


def _sent_after(client: WireClient, thread_id: str) -> list[str]:
    """Return what a client was sent of a thread after `thread/deleted`."""
    methods = [
        message["method"]
        for message in client.take_kept()
        if (message.get("params") or {}).get("threadId") == thread_id
    ]
    last = methods.index("thread/deleted") if "thread/deleted" in methods else None
    if last is None:
        return ["thread/deleted was not sent"]
    return [f"{method} came after thread/deleted" for method in methods[last + 1 :]]


async def _prepare(client: WireClient, method: str, *, loaded: bool) -> tuple[str, dict[str, Any]]:
    """Make a thread that lists show; returns its id and the params of the request."""
    thread_id = await client.start_thread()
    turn = await client.turn(thread_id, "a preview")
    here = {"threadId": thread_id}
    params = {**here, **REQUESTS[method]}
    if method == "thread/unarchive":
        await client.call("thread/archive", here)
    elif not loaded:
        await client.call("thread/unsubscribe", {**here, "unload": True})
    if method == "thread/revert":
        params["beforeTurnId"] = turn["id"]
    elif method == "thread/readState/update":
        read_state = (await client.call("thread/read", here))["readState"]
        params["expectedRevision"] = read_state["revision"]
    elif method == "signal/deliver":
        del params["threadId"]
        params |= {"signal": {**SIGNAL, "id": thread_id}, "target": here}
    return thread_id, params


async def _still_there(client: WireClient, thread_id: str) -> list[str]:
    answer = await client.answer(await client.request("thread/read", {"threadId": thread_id}))
    return [] if "result" in answer else ["not there, though its deletion was refused"]


async def left_of(client: WireClient, home: Path, thread_id: str) -> list[str]:
    """Say where a thread that was deleted still shows."""
    problems = []
    for archived in (False, True):
        page = await client.call("thread/list", {"archived": archived, "limit": 100})
        if any(thread["id"] == thread_id for thread in page["data"]):
            problems.append(f"listed with archived={archived}")
    files = list(home.rglob(f"{thread_id}*"))
    problems += [f"left: {path.suffix}" for path in files]
    with closing(sqlite3.connect(home / "index" / "threads.sqlite3")) as database:
        if database.execute("SELECT 1 FROM threads WHERE id = ?", (thread_id,)).fetchone():
            problems.append("left: row")
    return problems


async def run_rounds(
    home: Path,
    rounds: int,
    rng: random.Random,
    methods: Iterable[str] = REQUESTS,
    *,
    servers: int = 1,
) -> Outcome:
    """Race every method as many times as there are rounds, then look again after a restart."""
    outcome = Outcome()
    async with AsyncExitStack() as stack:
        served = [await stack.enter_async_context(serve(home)) for _ in range(servers)]
        first = await stack.enter_async_context(served[0].client())
        second = await stack.enter_async_context(served[-1].client())
        for method in methods:
            for _ in range(rounds):
                problems = await race((served[0], served[-1]), (first, second), method, rng)
                outcome.rounds[method] += 1
                outcome.problems.update((method, problem) for problem in problems)
    async with serve(home) as again, again.client() as client:
        for archived in (False, True):
            page = await client.call("thread/list", {"archived": archived, "limit": 100})
            for thread in page["data"]:
                if not Path(thread["path"]).exists():
                    outcome.problems["restart", f"listed with archived={archived}"] += 1
    return outcome


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=50, metavar="N", help="of each method")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), metavar="N")
    parser.add_argument("--servers", type=int, default=1, choices=[1, 2])
    parser.add_argument("--only", action="append", choices=REQUESTS, metavar="METHOD")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rng = random.Random(options.seed)
        outcome = asyncio.run(
            run_rounds(
                Path(folder),
                options.rounds,
                rng,
                options.only or REQUESTS,
                servers=options.servers,
            )
        )
    for method, count in outcome.rounds.items():
        found = {what: n for (name, what), n in outcome.problems.items() if name == method}
        print(f"{method}: {count} rounds; {found or 'nothing wrong'}")
    for (name, what), n in outcome.problems.items():
        if name == "restart":
            print(f"after a restart: {what}: {n}")
    total = outcome.problems.total()
    print(f"seed {options.seed}: {outcome.rounds.total()} rounds, {total} problems")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
