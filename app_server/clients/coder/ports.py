"""Who is at a port: nobody, a server that may be reused, or a stranger.

Source: docs/receiver.md, "Ports".
"""

from enum import Enum
from pathlib import Path

from app_server.clients.connection import NoAppServer, identify

PROBE_S = 5.0
"""For somebody at a port to introduce themselves; a server that has just started loads first."""

CLIENT_NAME = "coder"


class Occupant(Enum):
    """Who is at a port."""

    NOBODY = "nobody"
    OURS = "ours"
    """An app-server of this package with the same home."""
    STRANGER = "stranger"


async def who_is_at(url: str, home: Path) -> Occupant:
    """Ask who is at a port of this machine."""
    try:
        server = await identify(url, CLIENT_NAME, timeout_s=PROBE_S)
    except ConnectionRefusedError:
        return Occupant.NOBODY
    except NoAppServer:
        return Occupant.STRANGER
    is_ours = " app-server/" in str(server["userAgent"])
    return Occupant.OURS if is_ours and _is_home(server, home) else Occupant.STRANGER


async def is_app_server(url: str) -> bool:
    """Whether an app-server answers there, whoever made it."""
    try:
        await identify(url, CLIENT_NAME, timeout_s=PROBE_S)
    except (ConnectionRefusedError, NoAppServer):
        return False
    return True


def _is_home(server: dict[str, object], home: Path) -> bool:
    return server.get("codexHome") == str(home)
