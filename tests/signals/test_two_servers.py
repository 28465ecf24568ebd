"""Signals on a home with several servers: a thread's holder takes them, whichever was asked."""

import os
import signal as system_signals
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.server import services
from tests.support.harness import WAIT_S, WireClient, claim, serve
from tests.support.model import Gate, ScriptedModel, says
from tests.support.processes import running
from tests.support.receiver.signals import deliver
from tests.support.receiver.stages import stage, unload
from tests.support.receiver.two_servers import two_servers

LOOK_S = 0.05


async def read(client: WireClient, signal_id: str = "s1") -> Any:
    """Return the receipt of a signal."""
    return (await client.call("signal/read", {"source": "router", "id": signal_id}))["receipt"]


async def until_read(client: WireClient, signal_id: str, wanted: str) -> Any:
    """Read a signal until it has reached a stage."""
    with anyio.fail_after(WAIT_S):
        while (receipt := await read(client, signal_id))["stage"] != wanted:
            await anyio.sleep(LOOK_S)
    return receipt


def signals_in(model: ScriptedModel) -> int:
    """Count the signals in the last request."""
    return sum("[signal]" in text for _, text in model.inputs())


@claim("signals:handed-on")
@pytest.mark.parametrize("holder_first", [True, False])
async def test_a_signal_wakes_its_thread_in_the_server_that_holds_it(
    tmp_path: Path, holder_first: bool
) -> None:
    async with two_servers(tmp_path, holder_first=holder_first) as two:
        receipt = await deliver(two.client, two.thread_id, mode="wake")
        assert (receipt["recipientState"], receipt["woken"]) == ("idle", True)
        # The holder runs the turn while its answer is handed on.
        assert receipt["stage"] in ("inHistory", "seen", "answered")
        answered = await stage(two.client, "s1", "answered")
        assert await read(two.client) == await read(two.holder) == answered
        assert (len(two.model.requests), signals_in(two.model)) == (2, 1)
        # Sent again to either, it is the same one.
        for client in (two.client, two.holder):
            assert await deliver(client, two.thread_id, mode="wake") == answered
        assert len(two.model.requests) == 2


@claim("signals:handed-on")
async def test_a_refusal_of_the_holder_is_the_answer(tmp_path: Path) -> None:
    async with two_servers(tmp_path, holder_first=True) as two:
        for number in range(64):
            await deliver(two.holder, two.thread_id, f"n{number}")
        await deliver(two.holder, two.thread_id, "n0")
        error = await two.client.refusal(
            "signal/deliver",
            {
                "signal": {
                    "id": "one more",
                    "source": "router",
                    "type": "Question",
                    "sender": "ann",
                    "summary": "?",
                },
                "target": {"threadId": two.thread_id},
                "mode": "passive",
            },
        )
        assert (error.code, error.message) == (-32001, "Server overloaded; retry later.")


@claim("signals:handed-on")
async def test_a_signal_that_waits_in_another_server_is_recalled_there(tmp_path: Path) -> None:
    async with two_servers(tmp_path, holder_first=True) as two:
        pause = Gate()
        two.model.scripts.append([pause, *says("late")])
        params = {"threadId": two.thread_id, "input": [{"type": "text", "text": "go"}]}
        await two.holder.call("turn/start", params)
        await pause.wait_until_reached()
        receipt = await deliver(two.client, two.thread_id, mode="wake")
        assert (receipt["stage"], receipt["recipientState"]) == ("accepted", "active")
        recall = {"source": "router", "id": "s1"}
        recalled = (await two.client.call("signal/recall", recall))["receipt"]
        assert recalled["stage"] == "recalled"
        assert await read(two.holder) == recalled
        pause.opened.set()
        await two.holder.until("turn/completed")
        assert (await read(two.holder))["stage"] == "recalled"
        assert len(two.model.requests) == 2


