"""Who is at a port: nobody, a server that may be reused, or a stranger.

Source: docs/receiver.md, "Ports".
"""

from enum import Enum
from pathlib import Path

import anyio
import anyio.to_thread

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


async def who_is_at(url: str, home: Path, token_file: Path | None = None) -> Occupant:
    """Ask who is at a port of this machine, with a token if there is one in the file."""
    # A server that is going to be started has not written it yet.
    has_token = token_file is not None and await anyio.to_thread.run_sync(token_file.exists)
    shown = token_file if has_token else None
    try:
        server = await identify(url, CLIENT_NAME, timeout_s=PROBE_S, token_file=shown)
    except ConnectionRefusedError:
        return Occupant.NOBODY
    except NoAppServer:
        return Occupant.STRANGER
    is_ours = " app-server/" in str(server["userAgent"]) and server.get("codexHome") == str(home)
    return Occupant.OURS if is_ours else Occupant.STRANGER


async def is_app_server(url: str, token_file: Path | None = None) -> bool:
    """Whether an app-server answers there, whoever made it."""
    try:
        await identify(url, CLIENT_NAME, timeout_s=PROBE_S, token_file=token_file)
    except (ConnectionRefusedError, NoAppServer):
        return False
    return True
