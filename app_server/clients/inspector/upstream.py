"""The server that is inspected: its address, and connections to it.

Source: docs/inspector.md, "Start".
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import connect, unix_connect

from app_server.clients.token_file import token_headers
from app_server.http.loopback_address import is_this_machine

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Of one message, in either direction: as much as the server takes."""

OPEN_S = 10.0
PING_S = 20.0
"""Between pings, and for the pong; then the server counts as gone."""

UNIX = "unix://"


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server on this machine."""

    url: str
    token_file: Path | None = None
    """Has the token that the server wants; None: it wants none."""

    async def connection(self) -> connect:
        """Return a connection to be entered, with the token as it is now.

        Entering raises OSError if nobody listens, and WebSocketException if it is no app-server.

        Raises:
            NoToken: the token file cannot be read.
        """
        options: dict[str, Any] = {
            "additional_headers": await token_headers(self.token_file),
            "compression": None,
            "max_size": MAX_MESSAGE_BYTES,
            "open_timeout": OPEN_S,
            "ping_interval": PING_S,
            "ping_timeout": PING_S,
        }
        if self.url.startswith(UNIX):
            return unix_connect(self.url.removeprefix(UNIX), **options)
        return connect(self.url, proxy=None, **options)


def parse_upstream(url: str, token_file: Path | None = None) -> Upstream:
    """Read the address of a server on this machine, and say where its token is.

    Raises:
        ValueError: it is another machine's, or no such address.
    """
    if url.startswith(UNIX) and len(url) > len(UNIX):
        return Upstream(url, token_file)
    parts = urlsplit(url)
    if parts.scheme != "ws" or not is_this_machine(parts.hostname) or parts.port is None:
        raise ValueError(f"cannot inspect {url!r}: use ws://127.0.0.1:PORT or unix://PATH")
    if parts.username is not None or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"cannot inspect {url!r}: nothing may stand beside host and port")
    return Upstream(url, token_file)