@claim("signals:handed-on")
async def test_a_holder_that_cannot_be_called_finds_the_signal_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "_address_of", lambda home, holder: None)
    async with two_servers(tmp_path, holder_first=True) as two:
        receipt = await deliver(two.client, two.thread_id, mode="wake")
        assert (receipt["stage"], receipt["recipientState"]) == ("accepted", "notLoaded")
        await stage(two.holder, "s1", "answered")
        await stage(two.client, "s1", "answered")
        assert await until_read(two.client, "s1", "answered") == await read(two.holder)
        assert (len(two.model.requests), signals_in(two.model)) == (2, 1)


async def test_a_thread_that_its_server_has_let_go_is_loaded_where_the_signal_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "_address_of", lambda home, holder: None)
    async with two_servers(tmp_path, holder_first=True) as two:
        pause = Gate()
        two.model.scripts.append([pause, *says("late")])
        params = {"threadId": two.thread_id, "input": [{"type": "text", "text": "go"}]}
        await two.holder.call("turn/start", params)
        await pause.wait_until_reached()
        await deliver(two.client, two.thread_id, mode="wake")
        pause.opened.set()
        await stage(two.client, "s1", "answered")
        await unload(two.holding, two.thread_id)
        await deliver(two.client, two.thread_id, "s2", mode="wake")
        await stage(two.client, "s2", "answered")
        servers = (two.asked, two.holding)
        loaded = [one.services.sessions.find(two.thread_id) is not None for one in servers]
        assert loaded == [True, False]


@claim("signals:handed-on")
async def test_a_signal_of_a_server_that_was_killed_is_delivered_by_another(tmp_path: Path) -> None:
    model = ScriptedModel()
    async with serve(tmp_path, model=model) as served, served.client() as client:
        async with running(tmp_path) as other:
            async with other.client() as holder:
                thread_id = await holder.start_thread()
                await holder.turn(thread_id, "hello")
            # It takes nothing and holds the thread: the call is given up.
            other.process.send_signal(system_signals.SIGSTOP)
            receipt = await deliver(client, thread_id, mode="wake")
            assert (receipt["stage"], receipt["recipientState"]) == ("accepted", "notLoaded")
            other.process.send_signal(system_signals.SIGKILL)
        await stage(client, "s1", "answered")
        assert signals_in(model) == 1


@claim("signals:handed-on")
async def test_a_signal_is_answered_by_another_server_when_its_own_died_with_it(
    tmp_path: Path,
) -> None:
    model, pause = ScriptedModel(), Gate()
    async with serve(tmp_path, model=model) as served, served.client() as client:
        async with running(tmp_path) as other:
            async with other.client() as holder:
                thread_id = await holder.start_thread()
                await holder.turn(thread_id, "hello")
                model.scripts.append([pause, *says("never")])
                receipt = await deliver(client, thread_id, mode="wake")
                assert receipt["stage"] == "inHistory"
                await pause.wait_until_reached()
            os.kill(other.process.pid, system_signals.SIGKILL)
        # Its turn is over, and none is begun again for it: the next one answers.
        with anyio.fail_after(WAIT_S):
            while (await read(client))["error"] is None:
                await anyio.sleep(LOOK_S)
        assert (await read(client))["error"]["code"] == "turnInterrupted"
        await client.call("thread/resume", {"threadId": thread_id})
        await client.turn(thread_id, "go on")
        assert (await until_read(client, "s1", "answered"))["error"] is None


async def test_a_server_that_starts_leaves_the_signals_of_a_running_turn_alone(
    tmp_path: Path,
) -> None:
    model, pause = ScriptedModel(), Gate()
    async with serve(tmp_path, model=model) as one, one.client() as holder:
        thread_id = await holder.start_thread()
        await holder.turn(thread_id, "hello")
        model.scripts.append([pause, *says("late")])
        await deliver(holder, thread_id, mode="wake")
        await pause.wait_until_reached()
        async with serve(tmp_path, model=model) as other, other.client() as client:
            receipt = await read(client)
            assert (receipt["stage"], receipt["error"]) == ("inHistory", None)
            pause.opened.set()
            await stage(holder, "s1", "answered")
            await until_read(client, "s1", "answered")
