"""The URL, session id and headers of every request of one connection.

Source: MCP 2025-06-18, "Session Management", "Protocol Version Header".
"""

import base64
from collections.abc import Mapping

import httpx2

from app_server.mcp_wire.http.exchange import HttpRequest
from app_server.mcp_wire.revisions import STATELESS, VERSION_HEADER
from protocol.server.lifecycle import PROTOCOL_VERSION

SESSION_HEADER = "mcp-session-id"

ACCEPTED = "application/json, text/event-stream"

OURS = ("connection", "content-length", "te", "trailer", "transfer-encoding", "upgrade")
"""Header names of framing and of the connection, which a configuration may not set."""


class Session:
    """Makes the requests of one connection."""

    id: str | None
    """As the server gave it; None if it does without, or has not given one yet."""
    version: str | None
    """As it was agreed; None before that."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """Take a server's address, and headers for every request.

        Credentials in the URL become a header, unless there is one.

        Raises:
            httpx2.InvalidURL, ValueError: that makes no sense. The text has no values of headers.
        """
        given = httpx2.URL(url)
        if given.scheme not in ("http", "https") or not given.host:
            raise ValueError("its url is not an http URL")
        self.id = None
        self.version = None
        self.url = given.copy_with(userinfo=b"", fragment=None)
        self._headers = {
            **({"authorization": _basic(given)} if given.userinfo else {}),
            **{name.lower(): _checked(name, value) for name, value in headers.items()},
            "accept-encoding": "identity",
            "user-agent": f"app-server-mcp-client/{PROTOCOL_VERSION}",
        }

    @property
    def is_stateless(self) -> bool:
        """Whether the revision is one where a closed response cancels, and is not taken up."""
        return self.version == STATELESS

    def post(
        self, message: bytes, more: Mapping[str, str] | None = None, *, in_session: bool = True
    ) -> HttpRequest:
        """Make the request that brings a message; headers of every request win over `more`."""
        headers = {
            **(more or {}),
            **self._headers,
            "accept": ACCEPTED,
            "content-type": "application/json",
        }
        return self._request("POST", headers, message, in_session=in_session)

    def get(self, last_id: bytes = b"") -> HttpRequest:
        """Make the request for a stream of events, after the event with an id."""
        headers = {
            **self._headers,
            "accept": "text/event-stream",
            "cache-control": "no-store",
        }
        if last_id:
            headers["last-event-id"] = last_id.decode("latin-1")
        return self._request("GET", headers)

    def delete(self) -> HttpRequest:
        """Make the request that ends the session."""
        return self._request("DELETE", {**self._headers, "accept": ACCEPTED})

    def _request(
        self, method: str, headers: dict[str, str], body: bytes = b"", *, in_session: bool = True
    ) -> HttpRequest:
        if in_session:
            if self.id is not None:
                headers[SESSION_HEADER] = self.id
            if self.version is not None:
                headers[VERSION_HEADER] = self.version
        return HttpRequest(method, self.url, headers, body)


def _basic(url: httpx2.URL) -> str:
    return "Basic " + base64.b64encode(f"{url.username}:{url.password}".encode()).decode()


def _checked(name: str, value: str) -> str:
    if name.lower() in OURS:
        raise ValueError(f"the header {name!r} is not for the configuration to set")
    if not (name.isascii() and name.isprintable() and value.isascii() and value.isprintable()):
        raise ValueError(f"the header {name!r} has characters that HTTP does not know")
    return value
