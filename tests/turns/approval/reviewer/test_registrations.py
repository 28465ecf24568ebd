"""The automatic reviewer and registered servers: their settings, and the account of a tool."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app_server.extensions.contract.registration import (
    ApprovalSource,
    Registration,
    RuntimeMetadata,
    ToolMetadata,
)
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.turns.approval.elicitations import planned_by_server
from protocol.turns.auto_review import McpToolCallGuardianApprovalReviewAction
from protocol.turns.elicitation import FormElicitation
from tests.support.harness import claim, methods_of, serve
from tests.support.mcp_peers.shelf import Shelf
from tests.support.mcp_peers.web_peer import WebPeer
from tests.support.model import Refusal, calls, says
from tests.support.turn_tools.reviews import (
    ALLOW,
    ASKED,
    EMAIL,
    MAY_I,
    REVIEWED,
    STARTED,
    Place,
    look,
    ready_thread,
    verdict,
)
from tests.support.wire.pipes import Pipe


class Tap:
    """A client's pipe that keeps everything that comes out of it."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self.heard: list[str] = []

    async def receive(self) -> str:
        text = await self._pipe.receive()
        self.heard.append(text)
        return text

    async def send(self, text: str) -> None:
        await self._pipe.send(text)

    async def aclose(self) -> None:
        await self._pipe.aclose()


@asynccontextmanager
async def with_registered(
    tmp_path: Path, metadata: RuntimeMetadata, config: str = "", **peer: Any
) -> AsyncIterator[Place]:
    async with WebPeer(**peer).serve() as web:
        shelf = Shelf("shelf", Registration("web", {"url": web.url}, metadata=metadata))
        extensions = ExtensionRegistry([shelf])
        async with (
            serve(tmp_path, config=config, extensions=extensions) as served,
            served.client() as client,
        ):
            client.pipe = Tap(client.pipe)
            yield Place(served, client, await ready_thread(client))


LOOK = {"namespace": "mcp__web", "name": "look", "arguments": {"at": "it"}}


@claim("review:registration")
@pytest.mark.parametrize(
    ("named", "source"),
    [
        ("look", ("app-1", "Notes")),
        ("notes.look", ("app-1", "Notes")),
        ("Notes", ("c1", "Post")),
        ("send", ("c1", "Post")),
    ],
)
def test_whose_call_a_server_holds_back_is_what_its_registration_says(
    named: str, source: tuple[str, str]
) -> None:
    said = ApprovalSource(id="app-1", name="Notes")
    metadata = RuntimeMetadata(
        tools={
            "look": ToolMetadata(approval_source=said, search_aliases=("Notes", "notes.look")),
            "write": ToolMetadata(approval_source=said, search_aliases=("Notes", "notes.write")),
        }
    )
    form = FormElicitation.model_validate(
        {
            "threadId": "t",
            "turnId": "u",
            "serverName": "web",
            "_meta": {**MAY_I, "tool_name": named, "connector_description": "of the server"},
            "message": "May I?",
            "requestedSchema": {"type": "object", "properties": {}},
        }
    )
    planned = planned_by_server("u", form, metadata)
    assert planned is not None
    evidence = planned.evidence
    assert (evidence["connector_id"], evidence["connector_name"]) == source
    assert ("connector_description" in evidence) == (source == ("c1", "Post"))
    assert isinstance(planned.action, McpToolCallGuardianApprovalReviewAction)
    assert (planned.action.connector_id, planned.action.connector_name) == source


@claim("review:registration", "apps:b4")
async def test_a_registration_wins_over_the_threads_reviewer(tmp_path: Path) -> None:
    source = ApprovalSource(id="app-1", name="Notes", description="Keeps notes.")
    metadata = RuntimeMetadata(
        approvals_reviewer="auto_review", tools={"look": ToolMetadata(approval_source=source)}
    )
    async with with_registered(tmp_path / "a", metadata) as place:
        told = await place.run(calls(LOOK), verdict(ALLOW), says("done"))
        begun = next(m["params"] for m in told if m.get("method") == STARTED)
        assert begun["action"] == {
            "type": "mcpToolCall",
            "server": "web",
            "toolName": "look",
            "connectorId": "app-1",
            "connectorName": "Notes",
            "toolTitle": None,
        }
        _, (request,) = place.model_requests
        assert json.loads(request["input"][0]["content"][0]["text"])["action"] == {
            "kind": "mcp_tool_call",
            "server": "web",
            "tool": "look",
            "source": {"id": "app-1", "name": "Notes", "description": "Keeps notes."},
            "arguments": {"at": "it"},
        }
    asking = RuntimeMetadata(approvals_reviewer="user")
    async with with_registered(tmp_path / "b", asking, REVIEWED) as place:
        await place.begin(calls(LOOK), says("done"))
        question = await place.client.wait_for(ASKED)
        await place.client.send({"id": question["id"], "result": {"action": "accept"}})
        told = await place.client.until("turn/completed")
        assert STARTED not in methods_of(told)


@pytest.mark.parametrize("outcome", ["allow", "deny", "refusal"])
@claim("review:account", "apps:b4")
async def test_the_account_is_shown_to_the_reviewer_and_never_comes_out(
    tmp_path: Path, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    repeated = f"It is the account of {EMAIL.lower()}, no doubt."
    answer: Any = verdict({**ALLOW, "outcome": outcome, "rationale": repeated})
    if outcome == "refusal":
        answer = Refusal(400, {"error": {"message": f"bad input: {EMAIL}"}})
    metadata = RuntimeMetadata(approvals_reviewer="auto_review", trusts_approval_context=True)
    tools = [look({"connectedAccountEmail": EMAIL})]
    async with with_registered(tmp_path, metadata, tools=tools) as place:
        tap = place.client.pipe
        assert isinstance(tap, Tap)
        await place.run(calls(LOOK), answer, says("done"))
        await place.client.call("thread/read", {"threadId": place.thread_id, "includeTurns": True})
        status = await place.client.call("mcpServerStatus/list", {"threadId": place.thread_id})
        schema = {"type": "object"}
        shown = {"name": "look", "inputSchema": schema, "_meta": {"other": 1}}
        assert status["data"][0]["tools"]["look"] == shown
        asked, (request,) = place.model_requests
        shown = json.loads(request["input"][0]["content"][0]["text"])["action"]
        assert shown["connected_account_email"] == EMAIL
        log = next((tmp_path / "threads").rglob("*.jsonl")).read_text()
        everything = [*tap.heard, json.dumps(asked), log, *caplog.messages]
        assert "call_1" in log
        assert [text for text in everything if EMAIL.lower() in text.lower()] == []
        if outcome != "refusal":
            assert "It is the account of […], no doubt." in "".join(tap.heard)
