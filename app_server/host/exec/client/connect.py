"""Reaching an exec server: the connection, the handshake, and what can be wrong with either.

Source: docs/environments.md, "Adding an environment", "The exec protocol".
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidMessage,
    InvalidStatus,
    WebSocketException,
)

from app_server.host.exec.client.address import ExecAddress
from app_server.host.exec.client.client import ExecConnection
from app_server.host.exec.protocol import (
    MAX_FRAME_BYTES,
    VERSION,
    ProtocolBroken,
    parse,
    render,
)
from protocol.exec.processes import ExecInitializeParams, ExecInitializeResponse, ExecMessage

CLIENT_NAME = "app-server"

PING_S = 20.0
"""Between pings, and for the pong; then the exec server counts as gone."""

CLOSE_S = 2.0


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follow none: the token was meant for this address."""
        return exc


@asynccontextmanager
async def open_exec_connection(address: ExecAddress) -> AsyncIterator[ExecConnection]:
    """Connect and shake hands; leaving closes the connection.

    Raises:
        ConnectionError: nobody answers there, or not like an exec server.
        TimeoutError: not in time.
        PermissionError: the exec server refuses this client.
    """
    doing = f"failed to connect to exec-server websocket `{address.shown}`"
    try:
        with anyio.fail_after(address.connect_s):
            socket = await _connect(address)
            try:
                await _shake_hands(socket)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await socket.close()
                raise
    except TimeoutError as exc:
        raise TimeoutError(f"{doing}: timed out after {address.connect_s:g} s") from exc
    except InvalidStatus as exc:
        status = exc.response.status_code
        kind = PermissionError if status in (401, 403) else ConnectionError
        raise kind(f"{doing}: HTTP status {status}") from exc
    except ConnectionClosed as exc:
        raise ConnectionError(f"{doing}: {exc}") from exc
    except ProtocolBroken as exc:
        raise PermissionError(f"{doing}: {exc}") from exc
    except (OSError, ValueError, ImportError, WebSocketException) as exc:
        raise ConnectionError(f"{doing}: {_words(exc)}") from exc
    try:
        yield ExecConnection(socket)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
            await socket.close()


async def _connect(address: ExecAddress) -> ClientConnection:
    return await _Connect(
        address.url,
        additional_headers=address.headers,
        user_agent_header=CLIENT_NAME,
        # A loopback address is here, whatever proxy there is.
        proxy=None if address.is_loopback else True,
        compression=None,
        max_size=MAX_FRAME_BYTES,
        open_timeout=None,
        close_timeout=CLOSE_S,
        ping_interval=PING_S,
        ping_timeout=PING_S,
    )


async def _shake_hands(socket: ClientConnection) -> None:
    hello = ExecInitializeParams(protocol_version=VERSION, client_name=CLIENT_NAME)
    await socket.send(render(id=0, method="initialize", params=hello))
    frame = await socket.recv()
    answer = parse(frame) if isinstance(frame, str) else ExecMessage()
    if answer.error is not None or answer.id != 0:
        raise ProtocolBroken("it does not speak this exec protocol")
    try:
        version = ExecInitializeResponse.model_validate(answer.result).protocol_version
    except ValidationError as exc:
        raise ProtocolBroken("it does not speak this exec protocol") from exc
    if version != VERSION:
        raise ProtocolBroken(f"it speaks version {version}, not {VERSION}")


def _words(exc: Exception) -> str:
    """Say what went wrong without the texts of libraries, which repeat URLs as a whole."""
    match exc:
        case ConnectionRefusedError():
            return "connection refused"
        case OSError() if exc.errno is not None and exc.strerror:
            return exc.strerror
        case OSError() if "Connect call failed" in str(exc):
            # All addresses of a name in one text.
            return "connection refused"
        case InvalidMessage():
            return "no answer in HTTP"
        case ImportError():
            return "this proxy needs the Python package python-socks"
        case UnicodeError():
            return "no such host name"
    return type(exc).__name__
