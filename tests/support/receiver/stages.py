"""Receipts of signals, and what the model reads of one."""

from typing import Any

from app_server.threads.ledger import Entry
from protocol.signals.frame import END, OPENING
from tests.support.harness import (
    Served,
    WireClient,
)

NAMES = 'source: "router"\ntype: "Question"\nsender: "ann"\n'


def text_of(signal_id: str = "s1", summary: str | None = None) -> str:
    """Return what the model reads."""
    lines = f"> {summary or f'summary of {signal_id}'}"
    return f'{OPENING}\n{NAMES}id: "{signal_id}"\nsummary:\n{lines}\n{END}'


async def stage(client: WireClient, signal_id: str, wanted: str) -> Any:
    """Wait until a signal has reached a stage and return its receipt."""
    event = await client.wait_for(
        "signal/updated",
        lambda p: p["receipt"]["signalId"] == signal_id and p["receipt"]["stage"] == wanted,
    )
    return event["params"]["receipt"]


async def unload(served: Served, thread_id: str) -> None:
    """Put a thread away as the sweep does."""
    await served.services.sessions.unload(thread_id)


def entry(name: str, **members: Any) -> Entry:
    """Make an entry of the ledger."""
    return Entry(
        **{
            "source": "router",
            "id": name,
            "digest": "d",
            "thread_id": "t",
            "sender": "ann",
            "item": "",
            "wakes": False,
            "steers": False,
            "stage": "answered",
            "recipient_state": "idle",
            "at_ms": 1,
            "item_id": "i",
            **members,
        }
    )
