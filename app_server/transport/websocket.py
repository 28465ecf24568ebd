"""WebSocket listeners on TCP and on Unix sockets, and the messages on one WebSocket.

A message is in one frame, a large one in several. `Admission` decides before the upgrade. A message
above the bound closes its socket with 1009, nothing else.
Source: docs/listeners.md; docs/wire.md, "Framing"; RFC 6455, section 5.4.
"""

import asyncio
import http
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from websockets.asyncio.server import Server, ServerConnection, serve, unix_serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, ProtocolError
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from app_server.rpc.message_stream import ClientGone
from app_server.runtime.counted_warnings import warn_counted
from app_server.runtime.http.listening import (
    ASKED_BACKLOG,
    AcceptedSockets,
    CountedConnection,
    lengthen_backlogs,
)
from app_server.runtime.http.loopback_address import is_loopback_address, is_this_machine
from app_server.runtime.http.peer_user import refusal_of_stranger
from app_server.runtime.loader import load
from app_server.transport.address import TcpAddress, UnixAddress, require_protection

if TYPE_CHECKING:
    from app_server.transport.node_tokens import NodeTokens
    from app_server.transport.tokens import TokenGate

logger = logging.getLogger(__name__)

READ_BYTES = 4096
"""Of one read of a socket: several hundred of the smallest frames, which take milliseconds."""
_READ = bytearray(READ_BYTES)
"""What was read last, by whichever connection: it is taken out before the next read."""
MAX_UNSENT_BYTES = 8 * 1024 * 1024
"""Waiting for a client while it is read. Its messages alone are far below: more are pongs, for
which no task waits."""


class JoiningTransport(asyncio.Transport):
    """The transport of a socket, with writes joined on request and reading paused behind a bound.

    While more than `MAX_UNSENT_BYTES` wait to be sent the socket is not read.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._held: list[bytes | bytearray | memoryview] | None = None
        """Written since `hold`, in order; None while writes go out at once."""
        self._most_held = 0
        """Writes: with this one they go out; 0 is no number that is reached."""
        self._is_paused = False
        """By the connection, whose queue of frames is full."""
        self._is_behind = False
        """Above the bound of unsent bytes."""

    def hold_all(self) -> bool:
        """Join writes until `flush`, for a block that does not wait; False if others do already."""
        if self._held is not None:
            return False
        self._held, self._most_held = [], 0
        return True

    def hold(self, count: int) -> None:
        """Join the next `count` writes, or those until the next turn of the event loop.

        They go out with the last one, so that its sender waits for a client that reads slowly.
        """
        if self._held is None:
            self._held, self._most_held = [], count
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what was held."""
        held, self._held = self._held, None
        if held:
            self._write(held[0] if len(held) == 1 else b"".join(held))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write, or hold until `flush`."""
        if self._held is None:
            self._write(data)
            return
        self._held.append(data)
        if len(self._held) == self._most_held:
            self.flush()

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)
        # The transport has paused its protocol far below, so that `writing_resumed` comes.
        if not self._is_behind and self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._is_behind = True
            self._transport.pause_reading()

    def writing_resumed(self) -> None:
        """Resume reading after the bound of unsent bytes was passed; the protocol calls it."""
        if self._is_behind:
            self._is_behind = False
            if not self._is_paused:
                self._transport.resume_reading()

    def pause_reading(self) -> None:
        """Pause reading for the connection."""
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading for the connection, unless too much is unsent."""
        self._is_paused = False
        if not self._is_behind:
            self._transport.resume_reading()

    def is_reading(self) -> bool:
        """Whether the socket is read."""
        return self._transport.is_reading()

    def write_eof(self) -> None:
        """Close the writing end behind what was written."""
        self.flush()
        self._transport.write_eof()

    def can_write_eof(self) -> bool:
        """Whether the writing end can be closed alone."""
        return self._transport.can_write_eof()

    def close(self) -> None:
        """Close behind what was written."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._held = None
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether the transport is closed or being closed."""
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the socket has not taken."""
        return self._transport.get_write_buffer_size() + sum(map(len, self._held or ()))

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the marks between which the protocol may write, low and high."""
        return self._transport.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks at which the protocol's writing is paused and resumed."""
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the socket's transport knows of it."""
        return self._transport.get_extra_info(name, default)


