"""The inspector's own port: files of the page, and its WebSockets.

Source: docs/inspector.md, "Access".
"""

import contextlib
import http
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from app_server.clients.address import ServerAddress
from app_server.clients.inspector.access import PROTOCOL, Access
from app_server.clients.inspector.relay import relay
from app_server.clients.inspector.site import HEADER, File, content_security_policy, read_site
from app_server.clients.inspector.upstream import MAX_MESSAGE_BYTES
from app_server.runtime.counted_warnings import warn_counted
from app_server.runtime.http.counted_sockets import AcceptedSockets, CountedConnection
from app_server.runtime.http.peer_user import refusal_of_stranger

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
WIRE = "/wire"
"""Where the page opens its WebSocket."""

MAX_PAGES = 8
"""WebSockets of pages at a time; the next one gets 503."""
MAX_SOCKETS = 128
"""At a time, also those of requests for files and those that ask for nothing; the next one is cut
off at once."""
OPEN_S = 10.0
"""For a request to come."""
CLOSE_S = 2.0


@dataclass(frozen=True, slots=True)
class Inspector:
    """An inspector that serves."""

    port: int
    token: str

    @property
    def url(self) -> str:
        """What to open in a browser; the fragment with the token is not sent to anybody."""
        return f"http://{HOST}:{self.port}/#token={self.token}"


@asynccontextmanager
async def serve_inspector(upstream: ServerAddress, port: int = 0) -> AsyncIterator[Inspector]:
    """Serve the page while the context lasts; port 0 lets the system choose.

    Reads the files of the page first, a few hundred kilobytes.

    Raises:
        OSError: the port is taken.
    """
    site = await anyio.to_thread.run_sync(read_site)
    with contextlib.closing(socket.create_server((HOST, port))) as listener:
        bound: int = listener.getsockname()[1]
        access = Access(bound)
        pages = _Pages(upstream, site, access, content_security_policy(bound))
        # The library wants a class, and calls it to make a connection.
        connection: Any = partial(_Connection, accepted=AcceptedSockets(MAX_SOCKETS))
        async with serve(
            pages.converse,
            sock=listener,
            create_connection=connection,
            process_request=pages.before_upgrade,
            subprotocols=[Subprotocol(PROTOCOL)],
            max_size=MAX_MESSAGE_BYTES,
            open_timeout=OPEN_S,
            close_timeout=CLOSE_S,
            compression=None,
            server_header=None,
        ):
            yield Inspector(bound, access.token)


class _Pages:
    def __init__(
        self, upstream: ServerAddress, site: Mapping[str, File], access: Access, policy: str
    ) -> None:
        self._upstream = upstream
        self._site = site
        self._access = access
        self._policy = policy
        self._open = 0

    async def before_upgrade(
        self, connection: ServerConnection, request: Request
    ) -> Response | None:
        if not self._access.is_ours(request.headers):
            return _refuse(http.HTTPStatus.FORBIDDEN)
        if text := await refusal_of_stranger(connection.transport.get_extra_info("socket")):
            return _response(
                http.HTTPStatus.FORBIDDEN, "text/plain; charset=utf-8", text.encode(), HEADER
            )
        path = request.path.partition("?")[0]
        if path != WIRE:
            return self._file(path)
        if not self._access.may_connect(request.headers):
            warn_counted(logger, "refused a WebSocket without the page's origin and token")
            return _refuse(http.HTTPStatus.FORBIDDEN)
        if self._open >= MAX_PAGES:
            return _refuse(http.HTTPStatus.SERVICE_UNAVAILABLE)
        return None

    async def converse(self, connection: ServerConnection) -> None:
        if self._open >= MAX_PAGES:
            # Others came while this one shook hands.
            await connection.close(CloseCode.TRY_AGAIN_LATER)
            return
        self._open += 1
        try:
            await relay(connection, self._upstream)
        finally:
            self._open -= 1

    def _file(self, path: str) -> Response:
        file = self._site.get(path)
        if file is None:
            return _refuse(http.HTTPStatus.NOT_FOUND)
        header = (*HEADER, ("Content-Security-Policy", self._policy))
        return _response(http.HTTPStatus.OK, file.media_type, file.content, header)


class _Connection(CountedConnection, ServerConnection):
    pass


def _refuse(status: http.HTTPStatus) -> Response:
    return _response(status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode(), HEADER)


def _response(
    status: http.HTTPStatus,
    media_type: str,
    content: bytes,
    header: tuple[tuple[str, str], ...],
) -> Response:
    fields = Headers(header)
    fields["Content-Type"] = media_type
    fields["Content-Length"] = str(len(content))
    fields["Connection"] = "close"
    return Response(status, status.phrase, fields, content)
