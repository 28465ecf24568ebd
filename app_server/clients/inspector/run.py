"""Port of the inspector: access to it, files of the page, and relays between page and server.

Any page in the user's browser can send requests to a loopback port. `Host` and `Origin` tell ours
from others, and the token the browser that was given the address; other users are refused beside
that. The page loads nothing from elsewhere, runs no script that is not a file of its own, and makes
no HTML from text: its Content-Security-Policy says so. A relay reads each side as fast as the other
one takes what was read, and keeps nothing.

Source: docs/inspector.md, "Access".
"""

import contextlib
import hmac
import http
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from pydantic_core import to_json
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from app_server.clients.inspector.upstream import MAX_MESSAGE_BYTES, connection_to
from app_server.peer.address import ServerAddress
from app_server.peer.token_file import NoToken
from app_server.runtime.counted_warnings import warn_counted
from app_server.runtime.http.listening import AcceptedSockets, CountedConnection
from app_server.runtime.http.peer_user import refusal_of_stranger
from protocol.contract.methods import METHODS

PROTOCOL = "app-server-inspector"
"""The WebSocket subprotocol of the page."""

TOKEN_PREFIX = "token."
"""Before the token in `Sec-WebSocket-Protocol`: a page can set no other header of a WebSocket."""

TOKEN_BYTES = 32

HOSTS = ("127.0.0.1", "localhost")


class Access:
    """Requirements for requests to one run of the inspector."""

    def __init__(self, port: int) -> None:
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        """Token of this run; the printed address contains it."""
        self._hosts = frozenset(f"{host}:{port}" for host in HOSTS)

    def is_ours(self, header: Headers) -> bool:
        """Whether a request names this machine as its host.

        The name of another site that was made to point at 127.0.0.1 is refused (DNS rebinding).
        """
        return self._one_of(header.get_all("Host"), self._hosts)

    def may_connect(self, header: Headers) -> bool:
        """Whether a WebSocket comes from our page, with our token."""
        origins = frozenset(f"http://{host}" for host in self._hosts)
        return self._one_of(header.get_all("Origin"), origins) and self._has_token(header)

    def _has_token(self, header: Headers) -> bool:
        offered = [
            name.strip()
            for value in header.get_all("Sec-WebSocket-Protocol")
            for name in value.split(",")
        ]
        tokens = [name for name in offered if name.startswith(TOKEN_PREFIX)]
        if PROTOCOL not in offered or len(tokens) != 1:
            return False
        expected = f"{TOKEN_PREFIX}{self.token}"
        return hmac.compare_digest(tokens[0].encode(), expected.encode())

    @staticmethod
    def _one_of(values: Sequence[str], allowed: frozenset[str]) -> bool:
        return len(values) == 1 and values[0].lower() in allowed


PAGE = Path(__file__).parent / "page"

INDEX = "index.html"

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Media types of served files by suffix; other files are not served."""

METHOD_NAMES = "/methods.json"
"""A list of the methods of servers, to complete what the user types."""

HEADER = (
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)


@dataclass(frozen=True, slots=True)
class File:
    """One file of the page."""

    media_type: str
    content: bytes


def read_site() -> Mapping[str, File]:
    """Read all files of the page, by the path in their address.

    They are part of this package, some hundred kilobytes. It reads files: call it before serving.
    """
    paths = sorted(path for path in PAGE.rglob("*") if path.suffix in TYPES)
    site = {
        f"/{path.relative_to(PAGE).as_posix()}": File(TYPES[path.suffix], path.read_bytes())
        for path in paths
    }
    methods = File("application/json", to_json(sorted(METHODS)))
    return {"/": site[f"/{INDEX}"], METHOD_NAMES: methods, **site}


def content_security_policy(port: int) -> str:
    """Return the policy of a page that is served on this port of the loopback address."""
    sockets = f"ws://127.0.0.1:{port} ws://localhost:{port}"
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            # Images of messages come in them.
            "img-src 'self' data:",
            # Browsers differ in whether 'self' has WebSockets of the same host.
            f"connect-src 'self' {sockets}",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


NO_SERVER = 4001
"""Close code for the page: no server answers at the address."""
SERVER_CLOSED = 4002
"""Close code for the page: the server ended the connection."""
REFUSED = 4003
"""Close code for the page: the server refuses the inspector, or its token cannot be read."""

MAX_REASON_BYTES = 123
"""Of a close frame."""


async def relay(page: ServerConnection, upstream: ServerAddress) -> None:
    """Connect to the server, and pass frames until one side has gone; then close the page."""
    try:
        async with await connection_to(upstream) as server:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_pass, page, server, tasks.cancel_scope)
                tasks.start_soon(_pass, server, page, tasks.cancel_scope)
            code, reason = server.close_code, server.close_reason or ""
    except InvalidStatus as exc:
        await page.close(REFUSED, f"the server answers with HTTP {exc.response.status_code}")
    except NoToken as exc:
        await page.close(REFUSED, _shortened(str(exc)))
    except (OSError, WebSocketException):
        await page.close(NO_SERVER, "no server answers")
    else:
        # Without an effect where the page has gone first.
        await page.close(SERVER_CLOSED, _shortened(f"{code} {reason}".strip()))


def _shortened(reason: str) -> str:
    """Cut a text so that a close frame has room for it (RFC 6455, section 5.5)."""
    return reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")


async def _pass(source: Connection, sink: Connection, both: anyio.CancelScope) -> None:
    try:
        while True:
            # Whole messages of text, which need not be decoded to be passed on.
            await sink.send(await source.recv(decode=False), text=True)
    except ConnectionClosed:
        both.cancel()


logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
WIRE = "/wire"
"""Path of the page's WebSocket."""

MAX_PAGES = 8
"""WebSockets of pages at a time; the next one gets 503."""
MAX_SOCKETS = 128
"""Bound on sockets at a time, also of requests for files and idle ones; the next one is cut
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
        """URL to open in a browser; the fragment with the token stays in the browser."""
        return f"http://{HOST}:{self.port}/#token={self.token}"


@asynccontextmanager
async def serve_inspector(
    upstream: ServerAddress, port: int = 0, *, max_sockets: int = MAX_SOCKETS
) -> AsyncIterator[Inspector]:
    """Serve the page while the context lasts; port 0 lets the system choose.

    Of more than `max_sockets` connections the next one is cut off at once.
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
        connection: Any = partial(_Connection, accepted=AcceptedSockets(max_sockets))
        async with serve(
            pages.relay_socket,
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

    async def relay_socket(self, connection: ServerConnection) -> None:
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
