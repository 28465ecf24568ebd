"""One turn, one trace: what an in-memory exporter of the SDK is given."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.observability.settings import TelemetrySettings
from app_server.observability.telemetry.exporting import DURATIONS, MAX_VALUE_CHARS
from app_server.observability.telemetry.spans import exported_by, is_on, span, without_span
from tests.support.harness import claim, serve, stdio_server
from tests.support.model import Gate, Refusal, calls, says
from tests.support.spans import (
    PARENT,
    SENT,
    TRACE,
    Collected,
    attributes_of,
    id_of,
    parent_of,
    trace_of,
)

SECRET = "hunter2-Zx9_qwerty"


def written(collected: Collected) -> str:
    """Everything that a collector would have been sent."""
    return "".join(one.to_json() for one in collected.spans) + json.dumps(
        {name: [str(point) for point in points] for name, points in collected.metrics().items()}
    )


@pytest.mark.process
@claim("telemetry:trace", "telemetry:content")
async def test_a_turn_with_a_tool_of_an_mcp_server_is_one_trace(tmp_path: Path) -> None:
    collected = Collected()
    call = {"namespace": "mcp__files", "name": "meta", "arguments": json.dumps({"text": SECRET})}
    with exported_by(collected.exporting):
        async with (
            serve(tmp_path, config=stdio_server("files")) as served,
            served.client() as client,
        ):
            thread_id = await client.start_thread(approvalPolicy="never")
            served.model.scripts += [calls(call), says(SECRET)]
            start = {
                "id": "r1",
                "method": "turn/start",
                "params": {"threadId": thread_id, "input": [{"type": "text", "text": SECRET}]},
                "trace": SENT,
            }
            await client.send(start)
            await client.wait_for("turn/completed")
    request = collected.named("turn/start")
    turn = collected.named("turn")
    first, second = [one for one in collected.spans if one.name == "chat scripted"]
    tool = collected.named("execute_tool mcp__filesmeta")
    mcp = collected.named("tools/call meta")
    assert {trace_of(one) for one in (request, turn, first, second, tool, mcp)} == {TRACE}
    assert [parent_of(one) for one in (request, turn, first, second, tool, mcp)] == [
        PARENT,
        id_of(request),
        id_of(turn),
        id_of(turn),
        id_of(turn),
        id_of(tool),
    ]
    assert attributes_of(request) == {
        "rpc.system": "jsonrpc",
        "rpc.method": "turn/start",
        "jsonrpc.request.id": "r1",
        "appserver.connection.id": 1,
    }
    assert attributes_of(turn) == {
        "appserver.thread.id": thread_id,
        "appserver.turn.id": attributes_of(turn)["appserver.turn.id"],
        "appserver.turn.end": "completed",
    }
    assert attributes_of(first) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
    }
    assert attributes_of(mcp) == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "meta",
        "appserver.mcp.server": "files",
    }
    assert {one.status.is_ok for one in collected.spans} == {True}
    assert {one.resource.attributes["service.name"] for one in collected.spans} == {"app-server"}
    points = collected.metrics()
    assert set(DURATIONS.values()) <= points.keys()
    (turns,) = points["appserver.turn.duration"]
    assert (turns.count, dict(turns.attributes)) == (1, {"appserver.turn.end": "completed"})
    tokens = {
        point.attributes["gen_ai.token.type"]: point.sum
        for point in points["gen_ai.client.token.usage"]
    }
    assert tokens == {"input": 20, "output": 10}
    # The thread's id belongs to one trace, not to a metric.
    assert thread_id not in str(points)
    assert SECRET not in written(collected)


@claim("telemetry:failures", "telemetry:content")
async def test_failures_are_marked_by_a_word_and_hold_no_text(tmp_path: Path) -> None:
    collected = Collected()
    with exported_by(collected.exporting):
        async with serve(tmp_path) as served, served.client() as client:
            thread_id = await client.start_thread()
            served.model.scripts.append(Refusal(400, {"error": {"message": SECRET}}))
            await client.turn(thread_id, SECRET)
            await client.refusal("thread/read", {"threadId": f"not-{SECRET}"})
            await client.refusal(f"no/{SECRET}", {})
    failed = {one.name: one for one in collected.spans if not one.status.is_ok}
    assert {name: attributes_of(one)["error.type"] for name, one in failed.items()} == {
        "turn": "badRequest",
        "chat scripted": "badRequest",
        "thread/read": "invalidThreadId",
        "unknown method": "methodNotFound",
    }
    assert all(one.events == () for one in failed.values())
    assert SECRET not in written(collected)


async def test_a_turn_that_begins_by_itself_has_a_trace_of_its_own(tmp_path: Path) -> None:
    collected, gate = Collected(), Gate()
    text = [{"type": "text", "text": "x"}]
    with exported_by(collected.exporting):
        async with serve(tmp_path) as served, served.client() as client:
            thread_id = await client.start_thread()
            served.model.scripts += [[gate, *says("one")], says("two")]
            await client.call("turn/start", {"threadId": thread_id, "input": text})
            await gate.wait_until_reached()
            entry = {"threadId": thread_id, "input": text, "clientUserMessageId": "q"}
            await client.call("thread/queue/add", entry)
            gate.opened.set()
            for _ in range(2):
                await client.wait_for("turn/completed")
    first, second = [one for one in collected.spans if one.name == "turn"]
    assert parent_of(first) == id_of(collected.named("turn/start"))
    assert parent_of(second) is None


@pytest.mark.parametrize(
    "sent",
    [
        None,
        5,
        {},
        {"traceparent": "nonsense"},
        {"traceparent": 5},
        {"traceparent": f"00-{TRACE}-{PARENT}-01" + "x" * 2000},
    ],
)
def test_a_trace_that_makes_no_sense_is_not_followed(sent: Any) -> None:
    collected = Collected()
    with exported_by(collected.exporting), span("request", "m", sent):
        pass
    assert parent_of(collected.named("m")) is None


def test_a_caller_that_does_not_sample_is_obeyed() -> None:
    collected = Collected()
    sent = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
    with exported_by(collected.exporting), span("request", "m", sent), span("turn", "turn"):
        pass
    assert collected.spans == []


async def test_spans_follow_tasks_unless_they_are_apart() -> None:
    collected = Collected(TelemetrySettings(attributes={"team": "a" * 2 * MAX_VALUE_CHARS}))

    async def work(name: str) -> None:
        with span("tool", name):
            await anyio.lowlevel.checkpoint()

    with exported_by(collected.exporting):
        async with anyio.create_task_group() as tasks:
            with span("turn", "turn"):
                tasks.start_soon(work, "inside")
                with without_span():
                    tasks.start_soon(work, "apart")
    assert parent_of(collected.named("inside")) == id_of(collected.named("turn"))
    assert parent_of(collected.named("apart")) is None
    assert attributes_of(collected.named("turn")) == {"team": "a" * MAX_VALUE_CHARS}


async def test_being_cancelled_is_no_failure() -> None:
    collected = Collected()
    with exported_by(collected.exporting), anyio.CancelScope() as scope, span("turn", "turn"):
        scope.cancel()
        await anyio.sleep_forever()
    turn = collected.named("turn")
    assert (turn.status.is_ok, attributes_of(turn)) == (True, {"appserver.cancelled": True})


def test_what_is_raised_is_known_by_its_class() -> None:
    collected = Collected()
    with (
        exported_by(collected.exporting),
        pytest.raises(ValueError, match="hunter2"),
        span("tool", "tool"),
    ):
        raise ValueError(SECRET)
    assert attributes_of(collected.named("tool")) == {"error.type": "ValueError"}
    assert SECRET not in written(collected)


def test_without_telemetry_nothing_is_made() -> None:
    assert not is_on()
    with span("turn", "turn", appserver__turn__id="t") as work:
        work.set(x=1)
        work.fail("x")
    assert span("turn", "turn") is span("tool", "x") is without_span()
