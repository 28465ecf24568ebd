"""A port on this machine that a browser is sent back to, and pages for it.

Knows no sign-in. Speaks just as much HTTP as a browser's GET needs.
Source: OAuth 2.1, section 8.4.2 (loopback redirection).
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc

from app_server.runtime.http.peer_user import refusal_of_stranger

MAX_HEAD_BYTES = 16 * 1024
"""Bytes of one request; all that matters is in its first line."""

HEAD_S = 10.0
"""For a request to come, and for a page to go."""

MAX_VISITORS = 16
"""Requests at the same time; more wait."""

STRANGER_S = 1.0
"""For the request of another user. As many as visitors have it; others are closed at once."""

_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
    "<p>{title}</p><p>You can close this window.</p></html>"
)


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a browser."""

    method: str
    path: str
    query: Mapping[str, str] = field(repr=False)
    """The first value of each name."""


@dataclass(frozen=True, slots=True)
class Page:
    """Page or redirect for the browser."""

    status: HTTPStatus
    title: str
    """Plain text without `<` and `&`."""
    location: str | None = None
    """URL that the browser is redirected to."""
    then: Callable[[], None] | None = None
    """Called when the page has been sent, or could not be."""


Host: TypeAlias = Callable[[Visit], Awaitable[Page]]
"""Decides what a visitor is shown; takes the time that it needs."""


class LoopbackListener:
    """A port on 127.0.0.1."""

    def __init__(self, listener: anyio.abc.Listener[anyio.abc.SocketStream], port: int) -> None:
        self._listener = listener
        self.port = port
        self._room = anyio.Semaphore(MAX_VISITORS)
        self._strangers = anyio.Semaphore(MAX_VISITORS)

    @classmethod
    async def open(cls, port: int) -> "LoopbackListener":
        """Listen on a port; 0 takes any free one.

        Raises:
            OSError: the port is taken.
        """
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
        return cls(listener, listener.extra(anyio.abc.SocketAttribute.local_port))

    async def serve(self, host: Host) -> None:
        """Show the page of `host` to this user, and a refusal to others.

        Ends when it is cancelled.
        """

        async def receive(stream: anyio.abc.SocketStream) -> None:
            async with stream:
                # Before a visitor has said all, and closed its end.
                accepted = stream.extra(anyio.abc.SocketAttribute.raw_socket)
                if refusal := await refusal_of_stranger(accepted):
                    await self._refuse(stream, refusal)
                    return
                async with self._room:
                    # Somebody who went away, or no browser; TimeoutError is an OSError.
                    try:
                        with anyio.fail_after(HEAD_S):
                            visit = _read_visit(await _read_head(stream))
                    except (OSError, ValueError, anyio.BrokenResourceError):
                        return
                    page = await host(visit)
                    try:
                        await _send(stream, page)
                    finally:
                        if page.then is not None:
                            page.then()

        await self._listener.serve(receive)

    async def _refuse(self, stream: anyio.abc.SocketStream, refusal: str) -> None:
        """Show a stranger why; there is less room and time, and none of the browser's."""
        with suppress(OSError, anyio.BrokenResourceError, anyio.WouldBlock):
            self._strangers.acquire_nowait()
            try:
                with anyio.fail_after(STRANGER_S):
                    await _read_head(stream)
                await _send(stream, Page(HTTPStatus.FORBIDDEN, refusal.rstrip()))
            finally:
                self._strangers.release()

    async def aclose(self) -> None:
        """Give the port back."""
        await self._listener.aclose()


async def _send(stream: anyio.abc.SocketStream, page: Page) -> None:
    """Send a page to a browser that may have disconnected."""
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        with anyio.fail_after(HEAD_S):
            await stream.send(_render(page))
            await stream.send_eof()


async def _read_head(stream: anyio.abc.SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < MAX_HEAD_BYTES:
        try:
            head += await stream.receive()
        except anyio.EndOfStream:
            break
    return head


def _read_visit(head: bytes) -> Visit:
    method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
    target = urlsplit(rest.rpartition(" ")[0])
    return Visit(
        method, target.path, {key: all_[0] for key, all_ in parse_qs(target.query).items()}
    )


def _render(page: Page) -> bytes:
    content = _PAGE.format(title=page.title).encode()
    location = "" if page.location is None else f"location: {page.location}\r\n"
    return (
        f"HTTP/1.1 {page.status} {page.status.phrase}\r\n{location}"
        f"content-type: text/html; charset=utf-8\r\n"
        f"content-length: {len(content)}\r\ncache-control: no-store\r\n"
        "content-security-policy: default-src 'none'\r\nreferrer-policy: no-referrer\r\n"
        "connection: close\r\n\r\n"
    ).encode() + content
