"""Token check of a listener.

Programs send a token as `Authorization: Bearer TOKEN`. A page in a browser cannot set headers of a
WebSocket; it offers the subprotocols `app-server` and `bearer.TOKEN`, of which the server chooses
the first.
Source: RFC 6750, section 2.1; RFC 6455, section 1.9; docs/listeners.md, "Tokens".
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from app_server.transport.auth.tokens import RotatedCheck, TokenCheck

BEARER_SUBPROTOCOL = "bearer."


class Headers(Protocol):
    """The headers of a request."""

    def get_all(self, key: str) -> list[str]:
        """Return the values of all headers of a name, in whatever letter case."""
        ...


class TokenGate:
    """Lets in who shows one token that one of the checks accepts."""

    def __init__(
        self, checks: Sequence["TokenCheck"], changing: Sequence["RotatedCheck"] = ()
    ) -> None:
        self._checks = checks
        self._changing = changing

    async def lets_in(self, headers: Headers) -> bool:
        """Whether a request may become a connection."""
        token = presented_token(headers)
        if token is None:
            return False
        checks = [*self._checks, *[await each.current() for each in self._changing]]
        return any(check.accepts(token) for check in checks)


def presented_token(headers: Headers) -> str | None:
    """Return the one token of a request; None if there is none, or more than one.

    Of two, a proxy may have looked at the other one.
    """
    shown = [_of_header(value) for value in headers.get_all("Authorization")]
    offered = ",".join(headers.get_all("Sec-WebSocket-Protocol"))
    shown += [
        name.removeprefix(BEARER_SUBPROTOCOL)
        for name in map(str.strip, offered.split(","))
        if name.startswith(BEARER_SUBPROTOCOL)
    ]
    return shown[0] if len(shown) == 1 and shown[0] else None


def _of_header(value: str) -> str | None:
    scheme, _, token = value.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
