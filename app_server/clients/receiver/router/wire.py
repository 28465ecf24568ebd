"""The frames between a bridge and a router: one JSON object a message. No I/O.

Source: docs/receiver.md, "The session stream".
"""

from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from pydantic_core import from_json, to_json

from app_server.runtime.http.loopback_address import is_this_machine
from protocol.model import Json, JsonObject

MAX_SENT_FRAME_BYTES = 1024 * 1024
"""Of a bridge to the router."""

MAX_FRAME_BYTES = 8 * 1024 * 1024
"""Of the router to a bridge: what is too large for a signal has to be read to be refused."""

KEY_VARIABLE = "PRISM_API_KEY"
URL_VARIABLE = "PRISM_ROUTER_URL"
SESSION_VARIABLE = "PRISM_SESSION"

REPLACED = 4001
"""Close code: another bridge has taken over the session."""


@dataclass(frozen=True, slots=True)
class RouterAddress:
    """URL of the stream of one session, and its key."""

    url: str
    """`ws://` on this machine, `wss://` elsewhere; without the session."""
    session: str
    key: str = field(repr=False)

    def stream_url(self, cursor: str | None) -> str:
        """Return the URL of the stream behind a cursor; the key is not in it."""
        since = "" if cursor is None else f"?since={quote(cursor, safe='')}"
        return f"{self.url.rstrip('/')}/sessions/{quote(self.session, safe='')}/stream{since}"

    @property
    def is_loopback(self) -> bool:
        """Whether the router is on this machine."""
        return is_this_machine(urlsplit(self.url).hostname)


def check_router_url(url: str) -> str:
    """Return a URL of a router.

    Raises:
        ValueError: it would send the key in the clear, or holds more than a place.
    """
    try:
        parts = urlsplit(url)
        is_router = parts.scheme in ("ws", "wss") and parts.hostname and parts.port != 0
    except ValueError:
        is_router = False
    if not is_router:
        raise ValueError("a router has a URL of the form wss://HOST/PATH")
    if parts.scheme == "ws" and not is_this_machine(parts.hostname):
        raise ValueError("ws:// would send the key in the clear: use wss://")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("the URL of a router holds no names, keys or queries")
    return url


def parse_frame(text: str | bytes) -> JsonObject | None:
    """Parse a frame; None for an invalid one."""
    try:
        frame = from_json(text)
    except ValueError:
        return None
    return frame if isinstance(frame, dict) else None


def render_frame(kind: str, **members: Json) -> str:
    """Write a frame."""
    return to_json({"type": kind, **members}).decode()
