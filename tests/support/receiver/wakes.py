"""Wakes of threads, as a client sets and follows them."""

import time
from dataclasses import replace
from typing import Any

import anyio

from app_server.runtime.clock import SystemClock
from app_server.threads.ledger import SignalLedger
from app_server.threads.wakes import StoredWake
from protocol.signals.frame import END, OPENING
from tests.support.harness import WAIT_S, WireClient

HOUR_MS = 3_600_000


class SetClock(SystemClock):
    """The machine's clock, set forward by some milliseconds, or back, or stopped at a time."""

    def __init__(self, stopped_ms: int | None = None) -> None:
        self.by_ms = 0
        self.stopped_ms = stopped_ms

    def now_ms(self) -> int:
        """Return Unix milliseconds."""
        return (super().now_ms() if self.stopped_ms is None else self.stopped_ms) + self.by_ms


def soon_ms(after_ms: int = 1500) -> int:
    """Return a time that comes in a moment."""
    return time.time_ns() // 1_000_000 + after_ms


async def set_wake(client: WireClient, thread_id: str, source: dict[str, Any], **more: Any) -> Any:
    """Set a wake, and return it."""
    params = {"threadId": thread_id, "source": source, "note": "look", **more}
    return (await client.call("thread/wake/set", params))["wake"]


async def set_timer(client: WireClient, thread_id: str, at_ms: int, **more: Any) -> Any:
    """Set a timer for a time, and return it."""
    return await set_wake(client, thread_id, {"type": "timer", "atMs": at_ms}, **more)


async def wake_is(client: WireClient, wake_id: str, state: str) -> Any:
    """Wait until a wake has come to a state, and return the event."""
    event = await client.wait_for(
        "thread/wake/changed", lambda p: p["wakeId"] == wake_id and p["state"] == state
    )
    return event["params"]


async def states_to_delivered(client: WireClient, wake: Any) -> list[str]:
    """Return which states of a wake a client hears of until it is delivered."""
    states: list[str] = []
    while states[-1:] != ["delivered"]:
        event = (await client.until("thread/wake/changed"))[-1]["params"]
        if event["wakeId"] == wake["id"]:
            states.append(event["state"])
    return states


async def signals_of(client: WireClient, thread_id: str) -> list[str]:
    """Return the ids of the signals of a thread, newest first."""
    page = await client.call("signal/list", {"threadId": thread_id})
    return [receipt["signalId"] for receipt in page["data"]]


def fired_elsewhere(ledger: SignalLedger, wake: Any) -> None:
    """Write that an armed wake has fired, as another server does. Blocks."""
    armed = ledger.wakes.find(wake["id"])
    assert armed is not None
    now_ms = soon_ms(0)
    fired = replace(
        armed, state="fired", changed_at_ms=now_ms, fires=1, look_at_ms=now_ms, text="it is time"
    )
    assert ledger.wakes.move(armed, fired)


async def wakes_of(client: WireClient, thread_id: str | None = None) -> list[Any]:
    """Return the wakes of a thread, newest first."""
    page = await client.call("thread/wake/list", {"threadId": thread_id})
    return list(page["data"])


async def reached(client: WireClient, wake: Any, state: str, **members: Any) -> Any:
    """Ask until a wake has a state, and other members, and return it as it is then."""
    wanted = {"state": state, **members}
    with anyio.fail_after(WAIT_S):
        while True:
            for found in await wakes_of(client, wake["threadId"]):
                if found["id"] == wake["id"] and wanted.items() <= found.items():
                    return found
            await anyio.sleep(0.01)


def framed(wake: Any, signal_type: str, *lines: str) -> str:
    """Return what the model reads of a wake that has fired."""
    summary = "\n".join(f"> {line}" for line in lines)
    return (
        f'{OPENING}\nsource: "app-server wake"\ntype: "{signal_type}"\nsender: "app-server"\n'
        f'id: "{wake["id"]}"\nsummary:\n{summary}\n{END}'
    )


def stored_timer(name: str, at_ms: int | None, every_ms: int | None = None) -> StoredWake:
    """Make a timer as stores keep it."""
    return StoredWake(
        id=name,
        thread_id="t",
        kind="timer",
        source='{"type":"timer"}',
        note="look",
        mode="wake",
        state="armed",
        set_at_ms=1000,
        changed_at_ms=1000,
        at_ms=at_ms,
        every_ms=every_ms,
        look_at_ms=at_ms,
    )
