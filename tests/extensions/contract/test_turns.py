"""What an extension adds to turns, as the model and the clients see it."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from app_server.extensions.contract.registration import ContributionContext
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.extensions.contract.turns import MAX_INSTRUCTIONS_BYTES, Presentation, ToolCall
from protocol.turns.items import McpToolCallAppContext, UserInput
from tests.support.harness import claim, serve, stdio_server
from tests.support.mcp_peers.calls import raw_call, steps_until_settled
from tests.support.model import Gate, calls, says


class Ear:
    """A part in turns that notes what it hears, and says what it is given."""

    def __init__(self, text: str | None = None, shown: Presentation | None = None) -> None:
        self.text = text
        self.shown = shown
        self.heard: list[Any] = []
        self.tools: list[set[tuple[str, str]]] = []

    def instructions(
        self, context: ContributionContext, tools: Collection[tuple[str, str]]
    ) -> str | None:
        self.tools.append(set(tools))
        return self.text

    def present(self, call: ToolCall) -> Presentation | None:
        self.heard.append(("present", call.server, call.tool, call.item_id))
        return self.shown

    def input_taken(self, thread_id: str, turn_id: str, content: Sequence[UserInput]) -> None:
        self.heard.append(("input", [part.model_dump()["text"] for part in content]))

    def call_ended(self, call: ToolCall, status: str) -> None:
        self.heard.append(("ended", call.tool, status))

    def turn_ended(self, thread_id: str, turn_id: str) -> None:
        self.heard.append(("over",))


class Deaf:
    """A part in turns that fails at everything."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


CONTEXT = McpToolCallAppContext(connector_id="cal", app_name="Calendar", action_name="wipe")


@claim("extensions:in-turns")
async def test_extensions_speak_to_the_model_and_mark_items(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ear = Ear("Use it well.", Presentation(CONTEXT, "ui://a"))
    other = Ear("x" * (MAX_INSTRUCTIONS_BYTES + 1), Presentation(None, "ui://b"))
    registry = ExtensionRegistry(in_turns=[cast(Ear, Deaf()), ear, other])
    async with (
        serve(tmp_path, config=stdio_server("raw"), extensions=registry) as served,
        served.client() as client,
    ):
        thread_id = await client.start_thread(approvalPolicy="never")
        await steps_until_settled(client, "raw")
        gate = Gate()
        served.model.scripts += [
            # Cut off by the input behind it.
            [gate],
            calls(raw_call("structured"), raw_call("fail"), raw_call("wipe")),
            says("done"),
        ]
        await client.call(
            "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        )
        await gate.wait_until_reached()
        await client.call(
            "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": "on"}]}
        )
        gate.opened.set()
        messages = await client.until("turn/completed")
        assert ("developer", "Use it well.") in served.model.inputs(0)
        assert [text for role, text in served.model.inputs(0) if role == "developer"] == [
            "Use it well."
        ]
    for method in ("item/started", "item/completed"):
        items = [m["params"]["item"] for m in messages if m.get("method") == method]
        shown = [item for item in items if item["type"] == "mcpToolCall"]
        assert {item["appContext"]["appName"] for item in shown} == {"Calendar"}
        assert {item["mcpAppResourceUri"] for item in shown} == {"ui://a"}
    assert ("raw", "wipe") in ear.tools[0]
    assert ear.heard[:2] == [("input", ["go"]), ("input", ["on"])]
    assert sorted(ear.heard[2:-1]) == [
        ("ended", "fail", "failed"),
        ("ended", "structured", "completed"),
        ("present", "raw", "fail", "call_2"),
        ("present", "raw", "structured", "call_1"),
        ("present", "raw", "wipe", "call_3"),
    ]
    assert ear.heard[-1] == ("over",)
    assert {record.getMessage() for record in caplog.records} == {"an extension failed in a turn"}
