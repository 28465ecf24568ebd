"""Opening handshakes as they stand on the wire, with whatever headers; and tokens for them."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from tests.support.harness import WAIT_S

SECRET = b"a secret of more than thirty-two bytes"

DIGESTS = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}

UPGRADE = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
)


@dataclass(frozen=True)
class Answer:
    """How a server answered."""

    status: int
    body: str
    headers: dict[str, str] = field(compare=False)
    """With names in small letters."""


async def handshake(
    url: str,
    *headers: tuple[str, str],
    host: str | Sequence[str] = "127.0.0.1",
    path: str = "/",
    upgrade: Sequence[tuple[str, str]] = UPGRADE,
) -> Answer:
    """Send one request over a connection of its own, and read the answer."""
    hosts = [host] if isinstance(host, str) else host
    lines = [f"GET {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in [*(("Host", each) for each in hosts), *upgrade]]
    lines += [f"{name}: {value}" for name, value in headers]
    with anyio.fail_after(WAIT_S):
        if url.startswith("unix://"):
            reader, writer = await asyncio.open_unix_connection(url.removeprefix("unix://"))
        else:
            name, _, port = url.removeprefix("ws://").rpartition(":")
            reader, writer = await asyncio.open_connection(name.strip("[]"), int(port))
        try:
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *rest = head.rstrip().split("\r\n")
            told = {n.lower(): v for n, _, v in (line.partition(": ") for line in rest)}
            body = await reader.readexactly(int(told.get("content-length", 0)))
            return Answer(int(first.split()[1]), body.decode(), told)
        finally:
            writer.close()


def bearer(token: str) -> tuple[str, str]:
    """Return the header that shows a token."""
    return ("Authorization", f"Bearer {token}")


def signed(claims: Any, secret: bytes = SECRET, algorithm: str = "HS256") -> str:
    """Sign claims, whatever they are; `none` leaves the signature out."""
    parts = [{"alg": algorithm, "typ": "JWT"}, claims]
    text = b".".join(_base64url(json.dumps(part).encode()) for part in parts)
    if algorithm == "none":
        return f"{text.decode()}."
    signature = hmac.new(secret, text, DIGESTS[algorithm]).digest()
    return f"{text.decode()}.{_base64url(signature).decode()}"


def in_seconds(seconds: float) -> int:
    """Return the Unix time in so many seconds."""
    return int(time.time() + seconds)


def _base64url(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")
