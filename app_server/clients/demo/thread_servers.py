"""Waiting for the MCP servers of a thread, which start beside it; a turn does not wait for them."""

from collections.abc import Collection

from app_server.clients.connection import Client
from app_server.clients.demo.transcript import CheckFailed
from protocol.model import JsonObject

STEP = "mcpServer/startupStatus/updated"

SERVERS_S = 300.0
"""For each of them to be ready; a Python process alone takes seconds on a busy machine."""


async def wait_for_servers(client: Client, thread_id: str, names: Collection[str]) -> None:
    """Wait until every named server of a thread is ready.

    Raises:
        CheckFailed: one did not start, or not within SERVERS_S; the text says which and why.
    """
    left = set(names)

    def is_end(step: JsonObject) -> bool:
        ours = step["threadId"] == thread_id and step["name"] in left
        return bool(ours and step["status"] != "starting")

    while left:
        try:
            step = await client.wait_for(STEP, is_end, timeout_s=SERVERS_S)
        except TimeoutError as exc:
            waited = ", ".join(sorted(left))
            text = f"MCP servers of thread {thread_id} were not ready in {SERVERS_S:g} s: {waited}"
            raise CheckFailed(text) from exc
        if step["status"] != "ready":
            raise CheckFailed(f"MCP server {step['name']} did not start: {step['error']}")
        left.discard(step["name"])
