"""Threads for signals to arrive in."""

from pathlib import Path
from typing import Any

from app_server.peer.connection import open_client
from tests.support.receiver.peer import signal


async def start_thread(url: str, cwd: Path) -> dict[str, Any]:
    """Start a thread in a folder, with a turn, as a person does."""
    async with open_client(url, "terminal") as client:
        answer: Any = await client.call("thread/start", {"cwd": str(cwd)})
        thread: dict[str, Any] = answer["thread"]
        return thread


def arrived(**members: Any) -> dict[str, Any]:
    """Return a signal as a tool result shows it."""
    return {**signal("s1"), "delivery_class": "async", **members}
