"""The URL of an exec server, and the headers of its handshake. No I/O.

Source: docs/environments.md, "Adding an environment".
"""

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from app_server.runtime.http.loopback_address import is_this_machine

DEFAULT_CONNECT_S = 10.0
MAX_CONNECT_S = 300.0
MIN_CONNECT_S = 0.001

MAX_URL_CHARS = 8192
MAX_HEADER_CHARS = 8192

_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class BadAddress(Exception):
    """An environment that cannot be reached like this; the text says why and holds no secret."""


@dataclass(frozen=True, slots=True)
class ExecAddress:
    """One exec server, as a client named it."""

    url: str = field(repr=False)
    shown: str
    """The URL for texts: without a query, which may hold a secret."""
    is_loopback: bool
    headers: dict[str, str] = field(repr=False)
    connect_s: float = DEFAULT_CONNECT_S
    """For the connection and the handshake."""


def parse_exec_address(
    url: str, token: str | None, request_id: str | None, connect_ms: int | None
) -> ExecAddress:
    """Check the address of an exec server and its headers.

    Raises:
        BadAddress: no `ws://` or `wss://` URL; credentials in it; headers for an address that is
            neither secure nor loopback.
    """
    if not url.strip():
        raise BadAddress("remote environment requires an exec-server url")
    if url == "none":
        raise BadAddress("remote environment cannot use disabled exec-server url")
    scheme, host, shown = _take_apart(url.strip())
    is_loopback = is_this_machine(host)
    headers = {
        **({"Authorization": f"Bearer {token}"} if token is not None else {}),
        **({"X-Request-ID": request_id} if request_id is not None else {}),
    }
    if headers and scheme != "wss" and not is_loopback:
        raise BadAddress("exec-server WebSocket headers require wss:// or a loopback destination")
    for name, value in headers.items():
        if len(value) > MAX_HEADER_CHARS or _HEADER_VALUE.fullmatch(value) is None:
            raise BadAddress(f"invalid value for exec-server WebSocket header `{name.lower()}`")
    connect_s = DEFAULT_CONNECT_S if connect_ms is None else connect_ms / 1000
    bounded_s = min(max(connect_s, MIN_CONNECT_S), MAX_CONNECT_S)
    return ExecAddress(url.strip(), shown, is_loopback, headers, bounded_s)


def _take_apart(url: str) -> tuple[str, str, str]:
    """Return scheme, host, and the URL without its query."""
    wrong = BadAddress("exec-server url must be ws://HOST:PORT or wss://HOST:PORT")
    if len(url) > MAX_URL_CHARS:
        raise BadAddress(f"exec-server url must have at most {MAX_URL_CHARS} characters")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as exc:
        raise wrong from exc
    if parts.scheme not in ("ws", "wss") or not parts.hostname or parts.fragment:
        raise wrong
    if re.search(r"[\s\x00-\x1f]", url):
        raise wrong
    if "@" in parts.netloc:
        raise BadAddress("exec-server url must not hold credentials; use authBearerToken")
    return parts.scheme, parts.hostname, f"{parts.scheme}://{parts.netloc}{parts.path}"
