"""Clients that work on any node of a fleet, and remember what they were told.

They run turns, answer when they are asked about commands, and deliver signals.
"""

import asyncio
import fcntl
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.support.fleet.nodes import Fleet
from tests.support.harness import WAIT_S, WireClient, WireError
from tests.support.model import Gate, Script, calls, says
from tests.support.receiver.signals import signal
from tests.support.turn_tools.command_questions import QUESTION, command

PAUSE_S = 0.1
"""Between tries of a client that was refused."""
LOST = (OSError, ConnectionClosed, InvalidHandshake, EOFError, anyio.EndOfStream)
TURNS = 4
"""Turns after which a client goes to another node, and finds its thread there."""
COMMANDS = 3
"""Each such input has the model run a command."""
REFUSED = 12
"""Each such input has its command refused by the client."""
MODES = ("passive", "wake", "passive", "wake")
BUSY = ("queue", "queue", "queue", "steer")
OVERLOADED = -32001
RANKS = {"accepted": 0, "inHistory": 1, "seen": 2, "answered": 3}
SOURCE = "load"
TEXT = re.compile(r"client \d+ input \d+\.")
ASKS = {"sandbox": "danger-full-access", "approvalPolicy": "untrusted"}


class OpenTurn(NamedTuple):
    """A turn that a client waits for."""

    thread_id: str
    node: int
    """Number of the node that the client is connected to."""


