"""Servers that are killed around the event that wakes a thread."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import anyio
from websockets.asyncio.client import connect

from tests.support.forks import fork_program
from tests.support.harness import WAIT_S, WireClient, serve, write_config
from tests.support.model import ScriptedModel, calls, says
from tests.support.processes import running
from tests.support.receiver.wakes import (
    reached,
    set_timer,
    set_wake,
    signals_of,
    soon_ms,
    wakes_of,
)
from tests.support.turn_tools.turn_commands import SOON_MS, command
from tests.support.wire.pipes import SocketPipe

ACCESS = {"sandbox": "danger-full-access", "approvalPolicy": "never"}


async def wake_over_kill(folder: Path, delay_s: float) -> str:
    """Kill a server some time after a process was let end; return what became of its wake.

    The next server tells the thread once, whether its end was seen or the wake is lost.
    """
    home, go = folder / "home", folder / "go"
    async with ScriptedModel().serve() as model:
        write_config(home, model.url)
        async with running(home) as server, server.client() as client:
            thread_id = await client.start_thread(**ACCESS)
            line = f"while [ ! -e {go} ]; do sleep 0.01; done; echo built"
            model.scripts[:] = [calls(command(line, yield_time_ms=SOON_MS)), says("done")]
            await client.turn(thread_id, "build")
            wake = await set_wake(client, thread_id, await process_of(client, thread_id))
            go.touch()
            # What is tested is every moment around the end.
            await anyio.sleep(delay_s)
            server.process.send_signal(signal.SIGKILL)
            await server.ended()
        async with serve(home, model=model) as served, served.client() as client:
            await client.call("thread/resume", {"threadId": thread_id})
            state = await over(client, wake)
            await served.services.sessions.get(thread_id).slot.idle.wait()
            await client.turn(thread_id, "next")
            texts = "\n".join(text for _, text in model.inputs())
            assert texts.count(f'id: "{wake["id"]}"') == 1, texts
            lost = texts.count('type: "ProcessLost"')
            assert lost == (1 if state == "lost" else 0)
            read = await client.call("signal/read", {"source": "app-server wake", "id": wake["id"]})
            assert read["receipt"]["woken"]
            return state


async def process_of(client: WireClient, thread_id: str) -> dict[str, Any]:
    """Return the source of a wake for the process that a thread has running."""
    listed = await client.call("thread/backgroundTerminals/list", {"threadId": thread_id})
    (row,) = listed["data"]
    return {"type": "process", "processId": row["processId"]}


async def over(client: WireClient, wake: Any) -> str:
    """Wait until a wake is over and its thread was told, and return its state."""
    with anyio.fail_after(60):
        while True:
            (found,) = await wakes_of(client, wake["threadId"])
            if found["state"] == "delivered":
                return "delivered"
            if found["state"] == "lost" and found["signalId"] is not None:
                page = await client.call("signal/list", {"threadId": wake["threadId"]})
                if [one["stage"] for one in page["data"]][:1] not in ([], ["accepted"]):
                    return "lost"
            await anyio.sleep(0.02)


Step: TypeAlias = tuple[str, str, str]
"""Which write, the how manieth of its kind, before or after it; see signal_victim.py."""

STEPS: Sequence[Step] = [
    ("armed", "1", "after"),
    ("moved", "1", "before"),
    ("moved", "1", "after"),
    ("ledger", "1", "after"),
    ("log", "1", "before"),
    ("log", "1", "after"),
    ("ledger", "2", "after"),
    ("moved", "2", "before"),
    ("moved", "2", "after"),
]
"""Of a timer: it is armed, it fires, its signal is accepted and enters the log, it is settled."""


async def timer_over_step(home: Path, step: Step) -> None:
    """Kill a server at a step of a timer; its thread has one turn of it all the same."""
    async with ScriptedModel().serve() as model:
        async with serve(home, model=model) as served, served.client() as client:
            thread_id = await client.start_thread()
            await client.turn(thread_id, "begin")
        await _die(home, thread_id, step)
        for _ in range(2):
            async with serve(home, model=model) as served, served.client() as client:
                await client.call("thread/resume", {"threadId": thread_id})
                (wake,) = await wakes_of(client, thread_id)
                await reached(client, wake, "delivered")
                await served.services.sessions.get(thread_id).slot.idle.wait()
        async with serve(home, model=model) as served, served.client() as client:
            await client.call("thread/resume", {"threadId": thread_id})
            await client.turn(thread_id, "next")
            texts = "\n".join(text for _, text in model.inputs())
            assert texts.count(f'id: "{wake["id"]}"') == 1, texts
            assert await signals_of(client, thread_id) == [wake["id"]]
            # One that was killed is not begun again.
            assert len(model.requests) in (2, 3)


async def _die(home: Path, thread_id: str, step: Step) -> None:
    """Set a timer at a server that dies at a step of it."""
    victim = await fork_program(
        "tests.support.receiver.signal_victim",
        *(str(home), *step),
        environment=os.environ,
        folder=home,
    )
    try:
        url = (await victim.stdout.readline()).decode().strip()
        async with connect(url, proxy=None, open_timeout=WAIT_S, compression=None) as socket:
            client = WireClient(SocketPipe(socket))
            await client.initialize()
            await client.call("thread/resume", {"threadId": thread_id})
            with suppress(OSError, EOFError, anyio.EndOfStream, anyio.BrokenResourceError):
                await set_timer(client, thread_id, soon_ms())
            with anyio.fail_after(WAIT_S):
                await victim.wait()
    finally:
        await victim.aclose()
