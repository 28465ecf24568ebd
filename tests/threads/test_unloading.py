"""threads: when a thread is unloaded, archived and made smaller, and disks that are full."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from app_server.config.values import Config
from app_server.handlers.views.turns import MAX_TURNS_CHARS, turns_of_state
from app_server.runtime.clock import STARTED_AT
from app_server.threads.files.store import FileStore
from app_server.threads.files.writers import LogWriter
from app_server.threads.log.state import begin
from protocol.log.rollout import (
    ItemCompleted,
    Record,
    TurnCompleted,
    TurnStarted,
)
from protocol.turns.items import AgentMessageThreadItem
from tests.support.harness import WAIT_S, Served, WireClient, claim, serve
from tests.support.mcp_peers.calls import with_peer
from tests.support.model import Gate, calls, says
from tests.support.threads.stores import created, raw, sessions_of
from tests.support.turns import busy_thread, start_turn


@claim("threads:unsubscribe")
async def test_a_client_that_unsubscribed_gets_no_more(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        await other.call("thread/resume", here)
        assert await client.call("thread/unsubscribe", here) == {"status": "unsubscribed"}
        assert await client.call("thread/unsubscribe", here) == {"status": "notSubscribed"}
        await other.turn(thread_id, "hello")
        await other.call("thread/name/set", {**here, "name": "end"})
        heard = [message["method"] for message in await client.until("thread/name/updated")]
        assert heard == ["thread/status/changed", "thread/status/changed", "thread/name/updated"]


@claim("threads:unload-asked")
async def test_a_thread_is_let_go_when_its_last_client_asks(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")
        asks = {"threadId": thread_id, "unload": True}
        lock = tmp_path / "locks" / f"{thread_id}.lock"
        await other.call("thread/resume", {"threadId": thread_id})
        answer = await client.call("thread/unsubscribe", asks)
        assert (answer, lock.exists()) == ({"status": "unsubscribed", "unloaded": False}, True)
        answer = await other.call("thread/unsubscribe", asks)
        assert (answer, lock.exists()) == ({"status": "unsubscribed", "unloaded": True}, False)
        closed = await client.wait_for("thread/closed")
        assert closed["params"] == {"threadId": thread_id}
        answer = await other.call("thread/unsubscribe", asks)
        assert answer == {"status": "notLoaded", "unloaded": True}


@claim("threads:unload-asked")
async def test_a_thread_is_not_let_go_while_a_turn_runs(tmp_path: Path) -> None:
    async with busy_thread(tmp_path, *says("done")) as (_, client, thread_id, gate):
        asks = {"threadId": thread_id, "unload": True}
        answer = await client.call("thread/unsubscribe", asks)
        assert answer == {"status": "unsubscribed", "unloaded": False}
        gate.opened.set()
        await client.call("thread/resume", {"threadId": thread_id})


@claim("threads:name")
async def test_names_are_for_stored_threads_and_not_blank(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        error = await client.refusal("thread/name/set", {"threadId": thread_id, "name": " \n"})
        assert (error.code, error.message) == (-32600, "thread name must not be empty")
        await client.call("thread/name/set", {"threadId": thread_id, "name": "loaded"})
        event = await client.wait_for("thread/name/updated")
        assert event["params"] == {"threadId": thread_id, "threadName": "loaded"}
    async with serve(tmp_path) as served, served.client() as client:
        await client.call("thread/name/set", {"threadId": thread_id, "name": "stored"})
        result = await client.call("thread/read", {"threadId": thread_id})
        assert result["thread"]["name"] == "stored"


@claim("threads:ephemeral")
async def test_ephemeral_threads_live_in_memory_alone(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(ephemeral=True)
        here = {"threadId": thread_id}
        await client.turn(thread_id, "hello")
        read = await client.call("thread/read", here)
        assert (read["thread"]["path"], read["thread"]["ephemeral"]) == (None, True)
        for method, params, text in (
            (
                "thread/read",
                {"includeTurns": True},
                "ephemeral threads do not support includeTurns",
            ),
            (
                "thread/name/set",
                {"name": "x"},
                f"ephemeral thread does not support metadata updates: {thread_id}",
            ),
            ("thread/archive", {}, f"no rollout found for thread id {thread_id}"),
        ):
            error = await client.refusal(method, {**here, **params})
            assert (error.code, error.message) == (-32600, text)
        assert (await client.call("thread/list", {}))["data"] == []


async def test_a_thread_that_another_process_writes_is_named_busy(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        async with serve(tmp_path) as second, second.client() as late:
            error = await late.refusal("thread/resume", {"threadId": thread_id})
            assert error.code == -32600
            assert error.message == f"thread {thread_id} already has an active writer"
            holder = {"pid": os.getpid(), "startedAt": STARTED_AT, "address": served.urls[0]}
            assert error.data == {"code": "threadBusy", "threadId": thread_id, "holder": holder}
            read = await late.call("thread/read", {"threadId": thread_id})
            assert read["thread"]["id"] == thread_id


@claim("threads:unload")
async def test_an_unsubscribed_thread_is_unloaded_after_the_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.sessions.registry.SWEEP_S", 0.001)
    config = "thread_unload_delay_secs = 0"
    async with serve(tmp_path, config=config) as served, served.client() as client:
        quiet, heard = await client.start_thread(), await client.start_thread()
        await client.call("thread/unsubscribe", {"threadId": quiet})
        messages = await client.until("thread/closed")
        assert [message["params"] for message in messages[-2:]] == [
            {"threadId": quiet, "status": {"type": "notLoaded"}},
            {"threadId": quiet},
        ]
        loaded = await client.call("thread/loaded/list", {})
        assert loaded["data"] == [heard]
        assert (await client.call("thread/resume", {"threadId": quiet}))["thread"]["id"] == quiet
        changed = await client.wait_for("thread/status/changed")
        assert changed["params"] == {"threadId": quiet, "status": {"type": "idle"}}


async def loaded(client: WireClient) -> list[str]:
    ids: list[str] = (await client.call("thread/loaded/list", {}))["data"]
    return ids


async def sweep_after(served: Served, seconds: float) -> None:
    """Look for quiet threads now, and as if it were later."""
    unloading, now_s = served.services.sessions.unloading, anyio.current_time()
    await unloading.sweep(now_s)
    await unloading.sweep(now_s + seconds)


@claim("threads:unload")
async def test_an_unsubscribed_thread_stays_loaded_for_a_minute(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        quiet, heard = await client.start_thread(), await client.start_thread()
        await client.turn(quiet, "hello")
        await client.call("thread/unsubscribe", {"threadId": quiet})
        await sweep_after(served, 59)
        assert await loaded(client) == [quiet, heard]
        await sweep_after(served, 61)
        assert await loaded(client) == [heard]
        await client.wait_for("thread/closed")


@claim("threads:unload")
async def test_a_turn_between_two_sweeps_counts_as_doing_something(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread()
        await client.call("thread/unsubscribe", {"threadId": thread_id})
        unloading = served.services.sessions.unloading
        before_s = anyio.current_time() - 60
        await unloading.sweep(before_s)
        await other.call("thread/resume", {"threadId": thread_id})
        await other.turn(thread_id, "hello")
        await other.call("thread/unsubscribe", {"threadId": thread_id})
        await unloading.sweep(before_s + 61)
        assert await loaded(client) == [thread_id]


@claim("threads:unload")
async def test_a_command_behind_the_turns_keeps_its_thread(tmp_path: Path) -> None:
    held = tmp_path / "held"
    wait = f"until test -e {held}; do sleep 0.05; done"
    left = {"name": "exec_command", "arguments": {"cmd": wait, "yield_time_ms": 250}}
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread(
            sandbox="danger-full-access", approvalPolicy="never", ephemeral=True
        )
        served.model.scripts.append(calls(left))
        await client.turn(thread_id, "go")
        await other.call("thread/resume", {"threadId": thread_id})
        await client.call("thread/unsubscribe", {"threadId": thread_id})
        assert served.services.sessions.get(thread_id).works_on
        (session,) = served.services.sessions
        await other.call("thread/unsubscribe", {"threadId": thread_id})
        await sweep_after(served, 1000)
        assert await loaded(client) == [thread_id]
        held.touch()
        with anyio.fail_after(WAIT_S):
            while session.works_on:
                await anyio.sleep(0.01)
        await sweep_after(served, 0)
        assert await loaded(client) == []


@claim("threads:unload")
async def test_a_call_of_a_client_keeps_its_thread(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        # This tool never answers.
        call = {"threadId": thread_id, "server": "raw", "tool": "slow", "arguments": {}}
        await client.call("thread/unsubscribe", {"threadId": thread_id})
        await client.request("mcpServer/tool/call", call)
        (session,) = served.services.sessions
        with anyio.fail_after(WAIT_S):
            while not session.works_on:
                await anyio.sleep(0.01)
        await sweep_after(served, 1000)
        assert await loaded(client) == [thread_id]


@claim("threads:unload-ephemeral")
async def test_an_ephemeral_thread_is_unloaded_with_its_last_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.sessions.registry.SWEEP_S", 0.001)
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        stored = await client.start_thread()
        left = await client.start_thread(ephemeral=True)
        await client.turn(left, "hello")
        await other.call("thread/resume", {"threadId": left})
        await client.call("thread/unsubscribe", {"threadId": left})
        assert await loaded(client) == [stored, left]
        await other.call("thread/unsubscribe", {"threadId": left})
        closed = await client.wait_for("thread/closed")
        assert closed["params"] == {"threadId": left}
        async with served.client() as third:
            lost = await third.start_thread(ephemeral=True)
            kept = await third.start_thread(ephemeral=True, unloadAfterSecs=1000)
        closed = await client.wait_for("thread/closed")
        assert closed["params"] == {"threadId": lost}
        assert await loaded(client) == [stored, kept]


@claim("threads:unload-ephemeral")
async def test_the_turn_of_an_ephemeral_thread_ends_before_it_is_unloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.sessions.registry.SWEEP_S", 0.001)
    async with serve(tmp_path) as served, served.client() as client:
        gate = Gate()
        served.model.scripts.append([gate, *says("done")])
        thread_id = await client.start_thread(ephemeral=True)
        await start_turn(client, thread_id, "go")
        await gate.wait_until_reached()
        await client.call("thread/unsubscribe", {"threadId": thread_id})
        assert await loaded(client) == [thread_id]
        gate.opened.set()
        changed = await client.wait_for("thread/closed")
        assert changed["params"] == {"threadId": thread_id}
        assert len(served.model.requests) == 1


@claim("threads:resume-overrides")
async def test_resuming_can_change_the_settings_of_a_thread_that_is_not_loaded(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
    async with serve(tmp_path) as served, served.client() as client:
        result = await client.call(
            "thread/resume",
            {"threadId": thread_id, "model": "m2", "cwd": "sub", "sandbox": "danger-full-access"},
        )
        assert (result["model"], result["cwd"]) == ("m2", str(tmp_path / "sub"))
        assert result["sandbox"] == {"type": "dangerFullAccess"}
        again = await client.call("thread/resume", {"threadId": thread_id, "excludeTurns": True})
        assert (again["model"], again["thread"]["turns"]) == ("m2", [])
    async with serve(tmp_path) as served, served.client() as client:
        assert (await client.call("thread/resume", {"threadId": thread_id}))["model"] == "m2"


@claim("bounds:long-history")
def test_a_history_that_fits_no_message_loses_old_items_then_old_turns() -> None:
    state = begin(created())

    def add(number: int, size: int) -> None:
        state.apply(TurnStarted(at_ms=number, turn_id=f"t{number}"))
        item = AgentMessageThreadItem(id="a", text="x" * size)
        state.apply(ItemCompleted(at_ms=number, turn_id=f"t{number}", item=item))
        state.apply(TurnCompleted(at_ms=number, turn_id=f"t{number}", status="completed"))

    for number in range(3):
        add(number, MAX_TURNS_CHARS // 2)
    shown = turns_of_state(state)
    assert [(turn.id, turn.items_view, len(turn.items)) for turn in shown] == [
        ("t0", "notLoaded", 0),
        ("t1", "notLoaded", 0),
        ("t2", "full", 1),
    ]
    for number in range(3, 9000):
        add(number, 0)
    many = turns_of_state(state)
    assert many[-1].id == "t8999"
    assert sum(len(turn.model_dump_json()) for turn in many) <= MAX_TURNS_CHARS


async def test_a_home_that_cannot_be_used_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "index").write_text("in the way")
    with pytest.raises(OSError, match="index"):
        async with serve(tmp_path / "home"):
            pass


@claim("errors:storage")
async def test_a_full_disk_is_reported_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        injected = {"threadId": thread_id, "items": [raw("kept", "developer")]}
        await client.call("thread/inject_items", injected)

        def refuse(self: LogWriter, records: Sequence[Record], *, sync: bool) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(LogWriter, "append", refuse)
            for method, params in (
                ("thread/inject_items", {"items": [raw("lost")]}),
                ("turn/start", {"input": [{"type": "text", "text": "lost"}]}),
                ("thread/name/set", {"name": "lost"}),
                ("thread/start", {}),
            ):
                named = {} if method == "thread/start" else {"threadId": thread_id}
                error = await client.refusal(method, {**named, **params})
                assert error.code == -32603
                assert "No space left on device" in error.message
                assert error.data["code"] == "storageFailed"
        await client.turn(thread_id, "after")
        assert served.model.inputs() == [("developer", "kept"), ("user", "after")]


async def test_a_thread_that_is_loaded_while_it_is_put_away_is_loaded_again(
    tmp_path: Path,
) -> None:
    store = FileStore(tmp_path)
    await store.open()

    async with anyio.create_task_group() as tasks:
        sessions = sessions_of(tmp_path, store, tasks)
        first, _ = await sessions.loading.start_once(created(), Config({}))
        async with anyio.create_task_group() as at_once:
            at_once.start_soon(sessions.unload, first.log.id)
            while not first.slot.closed:
                await anyio.lowlevel.checkpoint()
            async with sessions.loading.locked(first.log.id) as found:
                second = await sessions.loading.load(found, Config({}), found.state.settings)
        assert second is not first
        assert sessions.find(first.log.id) is second
        await second.input.inject([{"type": "message", "role": "developer", "content": []}])
        await sessions.aclose()
    await store.aclose()
