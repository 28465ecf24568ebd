"""Environment variables that describe an agent's app-server, and their values.

Source: docs/receiver.md, "The app-server".
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from app_server.runtime.http.loopback_address import is_this_machine

SURFACE_VARIABLE = "PRISM_AGENT_SURFACE"
MODE_VARIABLE = "PRISM_CODEX_APP_SERVER_MODE"
URL_VARIABLE = "PRISM_CODEX_APP_SERVER_URL"
THREAD_VARIABLE = "PRISM_CODEX_THREAD_ID"

SURFACE = "codex"
"""Value of the first variable where there may be an app-server."""

AppServerMode: TypeAlias = Literal["off", "local", "auto"]
MODES: Mapping[str, AppServerMode] = {"off": "off", "local": "local", "auto": "auto"}


def check_url(url: str) -> str:
    """Return a URL of an app-server on this machine.

    Raises:
        ValueError: it is of another machine, or no such URL; the text does not repeat it.
    """
    if url.startswith("unix://") and len(url) > len("unix://"):
        return url
    try:
        parts = urlsplit(url)
        is_here = parts.scheme == "ws" and is_this_machine(parts.hostname) and parts.port != 0
    except ValueError:
        is_here = False
    if not is_here:
        raise ValueError("an app-server is reached by ws://127.0.0.1:PORT or unix://PATH alone")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("the URL of an app-server has a host and a port, and nothing else")
    return url
