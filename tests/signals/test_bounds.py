"""Signals: what is refused or put off, and failures of the ledger."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app_server.sessions.input import SignalInbox
from app_server.threads.files.ledger import Ledger
from app_server.threads.ledger import LedgerFailed
from tests.support.harness import (
    claim,
    serve,
)
from tests.support.receiver.signals import deliver, signal
from tests.support.receiver.stages import entry, stage

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


def test_a_clock_that_was_set_back_calms_no_source(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    hour_ms = 3600 * 1000
    before = [entry(f"s{number}", turn_id=f"t{number}", woken_at_ms=number) for number in range(8)]
    later = [replace(one, id=f"{one.id}-", woken_at_ms=hour_ms) for one in before]
    ledger.put([*before, *later])
    assert ledger.turns_woken_since("t", "router", -1, 60_000) == 8
    # Forward again: what was begun in the hour that comes again counts as what it was.
    assert ledger.turns_woken_since("t", "router", hour_ms - 60_000, hour_ms) == 8
    ledger.close()


def test_the_ledger_forgets_what_has_been_over_for_long(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite3", max_over=3)
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
    ledger.database.execute("PRAGMA user_version = 99")
    ledger.close()
    with pytest.raises(LedgerFailed, match="version 99"):
        Ledger(path)


async def test_a_ledger_of_a_newer_server_is_an_error_and_everything_else_works(
    tmp_path: Path,
) -> None:
    path = tmp_path / "signals" / "ledger.sqlite3"
    Ledger(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 2")
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


async def test_an_unexpected_failure_keeps_the_signal_and_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, failures = SignalInbox.receive, [RuntimeError("a bug")]

    async def fail_once(self: SignalInbox, messages: Any) -> Any:
        if failures:
            raise failures.pop()
        return await receive(self, messages)

    monkeypatch.setattr(SignalInbox, "receive", fail_once)
    monkeypatch.setattr("app_server.signals.thread_delivery.RETRY_S", (0.0,))
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        assert (await deliver(client, thread_id, mode="wake"))["stage"] == "accepted"
        assert (await stage(client, "s1", "answered"))["woken"]
        assert len(served.model.requests) == 1
