"""The app-server of an agent: on this machine alone, with the token that it wants.

Source: docs/receiver.md, "The app-server".
"""

from pathlib import Path
from urllib.parse import urlsplit

from websockets.exceptions import WebSocketException

from app_server.clients.address import ServerAddress
from app_server.clients.app_connection import AppConnection, ConnectionLost
from app_server.clients.token_file import NoToken
from app_server.http.loopback_address import is_this_machine

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
CLOSE_S = 1.0
PING_S = 20.0
"""Between pings, and for the pong; then the server counts as gone."""


def check_url(url: str) -> str:
    """Return a URL of an app-server on this machine.

    Raises:
        ValueError: it is of another machine, or no such URL; the text does not repeat it.
    """
    if url.startswith("unix://") and len(url) > len("unix://"):
        return url
    parts = urlsplit(url)
    if parts.scheme != "ws" or not is_this_machine(parts.hostname):
        raise ValueError("an app-server is reached by ws://127.0.0.1:PORT or unix://PATH alone")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("the URL of an app-server has a host and a port, and nothing else")
    return url


async def connect_app(url: str, token_file: Path | None = None) -> AppConnection:
    """Connect, without shaking hands; callers set the deadline.

    Raises:
        ValueError: the URL is of another machine, or there is no token in the file.
        ConnectionLost: nobody answers there.
    """
    try:
        connection = await ServerAddress(check_url(url), token_file).connection(
            max_size=MAX_MESSAGE_BYTES,
            open_timeout=None,
            close_timeout=CLOSE_S,
            ping_interval=PING_S,
            ping_timeout=PING_S,
        )
        return AppConnection(await connection)
    except NoToken as exc:
        raise ValueError(str(exc)) from exc
    except (OSError, WebSocketException) as exc:
        raise ConnectionLost from exc