class FlowControlledConnection(CountedConnection, ServerConnection, asyncio.BufferedProtocol):
    """A WebSocket connection with small reads and joined writes, counted from its first byte on."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket over."""
        assert isinstance(transport, asyncio.Transport)
        self._end: asyncio.TimerHandle | None = None
        """Of a client that is to hang up."""
        self._writes = JoiningTransport(transport)
        super().connection_made(self._writes)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return the buffer of the next read."""
        return _READ

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read, and answer its control frames in one write."""
        is_first = self._writes.hold_all()
        try:
            self.data_received(bytes(memoryview(_READ)[:nbytes]))
        finally:
            if is_first:
                self._writes.flush()
        if self.state is State.CLOSING and self._end is None:
            # The library bounds the wait for a client's end only where it sends something itself.
            self._end = self.loop.call_later(self.close_timeout or 0, self._writes.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """Resume writing, and reading where it waited for this."""
        super().resume_writing()
        self._writes.writing_resumed()

    async def send_texts(self, texts: Sequence[str]) -> None:
        """Send messages, one at least, a frame each, in one write.

        Waits while the client reads too little.

        Raises:
            ConnectionClosed: the connection is closed.
        """
        first, *more = texts
        if more:
            self._writes.hold(len(texts))
        try:
            await self.send(first)
            if more:
                async with self.send_context():
                    for text in more:
                        self.protocol.send_text(text.encode())
        finally:
            self._writes.flush()


FRAGMENT_CHARS = 1024 * 1024
"""Of a message in one frame; a longer one is sent in several (RFC 6455, section 5.4)."""


class WebSocketStream:
    """A MessageStream over one WebSocket."""

    def __init__(self, socket: FlowControlledConnection) -> None:
        self.socket = socket
        self.path = "/" if socket.request is None else socket.request.path.partition("?")[0]
        """Which the client has asked for."""
        self._large: dict[anyio.CancelScope, anyio.Event] = {}
        """The messages that are being sent in several frames, each with its end."""

    async def receive(self) -> str:
        """Return the next message; a binary frame is read as text, so that it gets its answer.

        Bytes of it that are no UTF-8 are surrogates, which no JSON can be read from.
        """
        try:
            message = await self.socket.recv(decode=None)
        except ConnectionClosed as exc:
            raise ClientGone from exc
        if isinstance(message, bytes):
            return message.decode(errors="surrogateescape")
        return message

    async def send(self, *texts: str) -> None:
        """Send messages in order, a frame each, in one write; a large one in several frames.

        Cancelling in the middle of a large message leaves a stream that can only be closed.
        """
        small: list[str] = []
        try:
            for text in texts:
                if len(text) <= FRAGMENT_CHARS:
                    small.append(text)
                    continue
                if small:
                    await self.socket.send_texts(small)
                    small.clear()
                await self._send_large(text)
            if small:
                await self.socket.send_texts(small)
        except (ConnectionClosed, ProtocolError) as exc:
            raise anyio.BrokenResourceError from exc

    async def _send_large(self, text: str) -> None:
        with anyio.CancelScope() as scope:
            self._large[scope] = anyio.Event()
            try:
                await self.socket.send(_fragments(text))
            finally:
                self._large.pop(scope).set()
        if scope.cancelled_caught:
            raise anyio.BrokenResourceError

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """Close with a code and a reason, also in a message; closing twice is harmless."""
        # The library has a code of its own for a close while it sends a message.
        for scope, ended in list(self._large.items()):
            scope.cancel()
            await ended.wait()
        await self.socket.close(code, reason)


async def _fragments(text: str) -> AsyncIterator[str]:
    """Give a message in pieces, between which others run."""
    for start in range(0, len(text), FRAGMENT_CHARS):
        yield text[start : start + FRAGMENT_CHARS]
        await asyncio.sleep(0)


HOST_AND_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+))(?::[0-9]{0,5})?")
"""An address of IPv6 in brackets, or a name or an address of IPv4; then a port."""

READY_PATH = "/readyz"
HEALTH_PATHS = frozenset({READY_PATH, "/healthz"})


