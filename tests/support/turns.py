"""Turns that a client starts, and what it hears of them."""

from typing import Any

from tests.support.harness import (
    WireClient,
)


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
