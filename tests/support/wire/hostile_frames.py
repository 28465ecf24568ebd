"""Frames that are made to keep a server busy, or to make it say more than it was told.

`tests/rpc/test_bounds.py` sends them to a server in the process of the test, and
`tests/long/hostile_load.py` at full size to a server process.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from protocol.jsonrpc.value_count import MAX_VALUES

MAX_REFUSAL = 64 * 1024
"""Characters of the answer to a frame."""
ANSWER_S = 120.0
INITIALIZE = {
    "id": 0,
    "method": "initialize",
    "params": {
        "clientInfo": {"name": "hostile", "version": "1"},
        "capabilities": {"experimentalApi": True},
    },
}
THREAD = "0199a213-81c0-7800-8aa1-bbab2a035a53"


@dataclass(frozen=True)
class Frame:
    """One text, and the code of the error that answers it."""

    name: str
    code: int
    text: Callable[[int], str]
    """From a size in characters to a text of about that size."""


def _repeated(before: str, piece: str, after: str) -> Callable[[int], str]:
    return lambda size: before + piece * (size // len(piece)) + after


def _params(method: str, before: str, piece: str, after: str) -> Callable[[int], str]:
    head = f'{{"id":1,"method":"{method}","params":{{'
    return _repeated(head + before, piece, after + "}}")


def _most(text: Callable[[int], str], values: int, chars: int) -> Callable[[int], str]:
    return lambda size: text(min(size, values * chars))


def _keys(size: int) -> str:
    return "{" + ",".join(f'"{number:08d}":0' for number in range(size // 13)) + "}"


def _long_ids(size: int) -> str:
    long_id = "\\u0007" * 1000
    one = f'{{"id":"{long_id}","method":"m"}}'
    return f"[{','.join([one] * min(size // len(one), 1000))}]"


ALLOWED = MAX_VALUES - 10
"""So many values pass the first bound."""

BEFORE_INITIALIZE = [
    Frame("batch of numbers", -32600, _repeated("[1", ",1", "]")),
    Frame("batch of objects", -32600, _repeated("[{}", ",{}", "]")),
    Frame("batch of lists", -32600, _repeated("[[]", ",[]", "]")),
    Frame("batch of requests", -32600, _repeated("[5", ',{"id":1,"method":"x"}', "]")),
    Frame("batch of few numbers", -32600, _most(_repeated("[1", ",1", "]"), ALLOWED, 2)),
    Frame("batch of long ids", -32600, _long_ids),
    Frame("object of many members", -32600, _keys),
    Frame("deep lists", -32600, _repeated("", "[", "")),
    Frame("few deep lists", -32700, _most(_repeated("", "[", ""), ALLOWED, 1)),
    Frame("deep objects", -32600, _repeated("", '{"a":', "")),
    Frame("text with commas", -32600, _params("x", '"a":"', ",", '"')),
    Frame("text with escapes", -32600, _params("x", '"a":"', "\\n", '"')),
    Frame("text of quotes", -32600, _params("x", '"a":"', '\\"', '"')),
    Frame("text of exponents", -32600, _params("x", '"a":"', "e", '"')),
    Frame("spaces", -32600, _params("x", "", " ", "")),
    Frame("long integer", -32700, _repeated("", "1", "")),
    Frame("long fraction", -32600, _repeated("1.", "1", "")),
    Frame("broken at its end", -32700, _repeated('{"id":1,"method":"', "a", '"')),
    Frame("long id", -32600, _repeated('{"id":"', "a", '","method":"x"}')),
    Frame("long method", -32600, _repeated('{"id":1,"method":"', "a", '"}')),
]

AFTER_INITIALIZE = [
    Frame("unknown method", -32601, _repeated('{"id":1,"method":"', "a", '"}')),
    Frame("unknown thread", -32600, _params("thread/read", '"threadId":"', "a", '"')),
    Frame("unknown word", -32602, _params("thread/list", '"sortKey":"', "a", '"')),
    Frame("unknown words", -32602, _most(
        _params("thread/list", '"sourceKinds":["b"', ',"a"', "]"), ALLOWED, 4)),
    Frame("cursor", -32600, _params("thread/list", '"cursor":"', "a", '"')),
    Frame("input of numbers", -32602, _most(
        _params("turn/start", '"threadId":"","input":[0', ",0", "]"), ALLOWED, 2)),
    Frame("unknown variant", -32602, _params(
        "turn/start", '"threadId":"","input":[{"type":"', "a", '"}]')),
    Frame("key of a map", -32602, _params(
        "turn/start", '"threadId":"","input":[],"mcpMetaByServer":{"', "a", '":0}')),
    Frame("unknown server", -32600, _params(
        "mcpServer/tool/call", '"threadId":"","tool":"t","server":"', "a", '"')),
    Frame("search", -32602, _params("thread/search", '"searchTerm":"', "a", '"')),
]  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What one frame led to."""

    answers: Sequence[Any]
    chars: int
    """Of the longest answer."""
    took_s: float


async def send(socket: ClientConnection, text: str) -> Outcome:
    """Send a frame and a request behind it; return what the frame was answered."""
    began = time.monotonic()
    await socket.send(text)
    await socket.send('{"id":"behind","method":"thread/loaded/list","params":{}}')
    answers: list[Any] = []
    longest = 0
    behind = False
    async with asyncio.timeout(ANSWER_S):
        while not behind or not answers:
            answer = await socket.recv(decode=True)
            message = json.loads(answer)
            if isinstance(message, dict) and message.get("id") == "behind":
                behind = True
            elif isinstance(message, list) or "id" in message:
                answers.append(message)
                longest = max(longest, len(answer))
    return Outcome(answers, longest, time.monotonic() - began)


def complaint(frame: Frame, outcome: Outcome) -> str | None:
    """Say what is wrong with the answer to a frame."""
    codes = [
        answer["error"]["code"] if isinstance(answer, dict) and "error" in answer else answer
        for answer in outcome.answers
    ]
    if len(codes) != 1 or not isinstance(codes[0], int):
        return f"{len(codes)} answers: {json.dumps(codes)[:200]}"
    if outcome.chars > MAX_REFUSAL:
        return f"an answer of {outcome.chars} characters"
    return None if codes[0] == frame.code else f"code {codes[0]} instead of {frame.code}"


@asynccontextmanager
async def connected(url: str, *, initialized: bool) -> AsyncIterator[ClientConnection]:
    """Connect, and shake hands if asked to."""
    async with connect(
        url, proxy=None, open_timeout=ANSWER_S, compression=None, max_size=None
    ) as socket:
        if initialized:
            await socket.send(json.dumps(INITIALIZE))
            while json.loads(await socket.recv()).get("id") != 0:
                pass
        yield socket
