"""Threads that are compacted, and what is stored of them."""

from pathlib import Path
from typing import Any

import anyio.to_thread
from hypothesis import strategies as st

from app_server.models.prompt.context import (
    SUMMARY_PREFIX,
)
from app_server.models.prompt.request import message
from app_server.threads.files.store import FileStore
from app_server.threads.files.writers import FileLog
from app_server.threads.log.reading import load_state
from app_server.threads.log.state import ThreadState
from tests.support.harness import (
    Served,
    WireClient,
)


def text(words: str) -> list[dict[str, Any]]:
    """Return the input of a turn."""
    return [{"type": "text", "text": words}]


TOO_LONG = [
    {
        "type": "response.failed",
        "response": {
            "id": "r",
            "error": {"code": "context_length_exceeded", "message": "too long"},
        },
    }
]


def summed_up(words: str) -> tuple[str, str]:
    """Return the message that a summary becomes."""
    return ("user", SUMMARY_PREFIX + words)


async def compact(client: WireClient, thread_id: str) -> list[dict[str, Any]]:
    """Compact a thread and return everything that was said about it."""
    await client.request("thread/compact/start", {"threadId": thread_id})
    return await client.until("turn/completed")


async def talked(served: Served, client: WireClient, *words: str) -> str:
    """Start a thread, have turns in it, and return its id."""
    thread_id = await client.start_thread()
    for each in words:
        await client.turn(thread_id, each)
    return thread_id


async def stored(served: Served, thread_id: str) -> ThreadState:
    """Read the state of a thread from its log."""
    path = Path(FileStore(served.home).shown_path(thread_id))
    return await anyio.to_thread.run_sync(load_state, FileLog(path))


items = st.sampled_from(
    [
        message("user", "u"),
        message("developer", "d"),
        message("assistant", "a"),
        message("user", SUMMARY_PREFIX + "s"),
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "o"},
    ]
)
