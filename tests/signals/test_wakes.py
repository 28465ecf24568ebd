"""Wakes that clients set: timers, processes, files."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.threads.files.ledger import Ledger
from app_server.threads.files.signals import ledger_path
from app_server.threads.wakes import MAX_FILES_OF_HOME
from protocol.log.rollout import ArchivedChanged
from tests.support.files.full_disk import NO_BYTECODE, full_disk
from tests.support.harness import WAIT_S, Served, WireClient, claim, serve, write_config
from tests.support.model import ScriptedModel, calls, says
from tests.support.processes import started
from tests.support.receiver.stages import unload
from tests.support.receiver.wakes import (
    HOUR_MS,
    SetClock,
    framed,
    reached,
    set_timer,
    set_wake,
    soon_ms,
    stored_timer,
    wake_is,
    wakes_of,
)
from tests.support.turn_tools.turn_commands import SOON_MS, command
from tests.support.turns import busy_thread

TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
ACCESS = {"sandbox": "danger-full-access", "approvalPolicy": "never"}


@claim("wakes:timer")
async def test_a_timer_begins_one_turn_and_no_request_comes_before(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        at_ms = soon_ms()
        wake = await set_timer(client, thread_id, at_ms)
        assert wake == {
            "id": wake["id"],
            "threadId": thread_id,
            "source": {"type": "timer", "atMs": at_ms, "everySecs": None, "untilMs": None},
            "note": "look",
            "mode": "wake",
            "state": "armed",
            "setAtMs": wake["setAtMs"],
            "changedAtMs": wake["setAtMs"],
            "nextAtMs": at_ms,
            "signalId": None,
            "error": None,
        }
        assert served.model.requests == []
        fired = await wake_is(client, wake["id"], "fired")
        assert fired["atMs"] >= at_ms
        delivered = await wake_is(client, wake["id"], "delivered")
        assert delivered == {**fired, "state": "delivered", "atMs": delivered["atMs"]}
        assert delivered["atMs"] >= fired["atMs"]
        await client.wait_for("turn/completed")
        (text,) = [text for role, text in served.model.inputs() if role == "developer"]
        lines = ("look", "The timer was set for T; it is T.")
        assert TIMES.sub("T", text) == framed(wake, "TimerFired", *lines)
        assert len(served.model.requests) == 1
        (after,) = await wakes_of(client, thread_id)
        assert (after["state"], after["nextAtMs"]) == ("delivered", None)
        receipt = await client.call(
            "signal/read", {"source": "app-server wake", "id": after["signalId"]}
        )
        assert receipt["receipt"]["woken"]
        usage = await client.call("usage/read", {"groupBy": "origin"})
        assert [row["group"] for row in usage["data"]] == ["wake"]


@claim("wakes:timer")
async def test_a_queued_wake_begins_no_turn(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        wake = await set_timer(client, thread_id, soon_ms(), mode="queue")
        await wake_is(client, wake["id"], "delivered")
        await client.turn(thread_id, "go")
        assert [role for role, _ in served.model.inputs()] == ["developer", "user"]
        assert len(served.model.requests) == 1


@claim("wakes:restart")
@pytest.mark.parametrize("late_ms", [0, HOUR_MS])
async def test_a_timer_that_came_while_no_server_ran_is_late_and_comes_once(
    tmp_path: Path, late_ms: int
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "go")
        wake = await set_timer(client, thread_id, soon_ms(HOUR_MS))
    clock = SetClock()
    clock.by_ms = HOUR_MS + late_ms
    for requests in (1, 0):
        async with serve(tmp_path, clock=clock) as served, served.client() as client:
            await reached(client, wake, "delivered")
            await asked(served, requests)
            await client.call("thread/resume", {"threadId": thread_id})
            assert len(served.model.requests) == requests


async def asked(served: Served, requests: int) -> None:
    """Wait until the model has got so many requests."""
    with anyio.fail_after(WAIT_S):
        while len(served.model.requests) < requests:
            await anyio.sleep(0.01)


@claim("wakes:repeat")
async def test_a_repeated_timer_comes_once_for_all_that_were_missed(tmp_path: Path) -> None:
    clock = SetClock()
    async with serve(tmp_path, clock=clock) as served, served.client() as client:
        thread_id = await client.start_thread()
        at_ms = soon_ms(HOUR_MS)
        source = {"type": "timer", "atMs": at_ms, "everySecs": 60, "untilMs": at_ms + 4 * 60_000}
        wake = await set_wake(client, thread_id, source)
        clock.by_ms = HOUR_MS + 150_000
        await nudge(client, thread_id)
        # The next time of the row, which does not begin anew.
        again = await reached(client, wake, "armed", nextAtMs=at_ms + 3 * 60_000)
        assert again["signalId"] == f"{wake['id']}:1"
        clock.by_ms += 600_000
        await nudge(client, thread_id)
        over = await reached(client, wake, "delivered")
        assert over["signalId"] == f"{wake['id']}:2"
        await asked(served, 2)
        await client.turn(thread_id, "go")
        woken = [text for role, text in served.model.inputs() if role == "developer"]
        assert len(woken) == 2


@claim("wakes:clock")
async def test_a_clock_that_is_set_neither_loses_nor_doubles_a_timer(tmp_path: Path) -> None:
    clock = SetClock()
    async with serve(tmp_path, clock=clock) as served, served.client() as client:
        thread_id = await client.start_thread()
        once = await set_timer(client, thread_id, soon_ms(HOUR_MS))
        every = await set_wake(client, thread_id, {"type": "timer", "everySecs": 3600})
        row = {"type": "timer", "atMs": soon_ms(HOUR_MS + 500), "everySecs": 3600}
        first = await set_wake(client, thread_id, row)
        clock.by_ms = -HOUR_MS
        await nudge(client, thread_id)
        # What repeats is one interval away, what has a time keeps it.
        times = {one["id"]: one["nextAtMs"] for one in await looked(client, every)}
        assert times[once["id"]] == once["nextAtMs"]
        assert times[first["id"]] == first["nextAtMs"]
        assert abs(times[every["id"]] - (every["nextAtMs"] - HOUR_MS)) < 2 * WAIT_S * 1000
        clock.by_ms = HOUR_MS + 1000
        # By itself: nobody tells a server of it.
        await reached(client, once, "delivered")
        await reached(client, first, "armed", signalId=f"{first['id']}:1")
        fired = await reached(client, every, "armed", signalId=f"{every['id']}:1")
        clock.by_ms = 0
        await nudge(client, thread_id)
        (near,) = [one for one in await looked(client, fired) if one["id"] == every["id"]]
        assert near["nextAtMs"] <= clock.now_ms() + HOUR_MS
        for wake in (every, first):
            named = {"threadId": thread_id, "wakeId": wake["id"]}
            await client.call("thread/wake/cancel", named)
        clock.by_ms = 2 * HOUR_MS
        last = await set_timer(client, thread_id, clock.now_ms() + 1500, mode="queue")
        await reached(client, last, "delivered")
        await client.turn(thread_id, "go")
        names = [once["id"], f"{first['id']}:1", f"{every['id']}:1", last["id"]]
        with anyio.fail_after(WAIT_S):
            while last["id"] not in (seen := texts_of_wakes(served)):
                await anyio.sleep(0.01)
        assert sorted(seen) == sorted(names)


async def looked(client: WireClient, wake: Any) -> list[Any]:
    """Return all wakes once a look has brought the next time of one near."""
    with anyio.fail_after(WAIT_S):
        while True:
            found = await wakes_of(client)
            (one,) = [each for each in found if each["id"] == wake["id"]]
            if one["nextAtMs"] != wake["nextAtMs"]:
                return found
            await anyio.sleep(0.01)


async def nudge(client: WireClient, thread_id: str) -> None:
    """Have the server look at its wakes."""
    far_ms = soon_ms(1000 * HOUR_MS)
    wake = await set_timer(client, thread_id, far_ms)
    await client.call("thread/wake/cancel", {"threadId": thread_id, "wakeId": wake["id"]})


@claim("wakes:threads")
async def test_a_wake_of_a_busy_thread_waits_for_the_end_of_its_turn(tmp_path: Path) -> None:
    async with busy_thread(tmp_path, *says("done")) as (served, client, thread_id, gate):
        wake = await set_timer(client, thread_id, soon_ms())
        await wake_is(client, wake["id"], "fired")
        assert len(served.model.requests) == 1
        gate.opened.set()
        await wake_is(client, wake["id"], "delivered")
        await asked(served, 2)
        await client.wait_for("turn/completed")
        assert len(served.model.requests) == 2


@claim("wakes:threads")
async def test_a_wake_loads_its_thread(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "go")
        await unload(served, thread_id)
        wake = await set_timer(client, thread_id, soon_ms())
        await wake_is(client, wake["id"], "delivered")
        await asked(served, 2)


GONE = [("thread/archive", "threadArchived"), ("thread/delete", "threadNotFound")]


@claim("wakes:threads")
@pytest.mark.parametrize(("method", "code"), GONE)
async def test_a_thread_that_goes_takes_its_wakes_along_at_once(
    tmp_path: Path, method: str, code: str
) -> None:
    file = {"type": "file", "path": str(tmp_path / "file"), "change": "created"}
    # However long the end of the thread takes, no look comes in between.
    clock = SetClock(soon_ms(0))
    async with serve(tmp_path / "home", clock=clock) as served, served.client() as client:
        line = waiting_for(tmp_path / "go", "exit 0")
        thread_id, (process_id,) = await with_process(served, client, line)
        process = {"type": "process", "processId": process_id}
        every = {"type": "timer", "everySecs": 3600}
        for source in (process, file, every):
            await set_wake(client, thread_id, source)
        await anyio.to_thread.run_sync(_fill, tmp_path / "home")
        other = await client.start_thread()
        params = {"threadId": other, "source": file}
        refusal = await client.refusal("thread/wake/set", params)
        assert refusal.data["code"] == "tooManyWakes"
        await client.call(method, {"threadId": thread_id})
        found = [(one["state"], one["error"]["code"]) for one in await wakes_of(client, thread_id)]
        assert found == [("cancelled", code), ("cancelled", code), ("lost", code)]
        refusal = await client.refusal("thread/wake/set", timer(thread_id, soon_ms(HOUR_MS * 2)))
        assert refusal.data["code"] == code
        await set_wake(client, other, file)


def _fill(home: Path) -> None:
    """Have all wakes on files but one wait, of other threads. Blocks."""
    ledger = Ledger(ledger_path(home))
    for number in range(MAX_FILES_OF_HOME - 1):
        wake = stored_timer(f"f{number}", None)
        ledger.wakes.add(replace(wake, kind="file", thread_id=f"{number}"))
    ledger.close()


@claim("wakes:threads")
@pytest.mark.parametrize(("method", "code"), GONE)
async def test_a_wake_whose_server_died_with_the_end_of_its_thread_is_cancelled_in_time(
    tmp_path: Path, method: str, code: str
) -> None:
    clock = SetClock()
    async with serve(tmp_path, clock=clock) as served, served.client() as client:
        thread_id, other = await client.start_thread(), await client.start_thread()
        await client.turn(thread_id, "go")
        wake = await set_timer(client, thread_id, soon_ms(HOUR_MS))
        # Without what the handler does behind it.
        if method == "thread/delete":
            await served.services.sessions.delete(thread_id)
        else:
            record = ArchivedChanged(at_ms=clock.now_ms(), archived=True)
            await served.services.sessions.archive(thread_id, record)
        clock.by_ms = HOUR_MS
        await nudge(client, other)
        assert (await reached(client, wake, "cancelled"))["error"]["code"] == code
        assert len(served.model.requests) == 1


@claim("wakes:threads")
@pytest.mark.parametrize(("method", "code"), GONE)
async def test_the_next_start_ends_the_wakes_of_a_thread_whose_end_its_server_did_not_finish(
    tmp_path: Path, method: str, code: str
) -> None:
    file = {"type": "file", "path": str(tmp_path / "file"), "change": "created"}
    home = tmp_path / "home"
    async with serve(home) as served, served.client() as client:
        thread_id, other = await client.start_thread(), await client.start_thread()
        for each in (thread_id, other):
            await client.turn(each, "go")
        wakes = [await set_wake(client, each, file) for each in (thread_id, other)]
        # Without what the handler does behind it.
        if method == "thread/delete":
            await served.services.sessions.delete(thread_id)
        else:
            record = ArchivedChanged(at_ms=soon_ms(0), archived=True)
            await served.services.sessions.archive(thread_id, record)
    async with serve(home) as served, served.client() as client:
        assert (await reached(client, wakes[0], "cancelled"))["error"]["code"] == code
        assert await wakes_of(client, other) == [wakes[1]]


@claim("wakes:damaged")
async def test_a_wake_whose_row_is_damaged_ends_and_the_others_come(tmp_path: Path) -> None:
    home = tmp_path / "home"
    paths = [tmp_path / f"file-{number}" for number in range(2)]
    async with serve(home) as served, served.client() as client:
        thread_id = await client.start_thread()
        far = await set_timer(client, thread_id, soon_ms(HOUR_MS))
        files = [
            await set_wake(
                client, thread_id, {"type": "file", "path": str(path), "change": "created"}
            )
            for path in paths
        ]
        damaged = [far["id"], files[0]["id"]]
        await anyio.to_thread.run_sync(_damage, home, damaged)
        for path in paths:
            path.touch()
        codes: dict[str, str] = {}
        while codes.keys() != set(damaged):
            event = (await client.wait_for("thread/wake/changed"))["params"]
            if event["state"] == "cancelled":
                codes[event["wakeId"]] = event["error"]["code"]
        assert set(codes.values()) == {"sourceUnreadable"}
        await reached(client, files[1], "delivered")
        assert [one["id"] for one in await wakes_of(client)] == [files[1]["id"]]


@claim("wakes:damaged")
async def test_a_wake_whose_thread_cannot_be_read_stops_no_start(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "go")
        await set_timer(client, thread_id, soon_ms(HOUR_MS))
    ledger = Ledger(ledger_path(tmp_path))
    with ledger.transaction() as database:
        database.execute("UPDATE wakes SET thread_id = x'ff'")
    ledger.close()
    async with serve(tmp_path) as served, served.client() as client:
        wake = await set_timer(client, thread_id, soon_ms())
        await reached(client, wake, "delivered")
        assert [one["id"] for one in await wakes_of(client)] == [wake["id"]]


def _damage(home: Path, wakes: list[str]) -> None:
    """Spoil the sources of wakes, and have their times come. Blocks."""
    ledger = Ledger(ledger_path(home))
    with ledger.transaction() as database:
        for wake_id in wakes:
            database.execute(
                "UPDATE wakes SET source = 'x', look_at_ms = min(look_at_ms, ?) WHERE id = ?",
                (soon_ms(0), wake_id),
            )
    ledger.close()


def timer(thread_id: str, at_ms: int) -> dict[str, Any]:
    return {"threadId": thread_id, "source": {"type": "timer", "atMs": at_ms}}


@claim("wakes:cancel")
async def test_a_cancelled_wake_does_not_come(tmp_path: Path) -> None:
    clock = SetClock()
    async with serve(tmp_path, clock=clock) as served, served.client() as client:
        thread_id = await client.start_thread()
        wake = await set_timer(client, thread_id, soon_ms(HOUR_MS))
        named = {"threadId": thread_id, "wakeId": wake["id"]}
        cancelled = await client.call("thread/wake/cancel", named)
        assert cancelled["wake"]["state"] == "cancelled"
        assert await client.call("thread/wake/cancel", named) == cancelled
        clock.by_ms = HOUR_MS * 2
        later = await set_timer(client, thread_id, soon_ms() + HOUR_MS * 2)
        await wake_is(client, later["id"], "delivered")
        refusal = await client.refusal("thread/wake/cancel", {**named, "wakeId": later["id"]})
        assert (refusal.code, refusal.data["code"]) == (-32600, "wakeOver")
        other = await client.start_thread()
        refusal = await client.refusal("thread/wake/cancel", {**named, "threadId": other})
        assert (refusal.code, refusal.data["code"]) == (-32600, "wakeNotFound")
        await asked(served, 1)
        assert len(served.model.requests) == 1


@claim("wakes:bad-input")
async def test_bad_wakes_are_refused_by_field_and_rule(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        now_ms = soon_ms()
        rows: list[tuple[dict[str, Any], str, str]] = [
            ({"type": "timer"}, "source", "needs `atMs` or `everySecs`"),
            ({"type": "timer", "atMs": now_ms - 10_000}, "source.atMs", "must not be in the past"),
            ({"type": "timer", "everySecs": 59}, "source.everySecs", "must be 60 to"),
            ({"type": "timer", "atMs": now_ms + 9000, "untilMs": 1}, "source.untilMs", "needs"),
            (
                {"type": "timer", "atMs": now_ms + 9000, "everySecs": 60, "untilMs": now_ms},
                "source.untilMs",
                "must not be before the first time",
            ),
            ({"type": "process", "processId": "7"}, "source.processId", "must be a process"),
            ({"type": "file", "path": "a", "change": "any"}, "source.path", "must be absolute"),
        ]
        for source, field, rule in rows:
            refusal = await client.refusal(
                "thread/wake/set", {"threadId": thread_id, "source": source}
            )
            assert (refusal.code, refusal.data["field"]) == (-32602, field)
            assert refusal.data["rule"].startswith(rule)
        for source in (
            {"type": "file", "path": "/a", "change": "moved"},
            {"type": "moon"},
            {"type": "timer", "atMs": now_ms + 9000, "everyMs": 1},
        ):
            refusal = await client.refusal(
                "thread/wake/set", {"threadId": thread_id, "source": source}
            )
            assert refusal.code == -32602
            assert "source" in str(refusal)
        params = {**timer(thread_id, now_ms + 9000), "note": "é" * 513}
        refusal = await client.refusal("thread/wake/set", params)
        assert (refusal.data["field"], refusal.data["rule"]) == (
            "note",
            "holds more than 1024 bytes",
        )
        missing = await client.refusal(
            "thread/wake/set", timer("01900000-0000-7000-8000-000000000000", now_ms + 9000)
        )
        assert missing.data["code"] == "threadNotFound"
        assert await wakes_of(client) == []


@claim("wakes:bounds")
async def test_a_thread_has_a_bounded_number_of_wakes_and_pages_of_them(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        ids = [(await set_timer(client, thread_id, soon_ms(HOUR_MS)))["id"] for _ in range(64)]
        refusal = await client.refusal("thread/wake/set", timer(thread_id, soon_ms(HOUR_MS)))
        assert (refusal.code, refusal.data["code"]) == (-32600, "tooManyWakes")
        first = await client.call("thread/wake/list", {"threadId": thread_id, "limit": 40})
        rest = await client.call(
            "thread/wake/list", {"threadId": thread_id, "cursor": first["nextCursor"]}
        )
        assert [one["id"] for one in first["data"] + rest["data"]] == ids[::-1]
        assert rest["nextCursor"] is None
        bad = await client.refusal("thread/wake/list", {"cursor": "x"})
        assert bad.data["code"] == "invalidCursor"


@claim("wakes:bounds")
async def test_wakes_begin_at_most_8_turns_a_minute_and_none_is_lost(tmp_path: Path) -> None:
    clock = SetClock()
    async with serve(tmp_path, clock=clock) as served, served.client() as client:
        thread_id = await client.start_thread()
        wakes: list[Any] = []
        for number in range(9):
            at_ms = clock.now_ms() + 1500
            wakes.append(await set_timer(client, thread_id, at_ms))
            clock.by_ms += 1500
            await nudge(client, thread_id)
            if number < 8:
                await reached(client, wakes[-1], "delivered")
                await asked(served, number + 1)
                await client.wait_for("turn/completed")
        await reached(client, wakes[-1], "fired")
        assert len(served.model.requests) == 8
        clock.by_ms += 60_000
        await nudge(client, thread_id)
        await reached(client, wakes[-1], "delivered")
        await client.wait_for("turn/completed")
        assert len(served.model.requests) == 9


# Processes.


async def with_process(
    served: Served, client: WireClient, line: str, count: int = 1
) -> tuple[str, list[str]]:
    """Start a thread that has left processes running; return their ids too."""
    thread_id = await client.start_thread(**ACCESS)
    script = [
        {"call_id": f"call_{number}", **command(line, yield_time_ms=SOON_MS)}
        for number in range(count)
    ]
    served.model.scripts[:] = [calls(*script), says("done")]
    await client.turn(thread_id, "go")
    listed = await client.call("thread/backgroundTerminals/list", {"threadId": thread_id})
    served.model.requests.clear()
    return thread_id, [row["processId"] for row in listed["data"]]


def waiting_for(file: Path, then: str) -> str:
    return f"while [ ! -e {file} ]; do sleep 0.05; done; {then}"


@claim("wakes:process")
async def test_the_end_of_a_process_begins_a_turn_with_how_it_ended(tmp_path: Path) -> None:
    go = tmp_path / "go"
    line = waiting_for(go, "echo built; exit 3")
    async with serve(tmp_path / "home") as served, served.client() as client:
        thread_id, (process_id,) = await with_process(served, client, line)
        wake = await set_wake(client, thread_id, {"type": "process", "processId": process_id})
        assert served.model.requests == []
        go.touch()
        await wake_is(client, wake["id"], "delivered")
        await client.wait_for("turn/completed")
        (text,) = [text for role, text in served.model.inputs() if role == "developer"]
        text = re.sub(r"after \d+\.\d seconds", "after T seconds", text)
        assert text == framed(
            wake,
            "ProcessExited",
            "look",
            f"Process {process_id} ({line}) exited with code 3 after T seconds. The end of its "
            "output:",
            "built",
        )
        assert len(served.model.requests) == 1


@claim("wakes:process")
async def test_two_processes_that_end_at_once_are_both_told_of(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with serve(tmp_path / "home") as served, served.client() as client:
        thread_id, ids = await with_process(served, client, waiting_for(go, "exit 0"), count=2)
        wakes = [
            await set_wake(client, thread_id, {"type": "process", "processId": process_id})
            for process_id in ids
        ]
        go.touch()
        for wake in wakes:
            await reached(client, wake, "delivered")
        with anyio.fail_after(WAIT_S):
            while len(seen := texts_of_wakes(served)) < 2:
                await anyio.sleep(0.01)
        assert sorted(seen) == sorted(wake["id"] for wake in wakes)
        assert len(served.model.requests) <= 2


def texts_of_wakes(served: Served) -> list[str]:
    """Return the ids of the wakes in the newest request."""
    if not served.model.requests:
        return []
    text = "\n".join(text for _, text in served.model.inputs())
    return re.findall(r'^id: "(.*)"$', text, re.MULTILINE)


@claim("wakes:bad-input")
async def test_a_process_of_another_thread_wakes_nobody(tmp_path: Path) -> None:
    async with serve(tmp_path / "home") as served, served.client() as client:
        line = waiting_for(tmp_path / "go", "exit 0")
        _, (process_id,) = await with_process(served, client, line)
        other = await client.start_thread(**ACCESS)
        refusal = await client.refusal(
            "thread/wake/set",
            {"threadId": other, "source": {"type": "process", "processId": process_id}},
        )
        assert refusal.data["field"] == "source.processId"
        assert await wakes_of(client) == []


async def in_history(client: WireClient, signal_id: str) -> None:
    """Wait until the signal of a wake is in the log of its thread."""
    asked = {"source": "app-server wake", "id": signal_id}
    with anyio.fail_after(WAIT_S):
        while True:
            message = await client.answer(await client.request("signal/read", asked))
            stage = message.get("result", {}).get("receipt", {}).get("stage", "accepted")
            if stage != "accepted":
                return
            await anyio.sleep(0.01)


@claim("wakes:lost")
async def test_a_process_that_its_server_took_along_is_lost_and_said_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with serve(home) as served, served.client() as client:
        line = waiting_for(tmp_path / "go", "exit 0")
        thread_id, (process_id,) = await with_process(served, client, line)
        wake = await set_wake(client, thread_id, {"type": "process", "processId": process_id})
    counts = []
    for _ in range(2):
        async with serve(home) as served, served.client() as client:
            await client.call("thread/resume", {"threadId": thread_id})
            found = await reached(client, wake, "lost")
            await in_history(client, wake["id"])
            await client.turn(thread_id, "go on")
            texts = "\n".join(text for _, text in served.model.inputs())
            counts.append(texts.count(f'id: "{wake["id"]}"'))
            assert 'type: "ProcessLost"' in texts
    assert (found["id"], counts) == (wake["id"], [1, 1])


@claim("wakes:lost")
async def test_a_thread_that_is_put_away_is_told_of_its_process_by_the_next_look(
    tmp_path: Path,
) -> None:
    # What tells it at once would load it again while it is deleted, or put away.
    clock = SetClock(soon_ms(0))
    async with serve(tmp_path / "home", clock=clock) as served, served.client() as client:
        line = waiting_for(tmp_path / "go", "exit 0")
        thread_id, (process_id,) = await with_process(served, client, line)
        wake = await set_wake(client, thread_id, {"type": "process", "processId": process_id})
        await unload(served, thread_id)
        await wake_is(client, wake["id"], "lost")
        # Time enough for what would not wait for the clock.
        for _ in range(100):
            (lost,) = await wakes_of(client, thread_id)
        clock.by_ms = HOUR_MS
        turn = await client.wait_for("turn/started", lambda p: p["threadId"] == thread_id)
        started_at = turn["params"]["turn"]["startedAt"]
        assert (lost["state"], started_at) == ("lost", clock.now_ms() // 1000)
        await in_history(client, wake["id"])


# Files.


@claim("wakes:file")
@pytest.mark.parametrize(
    ("change", "is_there", "said"),
    [
        ("created", False, "created"),
        ("modified", True, "modified"),
        ("deleted", True, "deleted"),
        ("any", True, "modified"),
    ],
)
async def test_a_change_of_a_file_begins_a_turn(
    tmp_path: Path, change: str, is_there: bool, said: str
) -> None:
    file = tmp_path / "watched" / "file"
    file.parent.mkdir()
    if is_there:
        file.write_text("before")
    async with serve(tmp_path / "home") as served, served.client() as client:
        thread_id = await client.start_thread()
        source = {"type": "file", "path": str(file), "change": change}
        wake = await set_wake(client, thread_id, source)
        if change == "deleted":
            file.write_text("something else")
            file.unlink()
        else:
            file.write_text("afterwards")
        await wake_is(client, wake["id"], "delivered")
        await client.wait_for("turn/completed")
        (text,) = [text for role, text in served.model.inputs() if role == "developer"]
        assert text == framed(wake, "FileChanged", "look", f"{file} was {said}.")
        assert len(served.model.requests) == 1


@claim("wakes:file")
async def test_a_file_that_changed_while_no_server_ran_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    home = tmp_path / "home"
    async with serve(home) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "go")
        source = {"type": "file", "path": str(file), "change": "created"}
        wake = await set_wake(client, thread_id, source)
    file.touch()
    async with serve(home) as served, served.client() as client:
        await reached(client, wake, "delivered")
        await asked(served, 1)


@claim("wakes:bad-input")
async def test_a_file_that_the_thread_may_not_read_wakes_nobody(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    config = f"""
default_permissions = "work"
[permissions.work.filesystem]
":minimal" = "read"
"{tmp_path / "home"}" = "write"
"{secret}" = "deny"
"""
    async with serve(tmp_path / "home", config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        for path in (secret, secret / "key"):
            refusal = await client.refusal(
                "thread/wake/set",
                {
                    "threadId": thread_id,
                    "source": {"type": "file", "path": str(path), "change": "any"},
                },
            )
            assert refusal.data["field"] == "source.path"
        assert await wakes_of(client) == []


# Models.


def names_of(request: dict[str, Any]) -> set[str]:
    return {tool.get("name", "") for tool in request["tools"]}


@claim("wakes:models")
async def test_models_are_offered_wakes_in_threads_that_allow_them(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        for config, offers in (({}, False), ({"config": {"wakes": True}}, True)):
            thread_id = await client.start_thread(**ACCESS, **config)
            await client.turn(thread_id, "go")
            request = served.model.requests[-1]
            (declared,) = [tool for tool in request["tools"] if tool["name"] == "exec_command"]
            assert ("wait_until" in names_of(request)) is offers
            assert ("wake_on_exit" in declared["parameters"]["properties"]) is offers


@claim("wakes:models")
async def test_a_command_wakes_the_model_that_started_it(tmp_path: Path) -> None:
    go = tmp_path / "go"
    line = waiting_for(go, "echo built")
    async with serve(tmp_path / "home", config="wakes = true") as served, served.client() as client:
        thread_id = await client.start_thread(**ACCESS)
        call = command(line, yield_time_ms=SOON_MS, wake_on_exit=True)
        served.model.scripts[:] = [calls(call), says("I wait.")]
        await client.turn(thread_id, "build")
        (output,) = [
            item["output"]
            for item in served.model.items()
            if item["type"] == "function_call_output"
        ]
        assert "A turn begins when it ends; you need not ask." in output
        assert len(served.model.requests) == 2
        go.touch()
        await client.wait_for("turn/completed")
        assert len(served.model.requests) == 3
        assert 'type: "ProcessExited"' in served.model.inputs()[-1][1]


@claim("wakes:models")
async def test_a_model_that_waits_ends_its_turn_without_another_request(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with serve(tmp_path / "home", config="wakes = true") as served, served.client() as client:
        thread_id = await client.start_thread(**ACCESS)
        served.model.scripts[:] = [
            calls(command(waiting_for(go, "exit 4"), yield_time_ms=SOON_MS)),
            says("started"),
        ]
        await client.turn(thread_id, "build")
        listed = await client.call("thread/backgroundTerminals/list", {"threadId": thread_id})
        session_id = int(listed["data"][0]["processId"])
        for arguments, event in (
            ({"session_id": session_id, "note": "then test"}, "ProcessExited"),
            ({"seconds": 1, "note": "then test"}, "TimerFired"),
        ):
            served.model.requests.clear()
            wait = {"name": "wait_until", "arguments": arguments}
            served.model.scripts[:] = [calls(wait), says("woken")]
            done = await client.turn(thread_id, "wait")
            assert done["status"] == "completed"
            assert len(served.model.requests) == 1
            go.touch()
            await client.wait_for("turn/completed")
            assert len(served.model.requests) == 2
            text = served.model.inputs()[-1][1]
            assert f'type: "{event}"' in text
            assert "> then test" in text
            wake = (await wakes_of(client, thread_id))[0]
            assert await reached(client, wake, "delivered")


@claim("wakes:models")
async def test_a_turn_of_a_named_request_may_set_several_wakes(tmp_path: Path) -> None:
    async with serve(tmp_path, config="wakes = true") as served, served.client() as client:
        thread_id = await client.start_thread()
        waits = [{"name": "wait_until", "arguments": {"seconds": s}} for s in (3600, 7200)]
        served.model.scripts[:] = [calls(*waits)]
        content = [{"type": "text", "text": "wait"}]
        name = {"operationId": "op"}
        await client.call("turn/start", {"threadId": thread_id, "input": content, "_meta": name})
        await client.wait_for("turn/completed")
        assert len(await wakes_of(client, thread_id)) == 2


@claim("wakes:models")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "give one of `time`, `seconds` and `session_id`"),
        ({"seconds": 1, "session_id": 1}, "give one of `time`, `seconds` and `session_id`"),
        ({"time": "soon"}, "`time` must be a time such as 2026-01-31T08:00:00Z"),
        ({"time": "2026-01-31T08:00:00"}, "`time` needs a time zone, such as the Z of"),
        ({"time": "2026-01-31T08:00:00Z"}, "`time` must not be in the past"),
        ({"session_id": 7}, "Unknown process id 7"),
        ({"seconds": 5, "note": "é" * 513}, "`note` holds more than 1024 bytes"),
    ],
)
async def test_a_wait_for_nothing_is_refused_and_the_turn_goes_on(
    tmp_path: Path, arguments: dict[str, Any], said: str
) -> None:
    async with serve(tmp_path, config="wakes = true") as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts[:] = [calls({"name": "wait_until", "arguments": arguments})]
        await client.turn(thread_id, "wait")
        (output,) = [
            item["output"]
            for item in served.model.items()
            if item["type"] == "function_call_output"
        ]
        assert output.startswith(f"wait_until failed: {said}")
        assert len(served.model.requests) == 2
        assert await wakes_of(client) == []


# The disk.


@pytest.mark.process
@claim("wakes:disk-full")
async def test_a_full_disk_arms_nothing_and_what_was_armed_stays(tmp_path: Path) -> None:
    file = tmp_path / "file"
    home = tmp_path / "home"
    async with ScriptedModel().serve() as model:
        write_config(home, model.url)
        async with started(home, **NO_BYTECODE) as server, server.client() as client:
            thread_id = await client.start_thread()
            await client.turn(thread_id, "go")
            armed = await set_timer(client, thread_id, soon_ms(HOUR_MS))
            with full_disk(server.process.pid, 1):
                for source in (
                    {"type": "timer", "atMs": soon_ms(HOUR_MS)},
                    {"type": "file", "path": str(file), "change": "created"},
                ):
                    params = {"threadId": thread_id, "source": source}
                    refusal = await client.refusal("thread/wake/set", params)
                    assert (refusal.code, refusal.data["code"]) == (-32603, "storageFailed")
                assert await wakes_of(client, thread_id) == [armed]
            file.touch()
            await client.turn(thread_id, "after")
            again = await set_timer(client, thread_id, soon_ms(HOUR_MS))
            assert await wakes_of(client, thread_id) == [again, armed]
