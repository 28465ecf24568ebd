"""What tests of a thread's metadata share."""

from typing import Any

from tests.support.harness import (
    WireClient,
)

NOBODY = "01990000-0000-7000-8000-000000000000"
USER_INPUT = [{"type": "text", "text": "hi"}]


async def seen(client: WireClient, thread_id: str, member: str) -> list[Any]:
    """Return a member of a thread as it is read, listed and resumed."""
    listed = (await client.call("thread/list", {}))["data"]
    return [
        (await client.call("thread/read", {"threadId": thread_id}))["thread"][member],
        *(thread[member] for thread in listed if thread["id"] == thread_id),
        (await client.call("thread/resume", {"threadId": thread_id}))["thread"][member],
    ]