def always_ready() -> bool:
    """Return True: requests wait until they can be served."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The rules of one listener."""

    tokens: "TokenGate | None" = None
    """Check of clients' tokens; None when clients need none."""
    origins: frozenset[str] = frozenset()
    """Of pages that are let in; with tokens alone."""
    names_this_machine: bool = False
    """Whether `Host` must be a name or an address of this machine."""
    nodes: "NodeTokens | None" = None
    """Check of other nodes' tokens; None where there are none."""
    is_ready: Callable[[], bool] = always_ready
    """Whether new clients should come here, for those who ask before they connect."""

    async def refusal(self, connection: ServerConnection, request: Request) -> Response | None:
        """Return the answer to a request that is no client's; None where it is to be upgraded."""
        if not self._is_allowed_page(request.headers):
            warn_counted(logger, "refused a request with an Origin header")
            return connection.respond(
                http.HTTPStatus.FORBIDDEN, "This server does not talk to web pages.\n"
            )
        if self.names_this_machine and not _names_this_machine(request.headers):
            warn_counted(logger, "refused a request whose Host header is not of this machine")
            return connection.respond(
                http.HTTPStatus.FORBIDDEN,
                "Host must name this machine: localhost, 127.0.0.1 or [::1].\n",
            )
        if request.path == READY_PATH and not self.is_ready():
            return connection.respond(
                http.HTTPStatus.SERVICE_UNAVAILABLE, "This node does not have its lease.\n"
            )
        if request.path in HEALTH_PATHS:
            return connection.respond(http.HTTPStatus.OK, "ok\n")
        accepted = connection.transport.get_extra_info("socket")
        if text := await refusal_of_stranger(accepted):
            return connection.respond(http.HTTPStatus.FORBIDDEN, text)
        if self.nodes is not None and is_of_node(request.headers):
            lets_in = self.nodes.lets_in(request.headers)
        else:
            lets_in = self.tokens is None or await self.tokens.lets_in(request.headers)
        if not lets_in:
            warn_counted(logger, "refused a connection without a token that is accepted")
            response = connection.respond(
                http.HTTPStatus.UNAUTHORIZED, "A bearer token is needed.\n"
            )
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        return None

    def _is_allowed_page(self, headers: Headers) -> bool:
        origins = headers.get_all("Origin")
        # Without a token every page of an allowed origin could have this user's agents run things.
        return not origins or (
            self.tokens is not None and len(origins) == 1 and origins[0] in self.origins
        )


def _names_this_machine(headers: Headers) -> bool:
    """Whether the one `Host` is of this machine.

    A page whose own name was made to lead to this machine has its name there (DNS rebinding).
    """
    hosts = headers.get_all("Host")
    return len(hosts) == 1 and is_this_machine(host_without_port(hosts[0]))


def host_without_port(value: str) -> str | None:
    """Return the host of a `Host` header, without a port and brackets; None: it is none.

    Source: RFC 9110, section 7.2; RFC 3986, section 3.2.
    """
    found = HOST_AND_PORT.fullmatch(value)
    return None if found is None else found[1] or found[2]


Conversation: TypeAlias = Callable[[WebSocketStream], Awaitable[None]]
"""Serves one client to its end: `AppServer.serve_client` (app_server/server/app.py)."""


@dataclass(frozen=True, slots=True)
class WebSocketLimits:
    """Bounds of one listener."""

    max_message_bytes: int = 64 * 1024 * 1024
    """UTF-8 bytes of one incoming message; above it the socket closes with 1009."""
    max_connections: int = 1024
    """Clients at a time; the next one gets 503."""
    max_of_nodes: int = 8192
    """Connections of other nodes, each for one of its clients, beside those; the next gets 503."""
    max_opening: int = 256
    """Sockets beyond that number, for handshakes and refusals; the next one is cut off at once."""
    open_s: float = 10.0
    """For the handshake."""
    close_s: float = 2.0
    """For the closing handshake."""
    ping_s: float = 30.0
    """Between pings of a silent client."""
    pong_s: float = 60.0
    """For a pong; then the client counts as gone."""


SUBPROTOCOL = Subprotocol("app-server")
"""Subprotocol that a page in a browser offers beside its token."""


NODE_SUBPROTOCOL = Subprotocol("app-server.node")
"""Subprotocol that another node of the group offers, for one of its clients."""


def is_of_node(headers: Headers) -> bool:
    """Whether a request says that it comes from another node."""
    offered = ",".join(headers.get_all("Sec-WebSocket-Protocol"))
    return NODE_SUBPROTOCOL in map(str.strip, offered.split(","))


@dataclass(frozen=True, slots=True)
class NodeEntrance:
    """What lets other nodes of the group in, and serves them."""

    tokens: "NodeTokens"
    conversation: Conversation
    """Serves one client of another node to its end."""


