"""kill -9 at each step of a delivery: one item, at most one turn, receipts that never overstate.

`python -m tests.long.crash_signals` runs all pairs of two crashes; the suite runs the single ones.
"""

import asyncio
import itertools
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import anyio
from websockets.asyncio.client import connect

from app_server.threads.files.ledger import Ledger
from app_server.threads.files.store import FileStore
from app_server.threads.log.state import replay
from protocol.log.rollout import HistoryAppended, InputQueued
from tests.support.forks import fork_program
from tests.support.harness import WireClient, WireError, serve, write_config
from tests.support.model import ScriptedModel
from tests.support.threads.rollouts import read_rollout
from tests.support.wire.pipes import SocketPipe

Point: TypeAlias = tuple[str, str, str]
"""Which log, which write, before or after it."""

POINTS: Sequence[Point] = [
    (where, number, when)
    for where in ("ledger", "log")
    for number in ("1", "2", "3", "4")
    for when in ("before", "after")
]
RANK = {"accepted": 0, "inHistory": 1, "queued": 1, "visible": 1, "seen": 2, "answered": 3}
SIGNAL = {"id": "s1", "source": "r", "type": "T", "sender": "a", "summary": "hello"}
KEY = {"source": "r", "id": "s1"}
WAIT_S = 60.0


async def survive(home: Path, points: Sequence[Point]) -> None:
    """Deliver one waking signal over crashes at the points, and check what is left of it."""
    async with ScriptedModel().serve() as model:
        write_config(home, model.url)
        async with serve(home, model=ScriptedModel()) as served, served.client() as client:
            thread_id = await client.start_thread()
        write_config(home, model.url)
        params = {"signal": SIGNAL, "target": {"threadId": thread_id}, "mode": "wake"}
        for point in points:
            await _die(home, point, params)
            _check_receipt(home, thread_id)
    last = ScriptedModel()
    async with serve(home, model=last) as served, served.client() as client:
        await client.call("signal/deliver", params)
        receipt = await _settled(client)
        assert receipt["woken"], receipt
        if receipt["stage"] != "answered":
            # Its turn was cut off: the next one has it.
            assert receipt["error"]["code"] == "turnInterrupted", receipt
            await client.call("thread/resume", {"threadId": thread_id})
            await client.turn(thread_id, "go on")
            await _settled(client, "answered")
            texts = [text for _, text in last.inputs()]
            assert sum("> hello" in text for text in texts) == 1, texts
    items, turns = _in_log(home, thread_id)
    assert (items, turns) == (1, 1), (items, turns)


async def _settled(client: WireClient, *stages: str) -> Any:
    """Return the receipt once it is at one of the stages, or says how its turn ended."""
    with anyio.fail_after(WAIT_S):
        while True:
            receipt = (await client.call("signal/read", KEY))["receipt"]
            ended = receipt["error"] is not None and not stages
            if receipt["stage"] in (stages or ("answered",)) or ended:
                return receipt
            await anyio.sleep(0.01)


async def _die(home: Path, point: Point, params: dict[str, Any]) -> None:
    victim = await fork_program(
        "tests.support.receiver.signal_victim",
        *(str(home), *point),
        environment=os.environ,
        folder=home,
    )
    try:
        url = (await victim.stdout.readline()).decode().strip()
        with suppress(
            OSError, EOFError, anyio.EndOfStream, anyio.BrokenResourceError, TimeoutError
        ):
            async with connect(url, proxy=None, open_timeout=WAIT_S, compression=None) as socket:
                client = WireClient(SocketPipe(socket))
                await client.initialize()
                with suppress(WireError):
                    await client.call("signal/deliver", params)
                # A step that this run does not reach any more is no failure.
                with anyio.move_on_after(1.5):
                    await victim.wait()
    finally:
        await victim.aclose()


def _check_receipt(home: Path, thread_id: str) -> None:
    ledger = Ledger(home / "signals" / "ledger.sqlite3")
    entry = ledger.find("r", "s1")
    ledger.close()
    place = replay(read_rollout(Path(FileStore(home).shown_path(thread_id)))).signals.find(
        ("r", "s1")
    )
    if entry is None:
        assert place is None, "in the thread, and not in the ledger"
        return
    reached = 0 if place is None else RANK[place.stage]
    assert RANK[entry.stage] <= reached, (entry.stage, place)


def _in_log(home: Path, thread_id: str) -> tuple[int, int]:
    items, own = 0, 0
    for record in read_rollout(Path(FileStore(home).shown_path(thread_id))):
        match record:
            case HistoryAppended():
                items += len(record.signals or ())
                own += any(mark.woke for mark in record.signals or ())
            case InputQueued():
                items += record.signal is not None
    return items, own


async def main() -> None:
    """Run every pair of crashes and say how it went."""
    pairs = list(itertools.product(POINTS, repeat=2))
    for done, pair in enumerate(pairs, start=1):
        with tempfile.TemporaryDirectory(prefix="signals-") as folder:
            await survive(Path(folder), pair)
        print(f"{done}/{len(pairs)} {pair}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