@dataclass
class Told:
    """What the server has answered, by thread."""

    accepted: dict[str, list[str]] = field(default_factory=dict)
    """Texts whose `turn/start` was answered, by the thread, in their order."""
    tried: dict[str, list[str]] = field(default_factory=dict)
    """Texts that were sent, answered or not."""
    ended: dict[str, str] = field(default_factory=dict)
    """Statuses of `turn/completed`, by the id of the turn."""
    open: dict[str, OpenTurn] = field(default_factory=dict)
    """Turns that a client waits for now, by their ids."""
    granted: set[str] = field(default_factory=set)
    """Texts whose command a client has allowed."""
    sent: dict[str, list[str]] = field(default_factory=dict)
    """Ids of signals, delivered or not, by the thread."""
    stages: dict[str, str] = field(default_factory=dict)
    """The furthest stage that was told of a signal, by its id."""
    ran: Path | None = None
    """A file with a line for each command that was begun: its text, and Unix milliseconds."""
    wrong: list[str] = field(default_factory=list)
    """Errors that no client should get."""
    progress: int = 0
    """Turns that were seen to their end."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, turn: Any) -> None:
        """Take note of the end of a turn."""
        before = self.ended.setdefault(turn["id"], turn["status"])
        if before != turn["status"]:
            self.wrong.append(f"turn {turn['id']} ended as {before} and as {turn['status']}")
        self.progress += 1
        self.news.set()
        self.news = asyncio.Event()

    def receipt(self, receipt: Any) -> None:
        """Take note of what has become of a signal."""
        signal_id, stage = receipt["signalId"], receipt["stage"]
        if stage not in RANKS:
            self.wrong.append(f"signal {signal_id} is {stage}: {receipt['error']}")
        elif RANKS[stage] >= RANKS[self.stages.setdefault(signal_id, stage)]:
            self.stages[signal_id] = stage

    def so_far(self) -> "Told":
        """Return what has been answered up to now; what is under way counts as tried."""
        return replace(
            self,
            accepted={one: list(texts) for one, texts in self.accepted.items()},
            ended=dict(self.ended),
            stages=dict(self.stages),
            ran=None,
            wrong=list(self.wrong),
        )

    async def more_turns(self, count: int) -> None:
        """Wait until so many more turns have ended."""
        wanted = self.progress + count
        with anyio.fail_after(WAIT_S + count):
            while self.progress < wanted:
                await self.news.wait()


class Hold:
    """Keeps turns open while it is closed: in their commands, and in the answers of the model."""

    def __init__(self, folder: Path) -> None:
        """Commands wait for the lock of a file in `folder`."""
        self.path = folder / "hold"
        self._lock = self.path.open("w")
        self.gate = Gate()
        self.open()

    @property
    def is_closed(self) -> bool:
        """Whether turns are kept open."""
        return not self.gate.opened.is_set()

    def close(self) -> None:
        """Keep turns open from now on."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.gate = Gate()

    def open(self) -> None:
        """Let all go on that wait."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        self.gate.opened.set()


@asynccontextmanager
async def load_on(fleet: Fleet, clients: int, *, hold: Hold | None = None) -> AsyncIterator[Told]:
    """Have clients work while the context lasts; each has a thread, and goes to any node."""
    told, over = Told(ran=fleet.folder / "ran"), asyncio.Event()
    fleet.model.choose = _Model(fleet.folder / "ran", hold).choose
    working = [
        asyncio.create_task(_Client(fleet, number, told, over).work()) for number in range(clients)
    ]
    try:
        yield told
        over.set()
        await asyncio.gather(*working)
    finally:
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)


class _Model:
    """Has commands run that inputs want, each once as far as it is told."""

    def __init__(self, ran: Path, hold: Hold | None) -> None:
        self._ran = ran
        self._hold = hold

    def choose(self, request: dict[str, Any]) -> Script:
        """Call the command of the last input, unless it was called."""
        items = request["input"]
        texts = [
            found[0]
            for item in items
            if item.get("role") == "user"
            for found in TEXT.finditer(str(item["content"]))
        ]
        called = {item.get("call_id") for item in items}
        if not texts or not self._wants_command(texts[-1]) or call_id(texts[-1]) in called:
            return says("ok") if self._hold is None else [self._hold.gate, *says("ok")]
        line = f"echo {shlex.quote(texts[-1])} $(date +%s%3N) >> {shlex.quote(str(self._ran))}"
        if self._hold is not None:
            line += f"; flock --shared {shlex.quote(str(self._hold.path))} true"
        return calls({**command(line), "call_id": call_id(texts[-1])})

    def _wants_command(self, text: str) -> bool:
        if self._hold is not None and self._hold.is_closed:
            # Of each second client, so that as many turns wait in commands as in the model.
            return int(text.split()[1]) % 2 == 0
        return _number(text) % COMMANDS == 0


def is_expected(exc: WireError) -> bool:
    """Whether an error is one that a client tries again after."""
    data = exc.data or {}
    return bool(data.get("retriable") or data.get("code") == "threadBusy" or exc.code == OVERLOADED)


async def deliver(client: WireClient, told: Told, thread_id: str, sender: str, number: int) -> None:
    """Deliver the signal of this number of a sender, again if it was delivered before."""
    signal_id = f"{sender} signal {number}."
    if signal_id not in told.sent[thread_id]:
        told.sent[thread_id].append(signal_id)
    params = {
        "signal": signal(signal_id, source=SOURCE, sender=sender),
        "target": {"threadId": thread_id},
        "mode": MODES[number % len(MODES)],
        "onBusy": BUSY[number % len(BUSY)],
    }
    told.receipt((await client.call("signal/deliver", params))["receipt"])


def call_id(text: str) -> str:
    """Return what the model calls the command of an input."""
    return text.replace(" ", "-").rstrip(".")


def _number(text: str) -> int:
    return int(text.rstrip(".").rpartition(" ")[2])


class _Client:
    def __init__(self, fleet: Fleet, number: int, told: Told, over: asyncio.Event) -> None:
        self._fleet = fleet
        self._number = number
        self._told = told
        self._over = over
        self._thread_id: str | None = None
        self._count = 0
        self._undelivered: list[int] = []
        self._finished_last = False

    async def work(self) -> None:
        """Run turns until it is over, and more until all signals are answered then."""
        node = self._number
        while not self._finished_last:
            try:
                running = self._fleet.nodes[node % len(self._fleet.nodes)].running
                if running is not None:
                    async with running.client() as client:
                        await self._converse(client, node % len(self._fleet.nodes))
            except WireError as exc:
                if not is_expected(exc):
                    self._told.wrong.append(f"{exc.message}: {exc.data}")
                    return
            except LOST:
                pass
            node += 1
            await asyncio.sleep(PAUSE_S)

    async def _converse(self, client: WireClient, node: int) -> None:
        if self._thread_id is None:
            self._thread_id = (await client.call("thread/start", ASKS))["thread"]["id"]
            self._told.accepted[self._thread_id] = []
            self._told.tried[self._thread_id] = []
            self._told.sent[self._thread_id] = []
        else:
            await client.call("thread/resume", {"threadId": self._thread_id})
        # So that clients are not all with the owners of their threads, or all elsewhere.
        for _ in range(TURNS + self._number // 2 % 2):
            is_last = self._over.is_set()
            if not is_last:
                self._undelivered.append(self._count + 1)
            await self._deliver(client, self._thread_id)
            if not await self._turn(client, OpenTurn(self._thread_id, node)):
                return
            if is_last:
                self._finished_last = await self._are_answered(client, self._thread_id)
                return

    async def _deliver(self, client: WireClient, thread_id: str) -> None:
        """Deliver signals, each again until it was acknowledged."""
        while self._undelivered:
            number = self._undelivered[0]
            await deliver(client, self._told, thread_id, f"client {self._number}", number)
            self._undelivered.pop(0)

    async def _are_answered(self, client: WireClient, thread_id: str) -> bool:
        for signal_id in self._told.sent[thread_id]:
            if self._told.stages.get(signal_id) != "answered":
                key = {"source": SOURCE, "id": signal_id}
                self._told.receipt((await client.call("signal/read", key))["receipt"])
        return all(self._told.stages[one] == "answered" for one in self._told.sent[thread_id])

    async def _turn(self, client: WireClient, at: OpenTurn) -> bool:
        """Run a turn; False: the thread was closed before its end."""
        thread_id = at.thread_id
        self._count += 1
        text = f"client {self._number} input {self._count}."
        self._told.tried[thread_id].append(text)
        params = {"threadId": thread_id, "input": [{"type": "text", "text": text}]}
        try:
            turn_id = (await client.call("turn/start", params))["turn"]["id"]
        except WireError as exc:
            if (exc.data or {}).get("code") != "threadNotFound":
                raise
            # It was closed since it was resumed, as its node had lost it.
            return False
        self._told.accepted[thread_id].append(text)
        self._told.open[turn_id] = at
        try:
            return await self._is_ended(client, turn_id)
        finally:
            del self._told.open[turn_id]

    async def _is_ended(self, client: WireClient, turn_id: str) -> bool:
        while True:
            message = await client.receive()
            match message.get("method"):
                case "thread/closed":
                    return False
                case "signal/updated":
                    self._told.receipt(message["params"]["receipt"])
                case method if method == QUESTION:
                    await self._decide(client, message)
                case "turn/completed":
                    self._told.end(message["params"]["turn"])
                    if message["params"]["turn"]["id"] == turn_id:
                        return True

    async def _decide(self, client: WireClient, question: Any) -> None:
        found = TEXT.search(str(question["params"]["command"]))
        assert found is not None
        decision = "decline"
        if _number(found[0]) % REFUSED:
            self._told.granted.add(found[0])
            decision = "accept"
        await client.send({"id": question["id"], "result": {"decision": decision}})
