"""Turns that a client starts, and what it hears of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.harness import Served, WireClient, serve
from tests.support.model import Gate, ScriptedModel


def raw(text: str, role: str = "developer") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def text_input(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


async def start_turn(client: WireClient, thread_id: str, text: str, **options: Any) -> str:
    result = await client.call(
        "turn/start", {"threadId": thread_id, "input": text_input(text), **options}
    )
    turn_id: str = result["turn"]["id"]
    return turn_id


@asynccontextmanager
async def held_clocks(client: WireClient, thread_id: str) -> AsyncIterator[None]:
    """Let no time of the thread's commands and MCP servers run out while the context lasts."""
    thread = {"threadId": thread_id}
    await client.call("thread/increment_elicitation", thread)
    yield
    await client.call("thread/decrement_elicitation", thread)


@asynccontextmanager
async def busy_thread(
    home: Path, *events: Any
) -> AsyncIterator[tuple[Served, WireClient, str, Gate]]:
    """Serve a thread whose turn waits in its model's response; behind the gate that has `events`.

    Yields the server, its client, the thread's id, and the gate.
    """
    gate = Gate()
    model = ScriptedModel()
    model.scripts = [[gate, *events]]
    async with serve(home, model=model) as served, served.client() as client:
        thread_id = await client.start_thread()
        await start_turn(client, thread_id, "go")
        await gate.wait_until_reached()
        yield served, client, thread_id, gate
