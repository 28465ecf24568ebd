"""Signals: into a thread once, with a receipt that says how far each one has come."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.sessions.input.inbox import Inbox
from app_server.signals.entries import Entries
from app_server.signals.ledger import Entry, Ledger, LedgerFailed
from protocol.signal_frame import END, OPENING
from protocol.signals import SignalDeliverParams
from tests.support.harness import (
    WAIT_S,
    Gate,
    Refusal,
    ScriptedModel,
    Served,
    WireClient,
    claim,
    says,
    serve,
)
from tests.support.receiver.signals import deliver, signal
from tests.support.turns import busy_thread

NAMES = 'source: "router"\ntype: "Question"\nsender: "ann"\n'


def text_of(signal_id: str = "s1", summary: str | None = None) -> str:
    """Return what the model reads."""
    lines = f"> {summary or f'summary of {signal_id}'}"
    return f'{OPENING}\n{NAMES}id: "{signal_id}"\nsummary:\n{lines}\n{END}'


async def stage(client: WireClient, signal_id: str, wanted: str) -> Any:
    """Wait until a signal has reached a stage and return its receipt."""
    event = await client.wait_for(
        "signal/updated",
        lambda p: p["receipt"]["signalId"] == signal_id and p["receipt"]["stage"] == wanted,
    )
    return event["params"]["receipt"]


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


async def unload(served: Served, thread_id: str) -> None:
    """Put a thread away as the sweep does."""
    await served.services.sessions.unload(thread_id)


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


# Once.


@claim("signals:once")
async def test_a_signal_sent_again_does_nothing(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        first = await deliver(client, thread_id, mode="wake")
        await stage(client, "s1", "answered")
        again = [await deliver(client, thread_id, mode="wake") for _ in range(20)]
        assert {entry["turnId"] for entry in again} == {first["turnId"]}
        assert {entry["stage"] for entry in again} == {"answered"}
        assert len(served.model.requests) == 1
        refusal = await client.refusal(
            "signal/deliver",
            {
                "signal": signal("s1", summary="another"),
                "target": {"threadId": thread_id},
                "mode": "wake",
            },
        )
        assert (refusal.code, refusal.data["code"]) == (-32600, "signalConflict")


@claim("signals:once")
async def test_the_same_signal_from_many_connections_is_one_item(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as first, served.client() as second:
        thread_id = await first.start_thread()
        params = {"signal": signal(), "target": {"threadId": thread_id}, "mode": "passive"}
        ids = [
            (client, await client.request("signal/deliver", params))
            for _ in range(10)
            for client in (first, second)
        ]
        receipts = [(await client.answer(number))["result"]["receipt"] for client, number in ids]
        assert len({json.dumps(receipt) for receipt in receipts}) == 1
        await first.turn(thread_id, "go")
        assert served.model.inputs() == [("developer", text_of()), ("user", "go")]


@claim("signals:once")
async def test_it_is_known_after_a_restart(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await deliver(client, thread_id, mode="wake")
        before = await stage(client, "s1", "answered")
    async with serve(tmp_path) as served, served.client() as client:
        assert await deliver(client, thread_id, mode="wake") == before
        assert served.model.requests == []


async def test_what_waited_for_a_turn_is_delivered_after_a_restart(tmp_path: Path) -> None:
    async with busy_thread(tmp_path) as (_, client, thread_id, _):
        assert (await deliver(client, thread_id, mode="wake"))["stage"] == "accepted"
    async with serve(tmp_path) as served, served.client() as client:
        with anyio.fail_after(WAIT_S):
            while (await read(client))["stage"] != "answered":
                await anyio.sleep(0.01)
        assert len(served.model.requests) == 1
        assert served.model.inputs()[-1] == ("developer", text_of())


async def test_what_waits_for_a_thread_of_a_newer_version_fails_and_the_server_goes_on(
    tmp_path: Path,
) -> None:
    async with busy_thread(tmp_path) as (_, client, thread_id, _):
        assert (await deliver(client, thread_id, mode="wake"))["stage"] == "accepted"
    (path,) = (tmp_path / "threads").rglob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'{"v":1', b'{"v":2', 1))
    async with serve(tmp_path) as served, served.client() as client:
        receipt = await read(client)
        assert (receipt["stage"], receipt["error"]["code"]) == ("failed", "threadNotLoadable")


async def read(client: WireClient, signal_id: str = "s1") -> Any:
    """Return a receipt."""
    answer = await client.call("signal/read", {"source": "router", "id": signal_id})
    return answer["receipt"]


# Ends.


@claim("signals:recall")
async def test_a_recalled_signal_is_never_seen(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await deliver(client, thread_id, "s1")
        await deliver(client, thread_id, "s2")
        params = {"source": "router", "id": "s1"}
        recalled = (await client.call("signal/recall", params))["receipt"]
        assert (recalled["stage"], recalled["itemId"]) == ("recalled", None)
        assert (await client.call("signal/recall", params))["receipt"] == recalled
        await client.turn(thread_id, "go")
        assert served.model.inputs() == [("developer", text_of("s2")), ("user", "go")]
        await stage(client, "s2", "answered")
        refusal = await client.refusal("signal/recall", {"source": "router", "id": "s2"})
        assert (refusal.code, refusal.data["code"]) == (-32600, "signalNotRecallable")


async def test_a_signal_that_a_model_is_reading_cannot_be_recalled(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    model.scripts = [[gate, *says("done")]]
    async with serve(tmp_path, model=model) as served, served.client() as client:
        thread_id = await client.start_thread()
        await deliver(client, thread_id, mode="wake")
        await gate.wait_until_reached()
        refusal = await client.refusal("signal/recall", {"source": "router", "id": "s1"})
        assert refusal.data["code"] == "signalNotRecallable"
        gate.opened.set()
        await stage(client, "s1", "answered")
        assert len(served.model.requests) == 1


async def test_a_waiting_signal_can_be_recalled(tmp_path: Path) -> None:
    async with busy_thread(tmp_path, *says("done")) as (served, client, thread_id, gate):
        await deliver(client, thread_id, "s1", "wake")
        await deliver(client, thread_id, "s2", "wake", onBusy="steer", signal={"sender": "bob"})
        for name in ("s1", "s2"):
            answer = await client.call("signal/recall", {"source": "router", "id": name})
            assert answer["receipt"]["stage"] == "recalled"
        gate.opened.set()
        await client.wait_for("turn/completed")
        assert len(served.model.requests) == 1


async def test_a_signal_of_a_thread_that_is_not_loaded_can_be_recalled(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await deliver(client, thread_id)
        await unload(served, thread_id)
        answer = await client.call("signal/recall", {"source": "router", "id": "s1"})
        assert answer["receipt"]["stage"] == "recalled"
        await client.call("thread/resume", {"threadId": thread_id})
        await client.turn(thread_id, "go")
        assert served.model.inputs() == [("user", "go")]


@claim("signals:recall")
async def test_a_signal_whose_time_is_over_is_not_delivered(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    model.scripts = [[gate, *says("done")]]
    async with serve(tmp_path, model=model) as served, served.client() as client:
        thread_id = await client.start_thread()
        old = {"createdAt": 1_000_000, "ttlSeconds": 60}
        assert (await deliver(client, thread_id, "s0", signal=old))["stage"] == "expired"
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        await client.call("turn/start", params)
        await gate.wait_until_reached()
        receipt = await deliver(client, thread_id, "s1", "wake", signal={"ttlSeconds": 1})
        assert receipt["stage"] == "accepted"
        assert (await stage(client, "s1", "expired"))["itemId"] is None
        gate.opened.set()
        await client.wait_for("turn/completed")
        assert len(served.model.requests) == 1


async def test_a_turn_that_fails_is_named_and_the_next_one_answers(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.scripts = [Refusal(400, {"error": {"message": "no"}})]
    async with serve(tmp_path, model=model) as served, served.client() as client:
        thread_id = await client.start_thread()
        await deliver(client, thread_id, mode="wake")
        event = await client.wait_for("signal/updated", lambda p: p["receipt"]["error"] is not None)
        receipt = event["params"]["receipt"]
        assert receipt["stage"] == "inHistory"
        assert receipt["error"]["code"] == "turnFailed"
        turn = await client.turn(thread_id, "again")
        answered = await stage(client, "s1", "answered")
        assert (answered["turnId"], answered["error"]) == (turn["id"], None)
        assert len(served.model.requests) == 2


# Bounds.


@claim("signals:bounds")
async def test_what_is_too_large_is_refused_by_name(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        target = {"threadId": thread_id}
        whole = signal("w", summary="x" * 4096, payload="x" * (256 * 1024 - 2))
        await client.call("signal/deliver", {"signal": whole, "target": target, "mode": "passive"})
        for members, field in (
            ({"summary": "x" * 4097}, "signal.summary"),
            ({"payload": "x" * (256 * 1024 - 1)}, "signal.payload"),
            ({"source": ""}, "signal.source"),
            ({"sender": "a\nb"}, "signal.sender"),
            ({"type": "x" * 257}, "signal.type"),
        ):
            refusal = await client.refusal(
                "signal/deliver",
                {"signal": {**signal("s2"), **members}, "target": target, "mode": "passive"},
            )
            assert (refusal.code, refusal.data["field"]) == (-32602, field)


@claim("signals:bounds")
async def test_the_sixty_fifth_signal_that_waits_is_put_off(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        for number in range(64):
            await deliver(client, thread_id, f"s{number}")
        params = {"signal": signal("s64"), "target": {"threadId": thread_id}, "mode": "passive"}
        refusal = await client.refusal("signal/deliver", params)
        assert (refusal.code, refusal.message) == (-32001, "Server overloaded; retry later.")
        await client.turn(thread_id, "go")
        assert (await client.call("signal/deliver", params))["receipt"]["stage"] == "inHistory"


@claim("signals:wake-limit")
async def test_a_source_that_wakes_too_often_becomes_passive(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        for number in range(8):
            assert (await deliver(client, thread_id, f"s{number}", "wake"))["woken"]
            await stage(client, f"s{number}", "answered")
        calmed = await deliver(client, thread_id, "s8", "wake")
        assert (calmed["stage"], calmed["woken"], calmed["error"]["code"]) == (
            "inHistory",
            False,
            "wakeLimit",
        )
        other = await deliver(client, thread_id, "o1", "wake", signal={"source": "elsewhere"})
        assert other["woken"]
        await stage(client, "o1", "answered")
        assert len(served.model.requests) == 9


# The ledger.


async def test_receipts_are_listed_newest_first_in_pages(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        other = await client.start_thread()
        for number in range(5):
            await deliver(client, thread_id, f"s{number}")
        await deliver(client, other, "o1")
        query = {"threadId": thread_id, "stage": "inHistory", "limit": 2}
        first = await client.call("signal/list", query)
        # What comes in between moves no page.
        await deliver(client, thread_id, "s5")
        second = await client.call("signal/list", {**query, "cursor": first["nextCursor"]})
        third = await client.call("signal/list", {**query, "cursor": second["nextCursor"]})
        ids = [[entry["signalId"] for entry in page["data"]] for page in (first, second, third)]
        assert ids == [["s4", "s3"], ["s2", "s1"], ["s0"]]
        assert third["nextCursor"] is None
        refusal = await client.refusal("signal/list", {"cursor": "bogus"})
        assert (refusal.code, refusal.message) == (-32600, "invalid cursor: bogus")


def entry(name: str, **members: Any) -> Entry:
    """Make an entry of the ledger."""
    return Entry(
        **{
            "source": "router",
            "id": name,
            "digest": "d",
            "thread_id": "t",
            "sender": "ann",
            "item": "",
            "wakes": False,
            "steers": False,
            "stage": "answered",
            "recipient_state": "idle",
            "at_ms": 1,
            "item_id": "i",
            **members,
        }
    )


def test_the_ledger_forgets_what_has_been_over_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.signals.ledger.MAX_OVER", 3)
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    month_ms = 30 * 24 * 3600 * 1000
    ledger.put([entry("old"), entry("waits", stage="inHistory")])
    ledger.put([entry(f"s{number}", at_ms=month_ms) for number in range(5)])
    assert ledger.forget_old(month_ms + 2) == 3
    kept = [found.id for found in ledger.page(None, None, None, 10).entries]
    assert kept == ["s4", "s3", "s2", "waits"]
    ledger.close()


def test_a_ledger_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    ledger = Ledger(path)
    ledger._database.execute("PRAGMA user_version = 99")
    ledger.close()
    with pytest.raises(LedgerFailed, match="version 99"):
        Ledger(path)


async def test_a_broken_ledger_is_an_error_and_everything_else_works(tmp_path: Path) -> None:
    (tmp_path / "signals").mkdir(parents=True)
    (tmp_path / "signals" / "ledger.sqlite3").write_bytes(b"no database" * 1000)
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        params = {"signal": signal(), "target": {"threadId": thread_id}, "mode": "wake"}
        refusal = await client.refusal("signal/deliver", params)
        assert (refusal.code, refusal.data["code"]) == (-32603, "storageFailed")
        assert (await client.turn(thread_id, "go"))["status"] == "completed"
        assert served.model.items(0)[-1]["role"] == "user"


async def test_signals_need_the_opt_in(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client(experimental=False) as client:
        refusal = await client.refusal("signal/read", {"source": "router", "id": "s1"})
        assert refusal.message == "signal/read requires experimentalApi capability"


# When something goes wrong.


async def test_a_failure_that_nobody_expected_lets_the_signal_wait_and_the_server_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, failures = Inbox.receive, [RuntimeError("a bug")]

    async def fail_once(self: Inbox, messages: Any) -> Any:
        if failures:
            raise failures.pop()
        return await receive(self, messages)

    monkeypatch.setattr(Inbox, "receive", fail_once)
    monkeypatch.setattr("app_server.signals.schedule.RETRY_S", (0.0,))
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        assert (await deliver(client, thread_id, mode="wake"))["stage"] == "accepted"
        assert (await stage(client, "s1", "answered"))["woken"]
        assert len(served.model.requests) == 1


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
