"""Turns whose approvals go to the automatic reviewer."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app_server.turns.approval.reviewer import ADVICE_UNDECIDED
from tests.support.harness import Served, WireClient, serve, stdio_server
from tests.support.model import says

STARTED = "item/autoApprovalReview/started"
COMPLETED = "item/autoApprovalReview/completed"
ASKED = "mcpServer/elicitation/request"
REVIEWED = 'approvals_reviewer = "auto_review"\n'
WIPE = {"namespace": "mcp__raw", "name": "wipe", "arguments": {"p": 1}}
ALLOW = {
    "risk_level": "low",
    "user_authorization": "high",
    "outcome": "allow",
    "rationale": "The user asked for it.",
}
DENY = {
    "risk_level": "high",
    "user_authorization": "low",
    "outcome": "deny",
    "rationale": "Too much is lost.",
}
EMAIL = "Jane.Doe@example.com"


def verdict(members: Any) -> list[Any]:
    """Let the model answer with a verdict."""
    return says(json.dumps(members))


@dataclass
class Place:
    """A server, a client and a thread with one MCP server."""

    served: Served
    client: WireClient
    thread_id: str

    async def begin(self, *scripts: Any, text: str = "go", **options: Any) -> str:
        """Start a turn whose model plays scripts; gives its id."""
        self.served.model.scripts.extend(scripts)
        params = {"threadId": self.thread_id, "input": [{"type": "text", "text": text}], **options}
        return str((await self.client.call("turn/start", params))["turn"]["id"])

    async def run(self, *scripts: Any, **options: Any) -> list[Any]:
        """Run a turn; gives all that was said."""
        await self.begin(*scripts, **options)
        return await self.client.until("turn/completed")

    @property
    def model_requests(self) -> tuple[list[Any], list[Any]]:
        """The requests of turns, and those of reviews."""
        requests = self.served.model.requests
        reviews = [request for request in requests if "text" in request]
        return [request for request in requests if "text" not in request], reviews


@asynccontextmanager
async def with_peer(tmp_path: Path, config: str = REVIEWED, **params: Any) -> AsyncIterator[Place]:
    """Give a thread with a child process as its MCP server."""
    config += stdio_server("raw")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        yield Place(served, client, await ready_thread(client, **params))


async def ready_thread(client: WireClient, **params: Any) -> str:
    """Start a thread; return its id when its MCP server is ready."""
    thread_id = await client.start_thread(**params)
    await client.wait_for("mcpServer/startupStatus/updated", lambda p: p["status"] == "ready")
    return thread_id


def of_review(messages: Sequence[Any]) -> list[Any]:
    """Return what clients hear of reviews and of the calls under review, without times and ids."""
    kept: list[Any] = []
    for message in messages:
        params = message.get("params", {})
        match message.get("method"):
            case "item/started" | "item/completed" if params["item"]["type"] == "mcpToolCall":
                item = params["item"]
                kept.append((message["method"], item["id"], item["status"], item["error"]))
            case "item/autoApprovalReview/started" | "item/autoApprovalReview/completed":
                kept.append((message["method"], params["targetItemId"], params["review"]))
            case "guardianWarning":
                kept.append((message["method"], params["message"]))
            case "turn/completed":
                kept.append((message["method"], params["turn"]["status"]))
    return kept


def review(status: str, assessment: Any = None, rationale: str | None = None) -> dict[str, Any]:
    """Return a review as clients get it."""
    found = assessment or {}
    return {
        "status": status,
        "riskLevel": found.get("risk_level"),
        "userAuthorization": found.get("user_authorization"),
        "rationale": found.get("rationale", rationale),
    }


def last_output(served: Served) -> str:
    """Return what the model read of its last call."""
    outputs = [item for item in served.model.items() if "output" in item]
    text = outputs[-1]["output"]
    return text if isinstance(text, str) else text[-1]["text"]


def undecided(cause: str) -> str:
    """Return what the model reads when a review came to nothing."""
    return f"{cause}\n{ADVICE_UNDECIDED}"


def message(role: str, *texts: str) -> dict[str, Any]:
    """Return a message of the history."""
    content = [{"type": "input_text", "text": text} for text in texts]
    return {"type": "message", "role": role, "content": content}


MAY_I = {
    "codex_request_type": "approval_request",
    "codex_approval_kind": "mcp_tool_call",
    "tool_name": "send",
    "tool_title": "Send",
    "tool_params": {"to": "all"},
    "connector_id": "c1",
    "connector_name": "Post",
}


def look(context: Any) -> dict[str, Any]:
    """Return a tool with an approval context."""
    meta = {"codex/approvalContext": context, "other": 1}
    return {"name": "look", "inputSchema": {"type": "object"}, "_meta": meta}
