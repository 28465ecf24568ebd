"""The item that a model sees of a signal, and the search for it in a thread's log.

Neither our server nor the reference shows injected items to clients; both have them in the log
before they answer, in the file that the server names.

Source: docs/receiver.md, "The item".
"""

import re
import stat
from collections.abc import Set
from enum import Enum
from pathlib import Path
from typing import Any

import anyio.to_thread
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
    """Whether a line of a thread's log holds the item of a signal, in any rendering."""
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


MAX_LOG_BYTES = 512 * 1024 * 1024
"""A longer log is not read."""

MAX_LINE_BYTES = 64 * 1024 * 1024


class Presence(Enum):
    """Presence of a signal in a log."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"
    """There is no such file, or it cannot be read as a whole."""


async def log_exists(path: str | None) -> bool:
    """Whether there is a log yet; the reference makes it with the first item."""
    return path is not None and await anyio.to_thread.run_sync(Path(path).is_file)


async def find_in_log(path: str | None, signal_id: str, *, was_there: bool) -> Presence:
    """Look for a signal in a log; reads in a worker thread.

    `was_there` says whether the log existed before the item was sent. If not, its absence now
    means that of the item.
    """
    if path is None:
        return Presence.UNKNOWN
    return await anyio.to_thread.run_sync(_find, Path(path), signal_id, was_there)


def _find(path: Path, signal_id: str, was_there: bool) -> Presence:
    try:
        with path.open("rb") as file:
            status = path.stat()
            if status.st_size > MAX_LOG_BYTES or not stat.S_ISREG(status.st_mode):
                return Presence.UNKNOWN
            while line := file.readline(MAX_LINE_BYTES):
                if line_holds(line, signal_id):
                    return Presence.PRESENT
    except FileNotFoundError:
        return Presence.UNKNOWN if was_there else Presence.ABSENT
    except OSError:
        return Presence.UNKNOWN
    return Presence.ABSENT
