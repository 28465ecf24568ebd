"""What loaded threads keep in memory: one budget, measured, and given back."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.config.values import Config, ConfigError
from app_server.rpc.hub import Hub
from app_server.sessions.memory_budget import (
    COPIES,
    VALUE_BYTES,
    HistorySizes,
    MemoryBudget,
    read_memory_settings,
    size_of,
)
from app_server.sessions.registry import Sessions
from app_server.threads.log.state import ThreadState
from protocol.server.lifecycle import WarningNotification
from tests.support.harness import Served, WireClient, claim, serve
from tests.support.model import Gate, says
from tests.support.threads.stores import created
from tests.support.turns import raw

SECRET = "sk-very-secret"


async def gauges(client: WireClient) -> dict[str, int]:
    answer = await client.call("server/diagnostics", {})
    assert answer["process"]["residentMemoryBytes"] > 1_000_000
    return {gauge["name"]: gauge["value"] for gauge in answer["gauges"]}


@claim("diagnostics:figures")
async def test_diagnostics_show_what_the_server_does_and_keeps(tmp_path: Path) -> None:
    gate = Gate()
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        before = await gauges(client)
        assert before.keys() == {
            "app.requests.in_flight",
            "core.threads.live",
            "app.connections",
            "app.connections.of_nodes",
            "app.outbox.messages",
            "app.outbox.chars",
            "app.outbox.longest",
            "app.questions.open",
            "app.subscriptions",
            "core.turns.running",
            "core.inputs.queued",
            "memory.budget_bytes",
            "memory.events_bytes",
            "memory.events",
            "memory.histories_bytes",
            "runtime.tasks",
        }
        assert (before["app.requests.in_flight"], before["app.connections"]) == (1, 2)
        assert (before["core.threads.live"], before["memory.events"]) == (0, 0)
        assert before["memory.budget_bytes"] == 256 * 1024 * 1024
        thread_id = await client.start_thread()
        await other.call("thread/resume", {"threadId": thread_id})
        served.model.scripts.append([gate, *says("x" * 1000)])
        start = {"threadId": thread_id, "input": [{"type": "text", "text": SECRET}]}
        await client.call("turn/start", start)
        # What comes before the model is asked is sent with the rest, and does not wait.
        await gate.wait_until_reached()
        injected = {"threadId": thread_id, "items": [raw(SECRET)]}
        await client.call("thread/inject_items", injected)
        during = await gauges(client)
        names = ("core.turns.running", "core.inputs.queued", "app.subscriptions")
        assert [during[name] for name in names] == [1, 1, 2]
        gate.opened.set()
        await client.wait_for("turn/completed")
        after = await gauges(client)
        assert after["core.turns.running"] == 0
        assert after["memory.events_bytes"] > 2000
        assert after["memory.histories_bytes"] > 2000
        assert after["memory.events"] > during["memory.events"]
        await other.call("thread/archive", {"threadId": thread_id})
        last = await gauges(client)
        assert (last["memory.events_bytes"], last["memory.histories_bytes"]) == (0, 0)
        assert last["core.threads.live"] == 0
        assert not any(SECRET in line for line in client.transcript if '"gauges"' in line)


async def test_diagnostics_need_the_opt_in(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client(experimental=False) as client:
        error = await client.refusal("server/diagnostics", {})
        assert error.data["code"] == "experimentalApiRequired"


def warned(thread_id: str, size: int) -> WarningNotification:
    return WarningNotification(thread_id=thread_id, message="x" * size)


@claim("memory:idle-first")
def test_streams_that_were_quiet_for_the_longest_time_forget_first() -> None:
    hub = Hub(lambda: 7)
    for name in "abc":
        hub.open_stream(name)
    streams = hub.streams
    streams.share = 3000
    for name in "bca":
        hub.emit(name, warned(name, 500))
    kept = streams.total_bytes
    assert kept < streams.share
    hub.emit("a", warned("a", 2000 - kept + 800))
    sizes = {name: stream.size for name in "abc" if (stream := streams.find(name))}
    assert sizes["b"] == 0
    assert sizes["a"] > 0
    assert streams.total_bytes == sum(sizes.values()) <= streams.share
    hub.close_stream("a")
    assert streams.total_bytes == sizes["b"] + sizes["c"]


def state_with(thread_id: str, *items: Any) -> ThreadState:
    record = created()
    record = record.model_copy(update={"thread_id": thread_id})
    return ThreadState(record, record.settings, 0, 0, history=list(items))


async def test_histories_are_counted_once() -> None:
    sizes = HistorySizes()
    item = {"type": "message", "content": [{"text": "x" * 1000}]}
    assert size_of(item) == 5 * VALUE_BYTES + 1007
    one, two = state_with("1", item), state_with("2")
    assert await sizes.measure([one, two]) == COPIES * size_of(item)
    two.history.extend([item] * 1200)
    assert await sizes.measure([one, two]) == COPIES * 1201 * size_of(item)
    del two.history[1:]
    assert await sizes.measure([one, two]) == COPIES * 2 * size_of(item)
    assert await sizes.measure([two]) == COPIES * size_of(item)


def sessions_of(served: Served) -> Sessions:
    return budget_of(served).sessions


def budget_of(served: Served) -> MemoryBudget:
    return served.services.memory


@claim("memory:unload")
async def test_quiet_threads_are_unloaded_when_the_budget_does_not_suffice(tmp_path: Path) -> None:
    config = "memory_budget_bytes = 1048576\n"
    async with serve(tmp_path, config=config) as served, served.client() as client:
        async with served.client() as away:
            quiet = [await away.start_thread() for _ in range(2)]
            for thread_id in quiet:
                await away.turn(thread_id, "x" * 150_000)
        listened = await client.start_thread()
        await client.turn(listened, "x" * 150_000)
        await client.call("thread/unsubscribe", {"threadId": quiet[0]})
        sessions = sessions_of(served)
        await sessions.unloading.sweep(anyio.current_time())
        assert sessions.unloading.quiet == quiet
        assert (await gauges(client))["memory.histories_bytes"] > 900_000
        await budget_of(served).keep_within()
        closed = await client.wait_for("thread/closed")
        assert closed["params"]["threadId"] == quiet[0]
        after = await gauges(client)
        assert after["core.threads.live"] == 2
        assert after["memory.histories_bytes"] + after["memory.events_bytes"] <= 1024 * 1024


@claim("threads:unload-delay")
async def test_a_thread_can_have_an_unload_delay_of_its_own(tmp_path: Path) -> None:
    config = "thread_unload_delay_secs = 100\n"
    async with serve(tmp_path, config=config) as served, served.client() as client:
        async with served.client() as away:
            usual = await away.start_thread()
            short = await away.start_thread(unloadAfterSecs=10)
            resumed = await away.start_thread()
            await away.call("thread/resume", {"threadId": resumed, "unloadAfterSecs": 1000})
            changed = await away.start_thread(unloadAfterSecs=10)
            await away.call("thread/resume", {"threadId": changed})
        sessions = sessions_of(served)
        await client.call("thread/loaded/list", {})

        async def left() -> list[str]:
            answer = await client.call("thread/loaded/list", {})
            return [str(thread_id) for thread_id in answer["data"]]

        await sessions.unloading.sweep(0.0)
        await sessions.unloading.sweep(9.0)
        assert await left() == [usual, short, resumed, changed]
        await sessions.unloading.sweep(10.0)
        assert await left() == [usual, resumed]
        await sessions.unloading.sweep(100.0)
        assert await left() == [resumed]
        await sessions.unloading.sweep(1000.0)
        assert await left() == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("memory_budget_bytes", 1),
        ("memory_budget_bytes", "much"),
        ("thread_events_kept", 255),
        ("thread_events_kept", 4097),
        ("thread_events_kept_bytes", 0),
    ],
)
def test_sizes_that_make_no_sense_are_named(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=key):
        read_memory_settings(Config({key: value}))
