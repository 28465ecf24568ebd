"""The item that a model sees of a signal, and how it is found again in a thread's log. No I/O.

Source: docs/receiver.md, "The item".
"""

import re
from collections.abc import Set
from typing import Any

from pydantic_core import from_json, to_json

from app_server.clients.receiver.router.envelope import SOURCE, Envelope
from protocol.model import JsonObject
from protocol.signals.frame import Framed, frame_item

PENDING_TOOL = "prism_signals_pending"
"""The receiver's tool that gives whole signals."""

_PLAIN = re.compile(r"[A-Za-z0-9_.:-]+")


def render_item(envelope: Envelope, payload_tool: str | None = None) -> JsonObject:
    """Render a signal as a raw Responses item.

    `payload_tool` is the tool that gives the whole signal, if the agent has it.
    """
    return frame_item(
        Framed(SOURCE, envelope.type, envelope.sender, envelope.id, envelope.summary, payload_tool)
    )


def line_holds(line: bytes, signal_id: str) -> bool:
    """Whether a line of a thread's log holds the item of a signal, whoever rendered it."""
    # Most lines are distinguished without being parsed.
    if b"developer" not in line:
        return False
    # JSON may write other characters in more than one way.
    if _PLAIN.fullmatch(signal_id) and signal_id.encode() not in line:
        return False
    try:
        value = from_json(line)
    except ValueError:
        # The torn last line of a process that died: its item is in no history.
        return False
    # Items that are older than the frame in protocol/signals/frame.py have no quotation marks.
    wanted = {f"id: {signal_id}", f"id: {to_json(signal_id).decode()}"}
    return _holds(value, wanted, 0)


def _holds(value: Any, wanted: Set[str], depth: int) -> bool:
    if isinstance(value, list):
        return any(_holds(member, wanted, depth + 1) for member in value)
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return False
    if value.get("role") == "developer" and isinstance(value.get("content"), list):
        return any(
            isinstance(part, dict) and not wanted.isdisjoint(str(part.get("text")).split("\n"))
            for part in value["content"]
        )
    return any(_holds(member, wanted, depth + 1) for member in value.values())


_MAX_DEPTH = 8
"""Items are not deeper in a line of any log."""
