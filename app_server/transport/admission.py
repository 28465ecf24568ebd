"""Who is let in: what is looked at in a request before it becomes a WebSocket.

In this order: pages in a browser that nobody allowed, names of other machines, health, other users,
tokens, and whether there is room. A refusal is an HTTP status and a sentence; that of a token says
nothing of what was wrong with it.
Source: docs/listeners.md, "What is looked at".
"""

import http
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from app_server.runtime.counted_warnings import warn_counted
from app_server.runtime.http.loopback_address import is_this_machine
from app_server.runtime.http.peer_user import refusal_of_stranger

if TYPE_CHECKING:
    from app_server.transport.auth.gate import TokenGate

logger = logging.getLogger(__name__)

HOST_AND_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+))(?::[0-9]{0,5})?")
"""An address of IPv6 in brackets, or a name or an address of IPv4; then a port."""

HEALTH_PATHS = frozenset({"/readyz", "/healthz"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The rules of one listener."""

    tokens: "TokenGate | None" = None
    """What accepts the tokens that clients need; None: no client needs one."""
    origins: frozenset[str] = frozenset()
    """Of pages that are let in; with tokens alone."""
    names_this_machine: bool = False
    """Whether `Host` must be a name or an address of this machine."""

    async def refusal(self, connection: ServerConnection, request: Request) -> Response | None:
        """Return the answer to a request that is no client's; None where it is to be upgraded."""
        if not self._is_allowed_page(request.headers):
            warn_counted(logger, "refused a request with an Origin header")
            return connection.respond(
                http.HTTPStatus.FORBIDDEN, "This server does not talk to web pages.\n"
            )
        if self.names_this_machine and not _names_this_machine(request.headers):
            warn_counted(logger, "refused a request whose Host header is not of this machine")
            return connection.respond(
                http.HTTPStatus.FORBIDDEN,
                "Host must name this machine: localhost, 127.0.0.1 or [::1].\n",
            )
        if request.path in HEALTH_PATHS:
            return connection.respond(http.HTTPStatus.OK, "ok\n")
        accepted = connection.transport.get_extra_info("socket")
        if text := await refusal_of_stranger(accepted):
            return connection.respond(http.HTTPStatus.FORBIDDEN, text)
        if self.tokens is not None and not await self.tokens.lets_in(request.headers):
            warn_counted(logger, "refused a connection without a token that is accepted")
            response = connection.respond(
                http.HTTPStatus.UNAUTHORIZED, "A bearer token is needed.\n"
            )
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        return None

    def _is_allowed_page(self, headers: Headers) -> bool:
        origins = headers.get_all("Origin")
        # Without a token every page of an allowed origin could have this user's agents run things.
        return not origins or (
            self.tokens is not None and len(origins) == 1 and origins[0] in self.origins
        )


def _names_this_machine(headers: Headers) -> bool:
    """Whether the one `Host` is of this machine.

    A page whose own name was made to lead to this machine has its name there (DNS rebinding).
    """
    hosts = headers.get_all("Host")
    return len(hosts) == 1 and is_this_machine(host_without_port(hosts[0]))


def host_without_port(value: str) -> str | None:
    """Return the host of a `Host` header, without a port and brackets; None: it is none.

    Source: RFC 9110, section 7.2; RFC 3986, section 3.2.
    """
    found = HOST_AND_PORT.fullmatch(value)
    return None if found is None else found[1] or found[2]
