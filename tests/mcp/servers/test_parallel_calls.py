"""mcp: which calls of a response run side by side."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from app_server.models.prompt.request import ABORTED_OUTPUT
from app_server.turns.model_exchange import run_calls
from tests.support.harness import claim
from tests.support.mcp_peers.calls import (
    asking,
    call_items,
    outputs_of,
    raw_call,
    start_asking,
    with_peer,
)
from tests.support.model import calls


@pytest.mark.parametrize(
    ("tool", "together"),
    [("meet", True), ("meet_writing", False)],
    ids=["read-only", "any tool of a server that allows it"],
)
@claim("mcp:parallel")
async def test_calls_that_may_overlap_run_side_by_side(
    tmp_path: Path, tool: str, together: bool
) -> None:
    keys = {} if together else {"supports_parallel_tool_calls": "true"}
    keys["default_tools_approval_mode"] = '"approve"'
    async with with_peer(tmp_path, **keys) as (served, client, thread_id):
        # Each is answered only when both have come.
        items, outputs = await call_items(
            served, client, thread_id, raw_call(tool, {"n": 1}), raw_call(tool, {"n": 2})
        )
        assert [item["status"] for item in items] == ["completed", "completed"]
        assert [output[1]["text"] for output in outputs] == ["met 1", "met 2"]


@claim("mcp:exclusive")
async def test_a_call_that_may_write_runs_alone(tmp_path: Path) -> None:
    keys = {"default_tools_approval_mode": '"approve"'}
    async with with_peer(tmp_path, **keys) as (served, client, thread_id):
        functions = [raw_call(name) for name in ("meta", "wipe", "wipe", "fail", "structured")]
        served.model.scripts.append(calls(*functions))
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        await client.call("turn/start", params)
        messages = await client.until("turn/completed")
        told = [
            (message["method"].removeprefix("item/"), message["params"]["item"]["id"])
            for message in messages
            if message.get("params", {}).get("item", {}).get("type") == "mcpToolCall"
        ]
        assert told[:6] == [
            (step, f"call_{number}") for number in (1, 2, 3) for step in ("started", "completed")
        ]
        assert told[6:8] == [("started", "call_4"), ("started", "call_5")]


@claim("mcp:parallel", "mcp:exclusive")
@pytest.mark.parametrize("beside", [True, False], ids=["side by side", "one after the other"])
async def test_an_interrupt_leaves_the_outputs_of_calls_that_had_ended(
    tmp_path: Path, beside: bool
) -> None:
    async with with_peer(tmp_path) as (served, client, thread_id):
        slow, quick = raw_call("slow"), raw_call("meta")
        functions = [slow, quick] if beside else [asking({}, "ping"), slow]
        await start_asking(served, client, thread_id, *functions)
        await client.wait_for(
            "item/completed", lambda params: params["item"]["type"] == "mcpToolCall"
        )
        await client.call("turn/interrupt", {"threadId": thread_id, "turnId": ""})
        await client.wait_for("turn/completed")
        await client.turn(thread_id, "what came out?")
        outputs = outputs_of(served)
        assert outputs.count(ABORTED_OUTPUT) == 1
        ended = next(output for output in outputs if output != ABORTED_OUTPUT)
        assert ended[0]["text"].startswith("Wall time: ")


@claim("mcp:exclusive")
async def test_calls_of_one_response_keep_their_order_and_end_together() -> None:
    began: list[int] = []
    kept: list[tuple[int, ...]] = []
    second_ended = anyio.Event()

    async def keep(*outputs: int) -> None:
        kept.append(outputs)

    async def run(call: int) -> int:
        began.append(call)
        if call < 0:
            raise OSError("disk")
        match call:
            case 1:
                await second_ended.wait()
            case 2:
                second_ended.set()
            case 99:
                await anyio.sleep_forever()
        return call * 10

    recorder = cast(Any, SimpleNamespace(remember=keep))
    tools = cast(Any, SimpleNamespace(may_overlap=lambda call: call != 3, make_call=run))
    await run_calls(cast(Any, [1, 2, 3, 4]), tools, recorder)
    assert (began, kept) == ([1, 2, 3, 4], [(10, 20), (30,), (40,)])
    kept.clear()
    # What had ended is kept, also behind what had not.
    with pytest.raises(OSError, match="disk"):
        await run_calls(cast(Any, [99, 5, -1]), tools, recorder)
    assert kept == [(50,)]
    kept.clear()
    await run_calls(cast(Any, range(100, 200)), tools, recorder)
    assert [output for outputs in kept for output in outputs] == list(range(1000, 2000, 10))
