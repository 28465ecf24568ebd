"""Who may talk to the inspector: pages that it served itself and that know its token. No I/O.

Any page in the user's browser can send requests to a loopback port. `Host` and `Origin` tell ours
from others, and the token the browser that was given the address. Other users of the machine are
refused beside that (run.py).
Source: docs/inspector.md, "Access"; RFC 6454, section 7 (Origin).
"""

import hmac
import secrets
from collections.abc import Sequence

from websockets.datastructures import Headers

PROTOCOL = "app-server-inspector"
"""The WebSocket subprotocol of the page."""

TOKEN_PREFIX = "token."
"""Before the token in `Sec-WebSocket-Protocol`: a page can set no other header of a WebSocket."""

TOKEN_BYTES = 32

HOSTS = ("127.0.0.1", "localhost")


class Access:
    """What the requests of one run of the inspector must have."""

    def __init__(self, port: int) -> None:
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        """Made anew for each run, and known to whoever sees the address that is printed."""
        self._hosts = frozenset(f"{host}:{port}" for host in HOSTS)

    def is_ours(self, header: Headers) -> bool:
        """Whether a request names this machine as its host.

        The name of another site that was made to point at 127.0.0.1 is refused (DNS rebinding).
        """
        return self._one_of(header.get_all("Host"), self._hosts)

    def may_connect(self, header: Headers) -> bool:
        """Whether a WebSocket comes from our page, with our token."""
        origins = frozenset(f"http://{host}" for host in self._hosts)
        return self._one_of(header.get_all("Origin"), origins) and self._has_token(header)

    def _has_token(self, header: Headers) -> bool:
        offered = [
            name.strip()
            for value in header.get_all("Sec-WebSocket-Protocol")
            for name in value.split(",")
        ]
        tokens = [name for name in offered if name.startswith(TOKEN_PREFIX)]
        if PROTOCOL not in offered or len(tokens) != 1:
            return False
        expected = f"{TOKEN_PREFIX}{self.token}"
        return hmac.compare_digest(tokens[0].encode(), expected.encode())

    @staticmethod
    def _one_of(values: Sequence[str], allowed: frozenset[str]) -> bool:
        return len(values) == 1 and values[0].lower() in allowed
