"""Wakes on a home with several servers: one fires each, and whoever follows the thread is told."""

import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.threads.files.ledger import Ledger
from app_server.threads.files.signals import ledger_path
from tests.support.harness import WAIT_S, claim, serve
from tests.support.model import ScriptedModel, calls, says
from tests.support.processes import running
from tests.support.receiver.two_servers import two_servers
from tests.support.receiver.wakes import (
    HOUR_MS,
    SetClock,
    fired_elsewhere,
    reached,
    set_timer,
    set_wake,
    signals_of,
    soon_ms,
    states_to_delivered,
)
from tests.support.turn_tools.turn_commands import SOON_MS, command


async def requested(model: ScriptedModel, count: int) -> bool:
    """Wait for so many requests of a model; whether there were no more."""
    with anyio.fail_after(WAIT_S):
        while len(model.requests) < count:
            await anyio.sleep(0.01)
    return len(model.requests) == count


@claim("wakes:servers")
@pytest.mark.parametrize("holder_first", [True, False])
async def test_a_timer_that_another_server_was_asked_for_fires_once_at_the_holder(
    tmp_path: Path, holder_first: bool
) -> None:
    async with two_servers(tmp_path, holder_first=holder_first) as two:
        await two.holder.call("thread/wake/list", {})
        wake = await set_timer(two.client, two.thread_id, soon_ms())
        states = await states_to_delivered(two.holder, wake)
        # It may have looked for the first time when the timer had fired.
        assert states[-2:] == ["fired", "delivered"]
        assert await signals_of(two.client, two.thread_id) == [wake["id"]]
        assert await requested(two.model, 2)


@claim("wakes:servers")
async def test_a_change_of_a_file_that_two_servers_see_begins_one_turn(tmp_path: Path) -> None:
    file = tmp_path / "file"
    async with two_servers(tmp_path / "home", holder_first=True) as two:
        source = {"type": "file", "path": str(file), "change": "created"}
        wake = await set_wake(two.holder, two.thread_id, source)
        await reached(two.client, wake, "armed")
        file.touch()
        # Whichever was the first to write it.
        assert await states_to_delivered(two.holder, wake) == ["armed", "fired", "delivered"]
        assert await signals_of(two.client, two.thread_id) == [wake["id"]]
        assert await requested(two.model, 2)


@claim("wakes:servers")
async def test_wakes_of_an_ephemeral_thread_are_left_to_its_server(tmp_path: Path) -> None:
    go, file = tmp_path / "go", tmp_path / "file"
    async with two_servers(tmp_path / "home", holder_first=True) as two:
        thread_id = await two.holder.start_thread(
            ephemeral=True, sandbox="danger-full-access", approvalPolicy="never"
        )
        line = f"while [ ! -e {go} ]; do sleep 0.05; done"
        two.model.scripts[:] = [calls(command(line, yield_time_ms=SOON_MS)), says("started")]
        await two.holder.turn(thread_id, "go")
        listed = await two.holder.call("thread/backgroundTerminals/list", {"threadId": thread_id})
        (row,) = listed["data"]
        sources: list[dict[str, Any]] = [
            {"type": "process", "processId": row["processId"]},
            {"type": "file", "path": str(file), "change": "created"},
            {"type": "timer", "atMs": soon_ms()},
        ]
        wakes = [await set_wake(two.holder, thread_id, source) for source in sources]
        await reached(two.holder, wakes[2], "delivered")
        # By then the other server has looked at all of them.
        looked_at = await set_timer(two.client, two.thread_id, soon_ms())
        await reached(two.client, looked_at, "delivered")
        go.touch()
        file.touch()
        for wake in wakes[:2]:
            await reached(two.holder, wake, "delivered")


@claim("wakes:servers")
async def test_clients_hear_what_another_server_does_with_a_wake(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        wake = await set_timer(client, thread_id, soon_ms(HOUR_MS))
        ledger = await anyio.to_thread.run_sync(Ledger, ledger_path(tmp_path))
        # It dies before it delivers.
        await anyio.to_thread.run_sync(fired_elsewhere, ledger, wake)
        ledger.close()
        assert await states_to_delivered(client, wake) == ["armed", "fired", "delivered"]
        assert await requested(served.model, 1)


@claim("wakes:servers")
async def test_a_timer_whose_holder_was_killed_fires_once_at_another_server(
    tmp_path: Path,
) -> None:
    model = ScriptedModel()
    async with serve(tmp_path, model=model) as served, served.client() as client:
        async with running(tmp_path) as other, other.client() as holder:
            thread_id = await holder.start_thread()
            await holder.turn(thread_id, "hello")
            wake = await set_timer(holder, thread_id, soon_ms())
            other.process.send_signal(signal.SIGKILL)
            await other.ended()
            await reached(client, wake, "delivered")
            assert await requested(model, 2)
        await client.call("thread/resume", {"threadId": thread_id})
        await served.services.sessions.get(thread_id).slot.idle.wait()
        assert await signals_of(client, thread_id) == [wake["id"]]
        assert len(model.requests) == 2


@claim("wakes:servers")
async def test_a_timer_whose_holder_is_frozen_fires_at_another_server_and_comes_once(
    tmp_path: Path,
) -> None:
    model, clock = ScriptedModel(), SetClock()
    async with (
        serve(tmp_path, model=model, clock=clock) as served,
        served.client() as client,
        running(tmp_path) as other,
        other.client() as holder,
    ):
        thread_id = await holder.start_thread()
        await holder.turn(thread_id, "hello")
        wake = await set_timer(holder, thread_id, soon_ms())
        other.process.send_signal(signal.SIGSTOP)
        try:
            # For this server it is late at once.
            clock.by_ms = HOUR_MS
            await reached(client, wake, "fired")
            assert len(model.requests) == 1
        finally:
            other.process.send_signal(signal.SIGCONT)
        await holder.until("turn/completed")
        await reached(holder, wake, "delivered")
        assert await signals_of(client, thread_id) == [wake["id"]]
        assert len(model.requests) == 2
