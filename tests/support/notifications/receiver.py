"""A receiver of webhooks on loopback, which does to each request what a test wants."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from standardwebhooks import Webhook

from tests.support.harness import WAIT_S
from tests.support.http_peer import HttpRequest, answering

SECRET = "whsec_" + "QUJD" * 8


def write_secret(folder: Path, *secrets: str) -> Path:
    """Write a file of secrets that its owner alone can read."""
    file = folder / "webhook.secret"
    file.touch(mode=0o600)
    file.write_text("\n".join(secrets or (SECRET,)) + "\n")
    return file


class Receiver:
    """What came, and what is answered."""

    def __init__(self) -> None:
        self.answers: list[int | None] = []
        """Status of the next answers; None: none is given. Then all are 200."""
        self.headers: dict[str, str] = {}
        """Of answers."""
        self.requests: list[HttpRequest] = []
        self.port = 0
        self._came = asyncio.Event()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["Receiver"]:
        """Listen while the context lasts."""
        async with answering(self._answer, self.port) as self.port:
            yield self

    async def _answer(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        self.requests.append(request)
        self._came.set()
        status = self.answers.pop(0) if self.answers else 200
        if status is None:
            await reader.read()
            return False
        lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\n{lines}\r\n".encode())
        return True

    async def wait_for(self, count: int) -> Sequence[HttpRequest]:
        """Return the first requests, once there are so many."""
        with anyio.fail_after(WAIT_S):
            while len(self.requests) < count:
                self._came = asyncio.Event()
                await self._came.wait()
        return self.requests[:count]

    async def distinct(self, count: int) -> Sequence[Any]:
        """Return the bodies of so many ids, in the order of their first coming."""
        seen, known = 0, dict[str, Any]()
        while len(known) < count:
            seen += 1
            request = (await self.wait_for(seen))[-1]
            known.setdefault(request.headers["webhook-id"], verified(request))
        return list(known.values())

    def entry(self, folder: Path, *events: str, **more: Any) -> dict[str, Any]:
        """Return the entry of the settings that leads here."""
        return {
            "events": list(events),
            "url": f"http://127.0.0.1:{self.port}/hook",
            "secret_file": str(write_secret(folder)),
            **more,
        }


def rendered(**members: Any) -> str:
    """Render an entry of the settings."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in members.items()]
    return "\n".join(["[[notifications]]", *lines, ""])


def verified(request: HttpRequest, secret: str = SECRET) -> Any:
    """Return the body of a request, whose signature must be that of a secret."""
    body = Webhook(secret).verify(request.body, request.headers)
    assert body["data"]["id"] == request.headers["webhook-id"]
    return body
