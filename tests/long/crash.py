"""Kills a server at random points, and looks each time whether anything was lost.

python -m tests.long.crash [--rounds 200] [--seed N]

In each round clients inject items, run turns, queue them, deliver signals, name threads and start
new ones, all at once, until
the server gets SIGKILL: after a random number of messages, while it starts, or while it makes its
index. Then nothing may be missing that was acknowledged, nothing may be there twice, and the index
must be what the logs say, or a row that the next start makes again. The exit status is 1 otherwise.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from app_server.threads.files.index.rebuild import check_log
from app_server.threads.files.ledger import Ledger as SignalLedger
from app_server.threads.files.repair import index_path, read_index
from app_server.threads.files.store import FileStore
from app_server.threads.log.state import ThreadState, begin
from protocol.log.rollout import HistoryAppended, InputQueued, SignalMark, ThreadCreated
from protocol.turns.items import TextUserInput
from tests.support.forks import ForkedProcess
from tests.support.harness import WireClient, WireError, write_config
from tests.support.model import ScriptedModel, says
from tests.support.processes import EXECUTABLE, Running, running
from tests.support.threads.rollouts import read_rollout

CLIENTS = 3
MAX_THREADS = 12


@dataclass
class Promise:
    """What clients were told of one thread."""

    path: Path
    acknowledged: list[str] = field(default_factory=list)
    """Texts whose request was answered, in the order of the requests."""
    asked: Counter[str] = field(default_factory=Counter)
    names: list[str | None] = field(default_factory=lambda: [None])
    """The last name that was acknowledged, and those that were asked for since."""
    items: list[Any] = field(default_factory=list)
    """Items that were announced as completed."""
    queued: list[str] = field(default_factory=list)
    """Texts whose place in the queue was acknowledged."""
    delivered: list[str] = field(default_factory=list)
    """Ids of signals that were acknowledged."""
    ended: dict[str, str] = field(default_factory=dict)
    """Turns that were announced as completed, and how."""


@dataclass
class Ledger:
    """What was promised in all rounds, and the dice."""

    home: Path
    chance: random.Random
    promises: dict[str, Promise] = field(default_factory=dict)
    count: int = 0

    def new_text(self, kind: str) -> str:
        """Return a text that is never used again."""
        self.count += 1
        return f"{kind} {self.count}"


class Worker:
    """One client, which works on one thread until the server dies."""

    def __init__(self, ledger: Ledger, client: WireClient, heard: "Countdown") -> None:
        self._ledger = ledger
        self._client = client
        self._heard = heard
        self._pending: dict[int, tuple[str, str]] = {}
        self._promise: Promise | None = None

    async def work(self, thread_id: str | None) -> None:
        """Resume a thread, or start one, and send requests without waiting for answers."""
        params = {"threadId": thread_id, "excludeTurns": True}
        method = "thread/start" if thread_id is None else "thread/resume"
        thread = (await self._client.call(method, {} if thread_id is None else params))["thread"]
        self._promise = self._ledger.promises.setdefault(
            thread["id"], Promise(Path(thread["path"]))
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send, thread["id"])
            while True:
                self._handle(await self._client.receive())
                self._heard.down()

    async def _send(self, thread_id: str) -> None:
        chance, promise = self._ledger.chance, self._promise
        assert promise is not None
        while True:
            kind = chance.choice(("inject", "inject", "turn", "queue", "signal", "name"))
            text = self._ledger.new_text(kind)
            content = [{"type": "input_text", "text": text}]
            item = {"type": "message", "role": "developer", "content": content}
            requests: dict[str, tuple[str, dict[str, Any]]] = {
                "inject": ("thread/inject_items", {"items": [item]}),
                "turn": ("turn/start", {"input": [{"type": "text", "text": text}]}),
                "queue": (
                    "thread/queue/add",
                    {"input": [{"type": "text", "text": text}], "clientUserMessageId": text},
                ),
                "signal": ("signal/deliver", delivery(thread_id, text)),
                "name": ("thread/name/set", {"name": text}),
            }
            method, params = requests[kind]
            if kind == "name":
                promise.names.append(text)
            elif kind != "signal":
                promise.asked[text] += 1
            target = {} if kind == "signal" else {"threadId": thread_id}
            request = await self._client.request(method, {**target, **params})
            self._pending[request] = (kind, text)
            while len(self._pending) > 8:
                await asyncio.sleep(0)
                await self._heard.changed()

    def _handle(self, message: Any) -> None:
        promise = self._promise
        assert promise is not None
        params = message.get("params", {})
        match message.get("method"):
            case None if message["id"] in self._pending:
                kind, text = self._pending.pop(message["id"])
                if "error" in message:
                    if message["error"]["data"]["code"] == "queueFull":
                        return
                    raise WireError(message["error"])
                match kind:
                    case "name":
                        del promise.names[: promise.names.index(text)]
                    case "queue":
                        promise.queued.append(text)
                    case "signal":
                        promise.delivered.append(text)
                    case _:
                        promise.acknowledged.append(text)
            case "item/completed":
                promise.items.append(params["item"])
            case "turn/completed":
                promise.ended[params["turn"]["id"]] = params["turn"]["status"]


def delivery(thread_id: str, signal_id: str) -> dict[str, Any]:
    """Return the parameters of a signal that begins no turn."""
    described = {"id": signal_id, "source": "r", "type": "T", "sender": "a", "summary": "s"}
    return {"signal": described, "target": {"threadId": thread_id}, "mode": "passive"}


class Countdown:
    """Kills the server after a number of messages."""

    def __init__(self, process: ForkedProcess | asyncio.subprocess.Process, left: int) -> None:
        self._process = process
        self._left = left
        self._changed = anyio.Event()

    def down(self) -> None:
        """Count a message."""
        self._left -= 1
        if self._left == 0:
            kill(self._process)
        self._changed.set()
        self._changed = anyio.Event()

    async def changed(self) -> None:
        """Wait for the next message."""
        await self._changed.wait()


def kill(process: ForkedProcess | asyncio.subprocess.Process) -> None:
    """Send SIGKILL."""
    os.kill(process.pid, signal.SIGKILL)


async def crash(ledger: Ledger) -> None:
    """Start a server, work, and kill it."""
    chance = ledger.chance
    if chance.random() < 0.15:
        for file in (ledger.home / "index").glob("*"):
            file.unlink()
    if chance.random() < 0.15:
        await crash_at_start(ledger)
        return
    async with running(ledger.home) as server:
        countdown = Countdown(server.process, chance.randrange(1, 120))
        known = chance.sample(sorted(ledger.promises), min(len(ledger.promises), CLIENTS))
        room = MAX_THREADS - len(ledger.promises)
        chosen: list[str | None] = [*known, *[None] * min(CLIENTS - len(known), room)]
        if room > 0 and chance.random() < 0.3:
            chosen[0] = None
        async with anyio.create_task_group() as tasks:
            for thread_id in chosen:
                tasks.start_soon(work_until_killed, ledger, server, countdown, thread_id)


async def crash_at_start(ledger: Ledger) -> None:
    """Kill a server somewhere between its first step and its first answers."""
    process = await asyncio.create_subprocess_exec(
        *(str(EXECUTABLE), "--home", str(ledger.home), "--listen", "ws://127.0.0.1:0"),
        stderr=asyncio.subprocess.DEVNULL,
    )
    await asyncio.sleep(ledger.chance.random() * 0.6)
    kill(process)
    await process.wait()


async def work_until_killed(
    ledger: Ledger, server: Running, countdown: Countdown, thread_id: str | None
) -> None:
    """Be one client."""
    try:
        async with server.client() as client:
            await Worker(ledger, client, countdown).work(thread_id)
    except* (anyio.EndOfStream, ConnectionError, EOFError) as group:
        del group
    except* Exception as group:
        broken = group.subgroup(lambda exc: type(exc).__module__.startswith("websockets"))
        if broken is None or broken.exceptions != group.exceptions:
            raise


def lost(ledger: Ledger) -> list[str]:
    """Compare the logs with what was promised; returns what is wrong."""
    return [
        f"{thread_id}: {problem}"
        for thread_id, promise in ledger.promises.items()
        for problem in [
            *_lost_of(promise, whole(promise.path)),
            *_lost_signals(promise, ledger.home),
        ]
    ]


def _lost_signals(promise: Promise, home: Path) -> list[str]:
    in_log: Counter[str] = Counter()
    for record in read_rollout(promise.path):
        match record:
            case HistoryAppended():
                in_log.update(mark.id for mark in record.signals or ())
            case InputQueued(signal=SignalMark(id=signal_id)):
                in_log[signal_id] += 1
    problems = [f"{key} is there {count} times" for key, count in in_log.items() if count > 1]
    if promise.delivered:
        kept = SignalLedger(home / "signals" / "ledger.sqlite3")
        for signal_id in promise.delivered:
            entry = kept.find("r", signal_id)
            if entry is None or (entry.stage != "accepted" and signal_id not in in_log):
                problems.append(f"{signal_id} was acknowledged, and is {entry}")
        kept.close()
    return problems


def whole(path: Path) -> ThreadState:
    """Add up everything, with nothing left out."""
    records = read_rollout(path)
    created = next(records)
    assert isinstance(created, ThreadCreated)
    state = begin(created)
    state.kept_turns = state.kept_bytes = 1 << 40
    for record in records:
        state.apply(record)
    return state


def _lost_of(promise: Promise, state: ThreadState) -> list[str]:
    raw = [*state.history, *(item for queued in state.pending_input for item in queued.items)]
    texts = [part["text"] for item in raw for part in item.get("content", [])]
    waiting_input = [part for entry in state.queue.entries for part in entry.input]
    texts += [part.text for part in waiting_input if isinstance(part, TextUserInput)]
    ours = [text for text in texts if text in promise.asked]
    problems = [f"{text!r} is there twice" for text, count in Counter(ours).items() if count > 1]
    wanted = set(promise.acknowledged)
    if [text for text in ours if text in wanted] != promise.acknowledged:
        missing = [text for text in promise.acknowledged if text not in ours]
        problems.append(f"{missing} were acknowledged" if missing else "the order has changed")
    problems += [f"{text!r} was queued" for text in promise.queued if text not in texts]
    if state.name not in promise.names:
        problems.append(f"the name is {state.name!r}, not one of {promise.names}")
    shown = [
        json.dumps(item.model_dump(mode="json"), sort_keys=True)
        for turn in state.turns
        for item in turn.items
    ]
    waiting = [
        json.dumps(queued.message.model_dump(mode="json"), sort_keys=True)
        for queued in state.pending_input
        if queued.message is not None
    ]
    found = Counter([*shown, *waiting])
    times = [found[json.dumps(item, sort_keys=True)] for item in promise.items]
    problems += [f"an item is there {count} times" for count in times if count != 1]
    ends = {turn.id: turn.status for turn in state.turns}
    for turn_id, status in promise.ended.items():
        if ends.get(turn_id) != status:
            problems.append(f"turn {turn_id} was {status} and is {ends.get(turn_id)}")
    return problems


async def compare_index(home: Path) -> list[str]:
    """Open the index as the next start does, and compare it with the logs."""
    store = FileStore(home)
    await store.open()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.run)
        await store.organization.project_recency()
        tasks.cancel_scope.cancel()
    await store.aclose()
    snapshot = read_index(index_path(home))
    logs = (home / "threads").rglob("*.jsonl")
    wanted = {path.stem: check_log(path, thorough=True).row for path in logs}
    problems = [f"{thread_id}: open" for thread_id in snapshot.open_ids]
    return problems + [
        f"{thread_id}: the index says {snapshot.rows.get(thread_id)}, the log {row}"
        for thread_id, row in wanted.items()
        if row is not None and snapshot.rows.get(thread_id) != row
    ]


async def rounds(home: Path, number: int, seed: int) -> list[str]:
    """Crash a server a number of times; returns what was lost, at the first loss."""
    ledger = Ledger(home, random.Random(seed))
    async with ScriptedModel().serve() as model:
        write_config(home, model.url)
        for count in range(number):
            model.scripts = [says(*"streamed", item_id=f"m{count}") for _ in range(5)]
            await crash(ledger)
            problems = [*lost(ledger), *await compare_index(home)]
            if problems:
                return [f"round {count}: {problem}" for problem in problems]
    told = sum(len(promise.acknowledged) for promise in ledger.promises.values())
    items = sum(len(promise.items) for promise in ledger.promises.values())
    assert told, "nothing was acknowledged at all"
    print(f"{told} texts acknowledged, {items} items announced, {len(ledger.promises)} threads")
    return []


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as home:
        problems = asyncio.run(rounds(Path(home), options.rounds, options.seed))
    print(f"{options.rounds} rounds, seed {options.seed}, {time.perf_counter() - began:.0f} s")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
