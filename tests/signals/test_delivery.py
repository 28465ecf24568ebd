"""Signals: into a thread once, and what the model reads of them."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.signals.entries import Entries
from app_server.threads.ledger import Entry
from protocol.signals.delivery import SignalDeliverParams
from tests.support.harness import claim, serve
from tests.support.model import Gate, ScriptedModel, says
from tests.support.receiver.signals import deliver, signal
from tests.support.receiver.stages import stage, text_of, unload
from tests.support.turns import busy_thread


def rest(receipt: Any) -> Any:
    """Leave out what differs from run to run."""
    return {key: value for key, value in receipt.items() if key not in ("at", "itemId", "turnId")}


# What the model sees.


async def test_a_payload_stays_out_of_the_thread(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await deliver(client, thread_id, signal={"payload": {"secret": "only for the receiver"}})
        await client.turn(thread_id, "go")
        assert served.model.inputs() == [("developer", text_of()), ("user", "go")]
        assert "only for the receiver" not in json.dumps(served.model.requests)
        for path in tmp_path.rglob("*"):
            assert not path.is_file() or b"only for the receiver" not in path.read_bytes()


# Modes.


async def test_a_passive_signal_waits_for_the_next_request(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        receipt = await deliver(client, thread_id)
        assert rest(receipt) == {
            "signalId": "s1",
            "source": "router",
            "threadId": thread_id,
            "stage": "inHistory",
            "woken": False,
            "recipientState": "idle",
            "error": None,
        }
        assert served.model.requests == []
        turn = await client.turn(thread_id, "go")
        answered = await stage(client, "s1", "answered")
        assert answered["turnId"] == turn["id"]
        assert served.model.inputs() == [("developer", text_of()), ("user", "go")]
        shown = (await client.call("signal/read", {"source": "router", "id": "s1"}))["receipt"]
        assert shown == answered


@claim("signals:stages")
async def test_stages_are_sent_once_each_and_in_order(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        receipt = await deliver(client, thread_id, mode="wake")
        assert (receipt["stage"], receipt["woken"]) == ("inHistory", True)
        told: list[Any] = []
        while not told or told[-1]["stage"] != "answered":
            event = await client.wait_for("signal/updated")
            told.append(event["params"]["receipt"])
        assert [entry["stage"] for entry in told] == ["accepted", "inHistory", "seen", "answered"]
        assert {entry["turnId"] for entry in told[1:]} == {receipt["turnId"]}
        assert served.model.inputs() == [("developer", text_of())]


@claim("signals:busy")
async def test_a_busy_thread_gives_all_that_waited_one_turn(tmp_path: Path) -> None:
    async with busy_thread(tmp_path, *says("first")) as (served, client, thread_id, gate):
        first = await deliver(client, thread_id, "s1", "wake")
        second = await deliver(client, thread_id, "s2", "wake", onBusy="queue")
        # From the same sender: it may not overtake.
        third = await deliver(client, thread_id, "s3", "passive")
        stages = [(entry["stage"], entry["recipientState"]) for entry in (first, second, third)]
        assert stages == [("accepted", "active")] * 3
        gate.opened.set()
        receipts = [await stage(client, name, "answered") for name in ("s1", "s2", "s3")]
        assert [entry["woken"] for entry in receipts] == [True, True, False]
        assert len({entry["turnId"] for entry in receipts}) == 1
        assert len(served.model.requests) == 2
        assert served.model.inputs()[-3:] == [
            ("developer", text_of(name)) for name in ("s1", "s2", "s3")
        ]


@claim("signals:busy")
async def test_a_steering_signal_enters_the_running_turn(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    model.scripts = [[gate, *says("first")]]
    async with serve(tmp_path, model=model) as served, served.client() as client:
        thread_id = await client.start_thread()
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        turn = (await client.call("turn/start", params))["turn"]
        await gate.wait_until_reached()
        receipt = await deliver(client, thread_id, "s1", "wake", onBusy="steer")
        assert (receipt["stage"], receipt["woken"]) == ("inHistory", False)
        gate.opened.set()
        assert (await stage(client, "s1", "answered"))["turnId"] == turn["id"]
        assert len(served.model.requests) == 2
        assert served.model.inputs()[-1] == ("developer", text_of())


async def test_a_passive_signal_does_not_prolong_a_turn(tmp_path: Path) -> None:
    async with busy_thread(tmp_path, *says("first")) as (served, client, thread_id, gate):
        assert (await deliver(client, thread_id))["stage"] == "inHistory"
        gate.opened.set()
        await client.wait_for("turn/completed")
        assert len(served.model.requests) == 1
        assert (await client.call("signal/read", {"source": "router", "id": "s1"}))["receipt"][
            "stage"
        ] == "inHistory"
        await client.turn(thread_id, "on")
        assert ("developer", text_of()) in served.model.inputs()


# Recipients.


@claim("signals:recipient")
async def test_each_state_of_a_recipient_has_its_own_answer(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    async with serve(tmp_path, model=model) as served, served.client() as client:
        idle, stored, archived, active = [await client.start_thread() for _ in range(4)]
        for thread_id in (stored, archived):
            await client.turn(thread_id, "hello")
        await client.call("thread/archive", {"threadId": archived})
        model.scripts = [[gate, *says("first")]]
        params = {"threadId": active, "input": [{"type": "text", "text": "go"}]}
        await client.call("turn/start", params)
        await gate.wait_until_reached()
        await unload(served, stored)
        states = [
            (await deliver(client, thread_id, name))["recipientState"]
            for name, thread_id in (("s1", idle), ("s2", active), ("s3", stored))
        ]
        assert states == ["idle", "active", "notLoaded"]
        await stage(client, "s3", "inHistory")
        assert (await client.call("thread/loaded/list", {}))["data"][-1] == stored
        for thread_id, code, state in (
            (archived, "threadArchived", "archived"),
            ("0190c0de-0000-7000-8000-000000000000", "threadNotFound", "unknown"),
            ("nonsense", "threadNotFound", "unknown"),
        ):
            refusal = await client.refusal(
                "signal/deliver",
                {"signal": signal("s9"), "target": {"threadId": thread_id}, "mode": "wake"},
            )
            assert refusal.code == -32600
            assert (refusal.data["code"], refusal.data["recipientState"]) == (code, state)
        # A refusal leaves nothing behind.
        refusal = await client.refusal("signal/read", {"source": "router", "id": "s9"})
        assert refusal.data["code"] == "signalNotFound"
        gate.opened.set()


async def test_a_target_can_be_a_directory_or_a_name(tmp_path: Path) -> None:
    async with serve(tmp_path) as _served, _served.client() as client:
        here = await client.start_thread(cwd=str(tmp_path / "here"))
        there = await client.start_thread(cwd=str(tmp_path / "there"))
        await client.call("thread/name/set", {"threadId": there, "name": "reviews"})
        params: dict[str, Any] = {"signal": signal("s1"), "mode": "passive"}
        target: dict[str, Any] = {"cwd": f"{tmp_path}/here/"}
        answer = await client.call("signal/deliver", {**params, "target": target})
        assert answer["receipt"]["threadId"] == here
        params["signal"] = signal("s2")
        answer = await client.call("signal/deliver", {**params, "target": {"name": "reviews"}})
        assert answer["receipt"]["threadId"] == there
        params["signal"] = signal("s3")
        for target in ({"cwd": "/nowhere"}, {"name": "nobody"}):
            refusal = await client.refusal("signal/deliver", {**params, "target": target})
            assert refusal.data["recipientState"] == "unknown"
        await client.call("thread/name/set", {"threadId": here, "name": "reviews"})
        refusal = await client.refusal("signal/deliver", {**params, "target": {"name": "reviews"}})
        assert refusal.data["code"] == "ambiguousTarget"


async def test_a_turn_that_was_accepted_begins_though_its_sender_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = anyio.Event()
    find = Entries.find

    async def find_then_hang(self: Entries, key: tuple[str, str]) -> Entry | None:
        entry = await find(self, key)
        if entry is not None and not accepted.is_set():
            accepted.set()
            await anyio.sleep_forever()
        return entry

    monkeypatch.setattr(Entries, "find", find_then_hang)
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        signals = await served.services.signals.get()
        params = {"signal": signal(), "target": {"threadId": thread_id}, "mode": "wake"}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(signals.deliver, SignalDeliverParams.model_validate(params))
            await accepted.wait()
            tasks.cancel_scope.cancel()
        assert (await stage(client, "s1", "answered"))["woken"]


async def test_a_thread_that_a_signal_loads_says_so(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")
        await unload(served, thread_id)
        await deliver(client, thread_id)
        changed = await client.wait_for("thread/status/changed")
        assert changed["params"] == {"threadId": thread_id, "status": {"type": "idle"}}
