"""One HTTP request and its response, independent of their transport.

Knows: methods, headers, bodies in pieces. Does not know: MCP, JSON-RPC, tokens.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import httpx2

from app_server.runtime.http.bounded_body import TooManyBytes, read_bounded

LINGER_S = 0.2
"""Seconds to drain the rest of an abandoned response; then its connection is closed."""

LINGER_BYTES = 64 * 1024
"""Of such a rest."""


class Unreachable(Exception):
    """A request got no response; the text says why, and holds no secret."""


class BodyBroken(Exception):
    """A response did not come to its end."""


class BodyTooLarge(BodyBroken):
    """A response passed its bound."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request to send. Header names are in lower case; the transport adds length and framing."""

    method: str
    url: httpx2.URL
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(default=b"", repr=False)


class HttpResponse(Protocol):
    """A response whose head has arrived, and whose body arrives in pieces."""

    @property
    def status(self) -> int:
        """The status, 200 or above."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Names are in lower case; a header that came twice is joined with a comma."""

    @property
    def at_end(self) -> bool:
        """Whether it is known, without waiting, that no more of the body comes."""

    async def receive(self) -> bytes:
        """Return the next piece of the body as it was sent, empty at its end.

        Raises:
            BodyBroken: the body does not come to its end.
        """

    async def aclose(self) -> None:
        """Give the connection back; one whose body was not read to its end is closed."""


class HttpSender(Protocol):
    """Sends requests to one server over connections of its own."""

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request and wait for the head of its response, whatever its status.

        Cancelling closes the connection.

        Raises:
            Unreachable: there is no response.
        """


async def read_body(response: HttpResponse, limit_bytes: int) -> bytes:
    """Read a response to its end.

    Raises:
        BodyTooLarge: it is larger than `limit_bytes`.
        BodyBroken: it does not come to its end.
    """
    try:
        return await read_bounded(_pieces(response), limit_bytes)
    except TooManyBytes as exc:
        raise BodyTooLarge(f"the response is {exc}") from None


async def _pieces(response: HttpResponse) -> AsyncIterator[bytes]:
    while piece := await response.receive():
        yield piece


async def leave(response: HttpResponse) -> None:
    """Close a response that said enough; a short rest is read, so that its connection stays."""
    try:
        if not response.at_end:
            async with asyncio.timeout(LINGER_S):
                await read_body(response, LINGER_BYTES)
    except (TimeoutError, BodyBroken):
        pass
    finally:
        await response.aclose()


def media_type(response: HttpResponse) -> str:
    """Return the content type without parameters, in lower case."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


class LimitedSender:
    """Cut off responses to POST requests at a bound, streams of events too; a HttpSender."""

    def __init__(self, inner: HttpSender, limit_bytes: int) -> None:
        """Take the bound, in bytes of the body, inclusive."""
        self._inner = inner
        self._limit = limit_bytes

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request; see HttpSender."""
        response = await self._inner.send(request)
        return LimitedResponse(response, self._limit) if request.method == "POST" else response


class LimitedResponse:
    """A HttpResponse that is counted while it is read."""

    def __init__(self, inner: HttpResponse, limit_bytes: int) -> None:
        """Take the bound; a response that says that it is longer is not read at all."""
        self.status = inner.status
        self.headers: Mapping[str, str] = inner.headers
        self._inner = inner
        self._limit = limit_bytes
        self._left = -1 if _is_above(inner.headers, limit_bytes) else limit_bytes

    @property
    def at_end(self) -> bool:
        """Whether no more of the body comes; see HttpResponse."""
        return self._inner.at_end

    async def receive(self) -> bytes:
        """Return the next piece of the body; see HttpResponse.

        Raises:
            BodyTooLarge: the bound is passed.
        """
        piece = b"" if self._left < 0 else await self._inner.receive()
        self._left -= len(piece)
        if self._left < 0:
            raise BodyTooLarge(f"the response is larger than {self._limit} bytes")
        return piece

    async def aclose(self) -> None:
        """Give the connection back; see HttpResponse."""
        await self._inner.aclose()


def _is_above(headers: Mapping[str, str], limit_bytes: int) -> bool:
    length = headers.get("content-length", "")
    return length.isascii() and length.isdecimal() and int(length[:20]) > limit_bytes
