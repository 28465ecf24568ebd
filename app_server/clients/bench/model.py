"""A model that answers at once, as a process of its own so that it does not slow the bench down.

Run by a bench; prints its port. It speaks just enough HTTP for the clients at hand.
The last user message says what it answers: `deltas 2000` that many deltas in one HTTP chunk,
`events 1000` the same with a chunk for each, `flood` deltas of half a megabyte without end, `huge`
one delta of 20 MB; `run LINE` a call of `exec_command`, `search WORDS` one of the tool search, and
one delta once that was answered; else one delta.
"""

import asyncio
import itertools
import json
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from app_server.runtime.http.peer_user import refusal_of_stranger

FLOOD_CHARS = 500_000
"""Of each delta of a flood."""
HUGE_CHARS = 20_000_000

MAX_RENDERED = 32
"""Responses that are kept; there is one for each row."""

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}"

ASKED = re.compile(rb'"text":"(?:(deltas|events|flood|huge)(?: (\d+))?|(run|search) ([^"]*))"')
BEGINNINGS = tuple(
    b'"text":"' + word for word in (b"deltas", b"events", b"flood", b"huge", b"run ", b"search ")
)
ANSWERED = {"run": b'"function_call_output"', "search": b'"tool_search_output"'}
"""What a request has once the call of a word was answered."""

_calls = itertools.count(1)

MESSAGE: dict[str, Any] = {"type": "message", "role": "assistant", "id": "msg_1"}
BEGIN: list[dict[str, Any]] = [
    {"type": "response.created", "response": {"id": "resp_1"}},
    {"type": "response.output_item.added", "item": {**MESSAGE, "content": []}},
]
USAGE = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
END = {"type": "response.completed", "response": {"id": "resp_1", "usage": USAGE}}


def delta(text: str) -> dict[str, Any]:
    """Make the event of a piece of text."""
    return {"type": "response.output_text.delta", "item_id": "msg_1", "delta": text}


def events_of(deltas: Iterable[str]) -> list[bytes]:
    """Render the events of one response."""
    pieces = list(deltas)
    content = [{"type": "output_text", "text": "".join(pieces)}]
    events: list[dict[str, Any]] = [
        *BEGIN,
        *map(delta, pieces),
        {"type": "response.output_item.done", "item": {**MESSAGE, "content": content}},
        END,
    ]
    return [rendered(event) for event in events]


def rendered(event: dict[str, Any]) -> bytes:
    """Render a server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), json.dumps(event).encode())


def chunk(content: bytes) -> bytes:
    """Render a chunk of an HTTP body; an empty one is the last."""
    return b"%x\r\n%b\r\n" % (len(content), content)


@lru_cache(maxsize=MAX_RENDERED)
def answer(kind: str, number: int) -> bytes:
    """Render a whole response."""
    if kind == "huge":
        return HEAD + chunk(b"".join(events_of(["x" * HUGE_CHARS]))) + chunk(b"")
    events = events_of(["word "] * number)
    chunks = [b"".join(events)] if kind == "deltas" else events
    return HEAD + b"".join(map(chunk, chunks)) + chunk(b"")


def call_of(word: str, line: str) -> bytes:
    """Render a response that calls `exec_command`, or searches for tools."""
    item: dict[str, Any] = {"id": f"fc_{next(_calls)}", "call_id": f"call_{next(_calls)}"}
    if word == "search":
        item |= {"type": "tool_search_call", "execution": "client", "status": "completed"}
        item["arguments"] = {"query": line, "limit": 8}
    else:
        item |= {"type": "function_call", "name": "exec_command"}
        item["arguments"] = json.dumps({"cmd": line, "yield_time_ms": 30_000})
    events = [BEGIN[0], {"type": "response.output_item.done", "item": item}, END]
    return HEAD + chunk(b"".join(map(rendered, events))) + chunk(b"")


def asked_for(body: bytes) -> tuple[str, int, str | None]:
    """Read the last word that is for this model: its kind, its number, and a line to run."""
    at = max(body.rfind(beginning) for beginning in BEGINNINGS)
    found = None if at < 0 else ASKED.match(body, at)
    if found is None:
        return "deltas", 1, None
    if found[3] is None:
        return found[1].decode(), int(found[2] or 1), None
    word = found[3].decode()
    if body.find(ANSWERED[word], at) >= 0:
        return "deltas", 1, None
    return word, 1, found[4].decode()


async def flood(writer: asyncio.StreamWriter) -> None:
    """Write deltas until the client has gone."""
    writer.write(HEAD + b"".join(chunk(rendered(event)) for event in BEGIN))
    piece = chunk(rendered(delta("x" * FLOOD_CHARS)))
    while True:
        writer.write(piece)
        await writer.drain()


async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one connection's requests, if it is of this user."""
    try:
        if await refusal_of_stranger(writer.get_extra_info("socket")):
            raise ConnectionAbortedError
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(length[1])) if length else b""
            if not head.startswith(b"POST"):
                writer.write(NOT_FOUND)
                continue
            kind, number, line = asked_for(body)
            if kind == "flood":
                await flood(writer)
            writer.write(answer(kind, number) if line is None else call_of(kind, line))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    """Serve on a free port until killed."""
    server = await asyncio.start_server(converse, "127.0.0.1", 0, limit=1 << 26)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
