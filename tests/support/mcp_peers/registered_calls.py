"""Calls of servers that an extension registers."""

from collections.abc import Sequence
from typing import Any

from tests.support.mcp_peers.registrations import (
    Shop,
)
from tests.support.model import calls

ASKED = "mcpServer/elicitation/request"


def items_of(messages: Sequence[Any], kind: str = "item/completed") -> list[Any]:
    items = [m["params"]["item"] for m in messages if m.get("method") == kind]
    return [item for item in items if item["type"] == "mcpToolCall"]


async def run_calls(shop: Shop, thread_id: str, *functions: Any, **options: Any) -> list[Any]:
    """Run a turn whose model makes calls; gives all that was said."""
    shop.served.model.scripts.append(calls(*functions))
    params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}], **options}
    await shop.client.call("turn/start", params)
    return await shop.client.until("turn/completed")


async def asked(shop: Shop, thread_id: str, function: Any, answer: Any) -> Any:
    """Run a turn whose model makes one call; gives the question and answers it."""
    shop.served.model.scripts.append(calls(function))
    params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
    await shop.client.call("turn/start", params)
    question = await shop.client.wait_for(ASKED)
    await shop.client.send({"id": question["id"], "result": answer})
    await shop.client.until("turn/completed")
    return question["params"]
