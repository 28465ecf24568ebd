"""Counts of use: off unless configured, on this machine alone, without a word of what was said."""

import json
from pathlib import Path
from typing import Any

from app_server.observability.use_counts import MAX_COUNTERS, OTHER, UseCounts
from tests.support.harness import Served, WireClient, claim, serve, stdio_server
from tests.support.mcp_peers.calls import answer_question, raw_call, steps_until_settled
from tests.support.model import calls, says

ON = "[analytics]\nenabled = true\n"


async def analytics(client: WireClient) -> Any:
    return (await client.call("server/diagnostics", {})).get("analytics")


async def use(served: Served, client: WireClient) -> None:
    """Run a turn with a call that asks, and one that is only talk."""
    thread_id = await client.start_thread()
    await steps_until_settled(client, "raw")
    served.model.scripts += [calls(raw_call("wipe", {"text": "hidden-1"})), says("hidden-2")]
    turn = {"threadId": thread_id, "input": [{"type": "text", "text": "hidden-3"}]}
    await client.call("turn/start", turn)
    await answer_question(client, {"result": {"action": "accept"}})
    await client.wait_for("turn/completed")
    await client.turn(thread_id, "hi")


@claim("analytics:counted")
async def test_what_is_used_is_counted_if_that_is_configured(tmp_path: Path) -> None:
    config = ON + stdio_server("raw")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        assert await analytics(client) == []
        await use(served, client)
        counted = await analytics(client)
        assert {each["name"]: each["value"] for each in counted} == {
            "items.agentMessage.completed": 2,
            "items.mcpToolCall.completed": 1,
            "items.userMessage.completed": 2,
            "mcpServers.raw.completed": 1,
            "modelCalls": 3,
            "questions.mcpServer/elicitation/request.answered": 1,
            "tokens.cachedInput": 6,
            "tokens.input": 30,
            "tokens.output": 15,
            "tokens.reasoningOutput": 3,
            "turns.completed": 2,
        }
        assert [each["name"] for each in counted] == sorted(each["name"] for each in counted)
        assert "hidden" not in json.dumps(counted)


async def test_nothing_is_counted_unless_it_is_configured(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        assert await analytics(client) is None
        file = tmp_path / "config.toml"
        file.write_text(file.read_text() + ON)
        # Read once, at the start.
        assert await analytics(client) is None


def test_names_are_bounded() -> None:
    counts = UseCounts()
    for number in range(MAX_COUNTERS + 5):
        counts.asked("t", 1, f"method-{number}", answered=True)
    counts.asked("t", 1, "method-0", answered=True)
    counts.asked("t", 1, "x" * 1000, answered=False)
    read = counts.read()
    assert (len(read), read[OTHER], read["questions.method-0.answered"]) == (
        MAX_COUNTERS + 1,
        6,
        2,
    )
    assert UseCounts().read() == {}
    lone = UseCounts()
    lone.asked("t", 1, "x" * 1000, answered=False)
    assert [len(name) for name in lone.read()] == [128]
