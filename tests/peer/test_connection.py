"""The conversation of commands with a server: which events it keeps."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection, serve

from app_server.peer import connection
from app_server.peer.connection import Client, open_client

EVENTS = 6


def event(number: int) -> str:
    return json.dumps({"method": "event", "params": {"number": number}})


async def _send_events(socket: ServerConnection) -> None:
    async for text in socket:
        request = json.loads(text)
        if request["method"] == "events":
            for number in range(EVENTS):
                await socket.send(event(number))
        if "id" in request:
            await socket.send(json.dumps({"id": request["id"], "result": {}}))


@asynccontextmanager
async def talkative() -> AsyncIterator[Client]:
    """Talk to a server that answers `events` with EVENTS events before its result."""
    async with serve(_send_events, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with open_client(f"ws://127.0.0.1:{port}", "test") as client:
            yield client


async def kept(client: Client) -> list[int]:
    """Have the events sent, and return the numbers of those that are kept."""
    await client.call("events", {})
    numbers: list[int] = []
    while EVENTS - 1 not in numbers:
        numbers.append((await client.wait_for("event", lambda _: True))["number"])
    return numbers


@pytest.mark.parametrize(
    ("bound", "value", "expected"),
    [
        ("MAX_KEPT_EVENTS", 2, [4, 5]),
        ("MAX_KEPT_CHARS", 3 * len(event(0)), [3, 4, 5]),
        ("MAX_KEPT_CHARS", 3 * len(event(0)) - 1, [4, 5]),
        ("MAX_KEPT_CHARS", EVENTS * len(event(0)), [0, 1, 2, 3, 4, 5]),
    ],
)
async def test_unread_events_are_bounded(
    monkeypatch: pytest.MonkeyPatch, bound: str, value: int, expected: list[int]
) -> None:
    monkeypatch.setattr(connection, bound, value)
    async with talkative() as client:
        # What was taken leaves its room to others.
        assert [await kept(client), await kept(client)] == [expected, expected]
