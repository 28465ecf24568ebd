"""Turns as a log has them, and a log with them."""

from pathlib import Path
from typing import Any

from app_server.threads.log.state import ThreadState, begin
from protocol.log.rollout import (
    HistoryAppended,
    ItemCompleted,
    Record,
    TurnCompleted,
    TurnStarted,
    render_record,
)
from protocol.turns.items import AgentMessageThreadItem
from tests.support.threads.rollouts import read_rollout
from tests.support.threads.stores import raw, user_message

THREAD = "01900000-0000-7000-8000-000000000001"


def write(path: Path, *records: Record) -> None:
    with path.open("ab") as file:
        file.write(b"".join(map(render_record, records)))


def turn(number: int, *texts: str, **end: Any) -> list[Record]:
    """One whole turn: a question, then answers."""
    name = f"t{number}"
    asked = user_message(f"question {number}", item_id=f"u{number}")
    return [
        TurnStarted(at_ms=number, turn_id=name),
        ItemCompleted(at_ms=number, turn_id=name, item=asked),
        HistoryAppended(at_ms=number, items=[raw(f"question {number}")]),
        *(
            ItemCompleted(
                at_ms=number,
                turn_id=name,
                item=AgentMessageThreadItem(id=f"a{number}.{place}", text=text),
            )
            for place, text in enumerate(texts)
        ),
        TurnCompleted(at_ms=number, turn_id=name, status="completed", **end),
    ]


def whole(path: Path) -> ThreadState:
    """Add up everything, with nothing left out."""
    records = iter(list(read_rollout(path)))
    state = begin(next(records))  # type: ignore[arg-type]
    state.kept_turns = state.kept_bytes = 1 << 40
    for record in records:
        state.apply(record)
    return state


async def texts(client: Any, thread_id: str, **params: Any) -> list[str]:
    result = await client.call("thread/items/list", {"threadId": thread_id, **params})
    return [
        item["text"] if item["type"] == "agentMessage" else item["content"][0]["text"]
        for item in (entry["item"] for entry in result["data"])
    ]
