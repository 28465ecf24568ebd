"""The server that is inspected: its address, and connections to it.

Source: docs/inspector.md, "Start".
"""

from pathlib import Path
from urllib.parse import urlsplit

from websockets.asyncio.client import connect

from app_server.peer.address import UNIX, ServerAddress
from app_server.runtime.http.loopback_address import is_this_machine

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Of one message, in either direction: as much as the server takes."""

OPEN_S = 10.0
PING_S = 20.0
"""Between pings, and for the pong; then the server counts as gone."""


async def connection_to(server: ServerAddress) -> connect:
    """Return a connection to be entered; raises as `ServerAddress.connection`."""
    return await server.connection(
        max_size=MAX_MESSAGE_BYTES, open_timeout=OPEN_S, ping_interval=PING_S, ping_timeout=PING_S
    )


def parse_upstream(url: str, token_file: Path | None = None) -> ServerAddress:
    """Read the address of a server on this machine, and say where its token is.

    Raises:
        ValueError: it is another machine's, or no such address.
    """
    if url.startswith(UNIX) and len(url) > len(UNIX):
        return ServerAddress(url, token_file)
    parts, shown = urlsplit(url), url.partition("?")[0]
    if parts.scheme != "ws" or not is_this_machine(parts.hostname) or parts.port is None:
        raise ValueError(f"cannot inspect {shown!r}: use ws://127.0.0.1:PORT or unix://PATH")
    if parts.username is not None or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"cannot inspect {shown!r}: nothing may stand beside host and port")
    return ServerAddress(url, token_file)
