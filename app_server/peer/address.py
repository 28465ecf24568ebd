"""Address of an app-server, and WebSockets to it with its token.

Source: docs/listeners.md.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI
from websockets.http11 import Response

from app_server.peer.token_file import TokenWanted, token_headers

UNIX = "unix://"

MAX_REFUSAL_BYTES = 500
"""Of what a server says when it refuses a client."""


def check_server_url(url: str) -> str:
    """Return what names a server: `ws://HOST:PORT`, `wss://HOST` or `unix://PATH`.

    Raises:
        ValueError: it names none; the text says what would, and repeats nothing that may be secret.
    """
    if "@" in url and not url.startswith(UNIX):
        raise ValueError("the address of a server has no user: a token is in a file of its own")
    try:
        parts = urlsplit(url)
        names_server = (
            bool(url.removeprefix(UNIX))
            if url.startswith(UNIX)
            else parts.scheme in ("ws", "wss") and parts.hostname and parts.port != 0
        )
    except ValueError:
        names_server = False
    if not names_server:
        shown = url.partition("?")[0]
        raise ValueError(
            f"{shown!r} is no address of a server: use ws://127.0.0.1:PORT or unix://PATH"
        )
    return url


class HandshakeFailed(ConnectionError):
    """Somebody answers there, and refuses WebSockets."""


class HandshakeRefused(HandshakeFailed):
    """A server does not let this client in; the text says where, and what the server says of it."""

    def __init__(self, url: str, response: Response) -> None:
        said = (response.body or b"")[:MAX_REFUSAL_BYTES].decode(errors="replace")
        super().__init__(f"{url} refuses this client: {' '.join(said.split()) or 'HTTP 403'}")


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server, as its clients reach it."""

    url: str
    """`ws://HOST:PORT` or `unix://PATH`."""
    token_file: Path | None = None
    """Has the token that is shown there; None: none is."""
    pid: int | None = None
    """The process of the server, where it is known."""
    path: str = ""
    """What is asked for there, such as `/acp`."""

    async def connection(self, **options: Any) -> connect:
        """Return a connection to be awaited or entered, with the token as it is now.

        `options` are those of the library. Entering raises OSError if nobody listens, and
        WebSocketException if it is no app-server.

        Raises:
            NoToken: the token file cannot be read.
        """
        # Where another address is named in the answer, the library takes the token out.
        options["additional_headers"] = await token_headers(self.token_file)
        options["compression"] = None
        if self.url.startswith(UNIX):
            uri = f"ws://localhost{self.path or '/'}"
            return unix_connect(self.url.removeprefix(UNIX), uri, **options)
        url = f"{self.url.rstrip('/')}{self.path}" if self.path else self.url
        return connect(url, proxy=None, **options)

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[ClientConnection]:
        """Connect while the context lasts; `options` are those of the library.

        Raises:
            ValueError: this is no such address.
            OSError: nobody listens there, or there is no token in the file; HandshakeFailed;
                TokenWanted, where the server wants another one; HandshakeRefused.
        """
        async with AsyncExitStack() as stack:
            try:
                socket = await stack.enter_async_context(await self.connection(**options))
            except InvalidURI as exc:
                raise ValueError(str(exc)) from exc
            except InvalidHandshake as exc:
                status = exc.response.status_code if isinstance(exc, InvalidStatus) else None
                if status == HTTPStatus.UNAUTHORIZED:
                    raise TokenWanted(self.url, self.token_file) from exc
                if isinstance(exc, InvalidStatus) and status == HTTPStatus.FORBIDDEN:
                    raise HandshakeRefused(self.url, exc.response) from exc
                raise HandshakeFailed(str(exc)) from exc
            yield socket