class _Listener:
    def __init__(
        self,
        conversation: Conversation,
        limits: WebSocketLimits,
        admission: Admission,
        nodes: NodeEntrance | None = None,
    ) -> None:
        self._conversation = conversation
        self._limits = limits
        self._admission = admission
        self._nodes = nodes
        self._open = 0
        self._open_of_nodes = 0
        most = limits.max_connections + limits.max_opening
        self._accepted = AcceptedSockets(most if nodes is None else most + limits.max_of_nodes)

    async def before_upgrade(
        self, connection: ServerConnection, request: Request
    ) -> Response | None:
        refusal = await self._admission.refusal(connection, request)
        if refusal is not None:
            return refusal
        if self._nodes is not None and is_of_node(request.headers):
            is_full = self._open_of_nodes >= self._limits.max_of_nodes
        else:
            is_full = self._open >= self._limits.max_connections
        if is_full:
            return connection.respond(
                http.HTTPStatus.SERVICE_UNAVAILABLE, "Too many clients; try again later.\n"
            )
        return None

    async def take_socket(self, connection: ServerConnection) -> None:
        assert isinstance(connection, FlowControlledConnection)
        for handshake in (connection.request, connection.response):
            if handshake is not None:
                # 3 KiB that nothing reads any more.
                handshake.headers.clear()
        if self._nodes is not None and connection.subprotocol == NODE_SUBPROTOCOL:
            self._open_of_nodes += 1
            try:
                await self._nodes.conversation(WebSocketStream(connection))
            finally:
                self._open_of_nodes -= 1
            return
        self._open += 1
        try:
            await self._conversation(WebSocketStream(connection))
        finally:
            self._open -= 1

    def select_subprotocol(
        self, _: ServerProtocol, offered: Sequence[Subprotocol]
    ) -> Subprotocol | None:
        if self._nodes is not None and NODE_SUBPROTOCOL in offered:
            return NODE_SUBPROTOCOL
        # A browser gives up where none that it offers is chosen. A token is offered as one, too.
        return SUBPROTOCOL if SUBPROTOCOL in offered else None

    @property
    def options(self) -> dict[str, Any]:
        return {
            "create_connection": partial(FlowControlledConnection, accepted=self._accepted),
            "process_request": self.before_upgrade,
            "select_subprotocol": self.select_subprotocol,
            "max_size": self._limits.max_message_bytes,
            "open_timeout": self._limits.open_s,
            "close_timeout": self._limits.close_s,
            "ping_interval": self._limits.ping_s,
            "ping_timeout": self._limits.pong_s,
            # Compressing small messages on loopback costs more time than it saves.
            "compression": None,
            "server_header": None,
            "backlog": ASKED_BACKLOG,
        }


class OpenListener:
    """A listener that accepts connections."""

    def __init__(self, server: Server, url: str) -> None:
        self.url = url
        """URL for clients, with the bound port."""
        self._server = server

    def stop_accepting(self) -> None:
        """Refuse new connections; open ones continue."""
        self._server.close(close_connections=False)


@asynccontextmanager
async def listen_tcp(
    address: TcpAddress,
    conversation: Conversation,
    limits: WebSocketLimits,
    *,
    tokens: "TokenGate | None" = None,
    origins: frozenset[str] = frozenset(),
    nodes: NodeEntrance | None = None,
    is_ready: Callable[[], bool] = always_ready,
) -> AsyncIterator[OpenListener]:
    """Serve WebSockets on an IP address while the context lasts.

    Other users of this machine are refused (runtime/http/peer_user), with `tokens` clients that
    show none; pages of `origins` may show one. Other nodes are let in by `nodes` alone. `/readyz`
    answers 503 while `is_ready` is false. Leaving closes what is open with 1001.

    Raises:
        OSError: the address cannot be bound.
        ValueError: the address is not a loopback address, and there are no tokens.
    """
    require_protection(address, wants_token=tokens is not None)
    admission = Admission(
        tokens=tokens,
        origins=origins,
        names_this_machine=is_loopback_address(address.host),
        nodes=None if nodes is None else nodes.tokens,
        is_ready=is_ready,
    )
    listener = _Listener(conversation, limits, admission, nodes)
    server = await serve(listener.take_socket, address.host, address.port, **listener.options)
    lengthen_backlogs(server.sockets)
    port = server.sockets[0].getsockname()[1]
    host = f"[{address.host}]" if ":" in address.host else address.host
    async with _closing(server):
        yield OpenListener(server, f"ws://{host}:{port}")


@asynccontextmanager
async def listen_unix(
    address: UnixAddress,
    conversation: Conversation,
    limits: WebSocketLimits,
    *,
    is_ready: Callable[[], bool] = always_ready,
) -> AsyncIterator[OpenListener]:
    """Serve WebSockets on a Unix socket while the context lasts.

    Only the user may connect, not even root. A socket file that a dead server left
    behind is replaced; one that somebody listens on is not.

    Raises:
        OSError: the path cannot be bound, or is in use, or others could put a socket in its place.
        LoadFailed: what makes the socket cannot be imported.
    """
    listener = _Listener(conversation, limits, Admission(is_ready=is_ready))
    path = address.path
    bound = (await load(_binding))(path)
    try:
        server = await unix_serve(listener.take_socket, sock=bound, **listener.options)
        lengthen_backlogs([bound])
    except BaseException:
        bound.close()
        raise
    try:
        async with _closing(server):
            yield OpenListener(server, f"unix://{path}")
    finally:
        path.unlink(missing_ok=True)


def _binding() -> Callable[[Path], socket.socket]:
    from app_server.transport.socket_file import bind_socket

    return bind_socket


@asynccontextmanager
async def _closing(server: Server) -> AsyncIterator[None]:
    try:
        yield
    finally:
        server.close(close_connections=False)
        # All at once: a client that does not answer takes `close_s`, however many there are.
        closing = [connection.close(1001, "the server stops") for connection in server.connections]
        await asyncio.gather(*closing)
        await server.wait_closed()
