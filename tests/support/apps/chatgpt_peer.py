"""A hand-written stand-in for ChatGPT's plain interface: what it answers, and what it was asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.support.http_peer import HttpRequest, answering

NEVER = None
"""Instead of an answer: the request is read and nothing comes back."""


@dataclass(frozen=True)
class Asked:
    """One request."""

    line: str
    """Method and path."""
    query: list[tuple[str, str]]
    headers: Mapping[str, str] = field(compare=False)
    body: Any = None


@dataclass
class ChatgptPeer:
    """Answers by path: one after the other, the last one again and again.

    An answer is JSON, bytes as they are, or the number of a status.
    """

    answers: dict[str, list[Any]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["ChatgptPeer"]:
        """Listen while the context lasts."""
        async with answering(self._answer) as port:
            self.url = f"http://127.0.0.1:{port}/backend-api"
            yield self

    def lines(self) -> list[str]:
        """Return what was asked, in order."""
        return [asked.line for asked in self.asked]

    async def _answer(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        address = urlsplit(request.target)
        path = address.path.removeprefix("/backend-api/")
        query = parse_qsl(address.query)
        content = json.loads(request.body) if request.body else None
        self.asked.append(Asked(f"{request.method} {path}", query, request.headers, content))
        waiting = self.answers.get(path, [404])
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if answer is NEVER:
            await reader.read()
            return False
        status = answer if isinstance(answer, int) else 200
        sent = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        head = f"HTTP/1.1 {status} Scripted\r\nlocation: /\r\ncontent-length: {len(sent)}\r\n\r\n"
        writer.write(head.encode() + sent)
        return True
