"""Approvals that MCP servers ask for by themselves, and the automatic reviewer."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import Served, claim, methods_of
from tests.support.model import Gate, calls, says
from tests.support.turn_tools.reviews import (
    ALLOW,
    ASKED,
    COMPLETED,
    DENY,
    MAY_I,
    STARTED,
    last_output,
    review,
    verdict,
    with_peer,
)


def holding_back(meta: Any, properties: Any = None, **more: Any) -> dict[str, Any]:
    """Call the tool whose server asks before it answers."""
    schema = {"type": "object", "properties": properties or {}}
    asked = {"message": "May I?", "_meta": meta, "requestedSchema": schema, **more}
    arguments = {"method": "elicitation/create", "params": asked}
    return {"namespace": "mcp__raw", "name": "request", "arguments": arguments}


def answer_to_server(served: Served) -> Any:
    """Return what the server was answered; the tool gives it back."""
    return json.loads(last_output(served))["result"]


BY_REVIEWER = {"approvals_reviewer": "auto_review"}


@claim("review:elicitation")
async def test_an_approval_that_a_server_asks_for_goes_to_the_reviewer(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as place:
        told = await place.run(calls(holding_back(MAY_I)), verdict(ALLOW), says("done"))
        begun = next(m["params"] for m in told if m.get("method") == STARTED)
        assert begun["targetItemId"] is None
        assert begun["action"] == {
            "type": "mcpToolCall",
            "server": "raw",
            "toolName": "send",
            "connectorId": "c1",
            "connectorName": "Post",
            "toolTitle": "Send",
        }
        _, (request,) = place.model_requests
        assert json.loads(request["input"][0]["content"][0]["text"])["action"] == {
            "kind": "request_of_mcp_server",
            "server": "raw",
            "tool": "send",
            "tool_title": "Send",
            "connector_id": "c1",
            "connector_name": "Post",
            "message": "May I?",
            "arguments": {"to": "all"},
        }
        assert answer_to_server(place.served) == {
            "action": "accept",
            "content": {},
            "_meta": BY_REVIEWER,
        }
        await place.run(calls(holding_back(MAY_I)), verdict(DENY), says("done"))
        answer = answer_to_server(place.served)
        assert answer["action"] == "decline"
        assert answer["_meta"].keys() == {"message", "approvals_reviewer"}
        assert "\nReason: Too much is lost.\n" in answer["_meta"]["message"]


@pytest.mark.parametrize(
    "question",
    [
        holding_back(MAY_I, {"a": {"type": "string"}}),
        holding_back({**MAY_I, "tool_name": " "}),
        holding_back({**MAY_I, "tool_params": [1]}),
        holding_back({**MAY_I, "codex_approval_kind": "other"}),
        holding_back(MAY_I, mode="url", url="http://x", elicitationId="e"),
    ],
)
async def test_an_approval_that_cannot_be_reviewed_is_declined(
    tmp_path: Path, question: Any
) -> None:
    async with with_peer(tmp_path) as place:
        told = await place.run(calls(question), says("done"))
        assert answer_to_server(place.served) == {"action": "decline", "_meta": BY_REVIEWER}
        assert STARTED not in methods_of(told)


async def test_other_questions_of_servers_are_the_users(tmp_path: Path) -> None:
    plain = {key: value for key, value in MAY_I.items() if key != "codex_request_type"}
    async with with_peer(tmp_path) as place:
        for meta, reviewer_ in ((plain, "auto_review"), (MAY_I, "user")):
            question = calls(holding_back(meta))
            await place.begin(question, says("done"), approvalsReviewer=reviewer_)
            asked = await place.client.wait_for(ASKED)
            assert asked["params"]["_meta"] == meta
            await place.client.send({"id": asked["id"], "result": {"action": "cancel"}})
            assert STARTED not in methods_of(await place.client.until("turn/completed"))
            assert answer_to_server(place.served) == {"action": "cancel"}


async def test_an_interrupt_withdraws_what_a_server_asked_the_reviewer(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as place:
        gate = Gate()
        turn_id = await place.begin(calls(holding_back(MAY_I)), [gate])
        await gate.wait_until_reached()
        params = {"threadId": place.thread_id, "turnId": turn_id}
        await place.client.call("turn/interrupt", params)
        ended = await place.client.wait_for(COMPLETED)
        assert ended["params"]["review"] == review("aborted")
