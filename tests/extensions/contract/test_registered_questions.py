"""Questions about calls of registered servers."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from app_server.extensions.contract.registration import (
    ApprovalIdentity,
    ApprovalPersistence,
    ApprovalPresentation,
    ApprovalSource,
    ParameterLabel,
    RuntimeMetadata,
    ToolMetadata,
)
from tests.support.harness import claim
from tests.support.mcp_peers.registered_calls import ASKED, asked, items_of, run_calls
from tests.support.mcp_peers.registrations import (
    call,
    open_shop,
    tool,
)

ASKING = {"annotations": {"destructiveHint": True}}


@claim("extensions:approval-question", "apps:b4")
async def test_a_question_is_put_as_the_registration_has_it(tmp_path: Path) -> None:
    said = ToolMetadata(
        approval_source=ApprovalSource(id="cal", name="Calendar"),
        approval_header="Approve this?",
        approval_presentation=ApprovalPresentation(
            question="Let Calendar change it?",
            labels=(
                ParameterLabel(name="when", label="Time"),
                ParameterLabel(name="absent", label="Absent"),
            ),
        ),
        approval_form_meta={"source": "shelf", "persist": ["for ever"], "tool_params": "mine"},
    )
    async with open_shop(tmp_path, tools=[tool("change", **ASKING)]) as shop:
        shop.put(RuntimeMetadata(tools={"change": said}))
        thread_id = await shop.thread()
        arguments = {"title": "T", "when": "now", "a": 1}
        question = await asked(shop, thread_id, call("change", arguments), {"action": "decline"})
        assert question["message"] == "Let Calendar change it?"
        assert question["_meta"] == {
            "source": "shelf",
            "codex_approval_kind": "mcp_tool_call",
            "persist": ["session", "always"],
            "approval_header": "Approve this?",
            "tool_name": "change",
            "tool_annotations": {"destructiveHint": True},
            "tool_params": arguments,
            "tool_params_display": [
                {"name": "when", "value": "now", "display_name": "Time"},
                {"name": "a", "value": 1, "display_name": "a"},
                {"name": "title", "value": "T", "display_name": "title"},
            ],
        }
        # Two arguments under one name could be mistaken for each other.
        question = await asked(
            shop, thread_id, call("change", {"when": 1, "Time": 2}), {"action": "decline"}
        )
        assert question["message"] == 'Allow Calendar to run tool "change"?'
        assert question["_meta"]["tool_params_display"] == [
            {"name": "Time", "value": 2, "display_name": "Time"},
            {"name": "when", "value": 1, "display_name": "when"},
        ]


@claim("extensions:approval-identity", "apps:b4")
async def test_an_approval_holds_for_the_tool_under_its_other_names(tmp_path: Path) -> None:
    def with_identity(tool_name: str) -> RuntimeMetadata:
        identity = ApprovalIdentity(server="shelf", source="cal", tool="change")
        return RuntimeMetadata(tools={tool_name: ToolMetadata(approval_identity=identity)})

    tools = [tool("change", **ASKING), tool("change_2", **ASKING)]
    session = {"action": "accept", "_meta": {"persist": "session"}}
    async with open_shop(tmp_path, tools=tools) as shop:
        shop.put(with_identity("change"))
        thread_id = await shop.thread()
        await asked(shop, thread_id, call("change"), session)
        shop.put(with_identity("change_2"), name="renamed")
        messages = await run_calls(shop, thread_id, call("change_2", server="renamed"))
        assert [m for m in messages if m.get("method") == ASKED] == []
        assert [item["status"] for item in items_of(messages)] == ["completed"]
        # The raw name alone is a stranger.
        await asked(shop, thread_id, call("change", server="renamed"), {"action": "decline"})


@claim("extensions:approval-persistence", "apps:b4")
@pytest.mark.parametrize(
    ("target", "failure", "reason"),
    [
        ("there", None, None),
        ("there", OSError(28, "No space left on device"), "No space left on device"),
        ("there", RuntimeError("broken"), "it cannot be written"),
        ("elsewhere", None, "nobody writes down approvals for elsewhere"),
    ],
)
async def test_a_lasting_approval_is_written_where_the_registration_says(
    tmp_path: Path, target: str, failure: Exception | None, reason: str | None
) -> None:
    written: list[Sequence[str]] = []

    async def write(path: Sequence[str]) -> None:
        if failure is not None:
            raise failure
        written.append(path)

    where = ApprovalPersistence(target=target, path=("tools", "change"))
    metadata = RuntimeMetadata(tools={"change": ToolMetadata(approval_persistence=where)})
    async with open_shop(tmp_path, persist=write, tools=[tool("change", **ASKING)]) as shop:
        shop.put(metadata)
        thread_id = await shop.thread()
        always = {"action": "accept", "_meta": {"persist": "always"}}
        await asked(shop, thread_id, call("change"), always)
        messages = await run_calls(shop, thread_id, call("change"))
        assert [item["status"] for item in items_of(messages)] == ["completed"]
        warnings = [
            line
            for line in shop.client.transcript
            if '"method":"warning"' in line and "Nothing is known of the model" not in line
        ]
        assert written == ([] if reason else [("tools", "change")])
        assert [reason in line for line in warnings if reason] == ([True] if reason else [])
