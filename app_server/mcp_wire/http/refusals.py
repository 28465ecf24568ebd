"""HTTP responses with an error status, as JSON-RPC errors.

Source: docs/mcp.md, "Connections".
"""

import re

import httpx2

from app_server.mcp_wire.http.exchange import BodyBroken, HttpResponse, leave, media_type, read_body
from app_server.mcp_wire.http.redirects import shown
from app_server.mcp_wire.messages import ErrorData, JSONRPCError, NoMessage, parse_message
from protocol.jsonrpc.errors import INVALID_REQUEST, METHOD_NOT_FOUND
from protocol.model import JsonObject

UNREACHABLE = -32000
"""Code of the error that stands for a response we did not get."""

SESSION_ENDED = "the server has ended the session"
"""Stands for a 404 to a request in a session: the server has not accepted it."""

MAX_SCOPES = 64
"""That a response may want; one that wants more is a refusal like others."""

_BEARER = re.compile(r"\bbearer\b", re.IGNORECASE)
_LACKING = re.compile(r'\berror="?insufficient_scope\b', re.IGNORECASE)
_SCOPE = re.compile(r'\bscope="([\x21\x23-\x5b\x5d-\x7e ]{0,4096})"', re.IGNORECASE)


def scopes_wanted(response: HttpResponse) -> tuple[str, ...]:
    """Return the scopes that a token lacks for a request, empty if that is not why it is refused.

    Source: RFC 6750, section 3.1; MCP 2026-07-28, "Scope Challenge Handling".
    """
    challenge = response.headers.get("www-authenticate", "") if response.status == 403 else ""
    bearer = _BEARER.search(challenge)
    lacks = bearer is not None and _LACKING.search(challenge, bearer.end())
    found = _SCOPE.search(challenge) if lacks else None
    scopes = tuple(dict.fromkeys(found[1].split())) if found is not None else ()
    return scopes if len(scopes) <= MAX_SCOPES else ()


def stand_in(status: int, message: str) -> ErrorData:
    """Make the error that stands for a response."""
    return ErrorData(code=UNREACHABLE, message=message, data={"status": status})


async def refusal(
    response: HttpResponse, url: httpx2.URL, *, in_session: bool, limit: int
) -> ErrorData:
    """Read a response with a status from 400 on; a JSON-RPC error in its body counts first.

    A body of more than `limit` bytes has none.
    The body does not count with 401, which always wants a sign-in, nor with 404 in a session, nor
    where a token lacks scopes.
    """
    status = response.status
    if status == 404 and in_session:
        await leave(response)
        return stand_in(status, SESSION_ENDED)
    if scopes := scopes_wanted(response):
        await leave(response)
        text = f"HTTP status {status} from {shown(url)}: the sign-in lacks the scopes"
        data: JsonObject = {"status": status, "scopes": list(scopes)}
        return ErrorData(code=UNREACHABLE, message=f"{text} {' '.join(scopes)}", data=data)
    content = b""
    if status != 401 and media_type(response) == "application/json" and not encoding(response):
        try:
            content = await read_body(response, limit)
        except BodyBroken:
            content = b""
    await leave(response)
    found = _error_in(content)
    if found is not None:
        return found
    if status == 404:
        return ErrorData(code=METHOD_NOT_FOUND, message="Not Found")
    return stand_in(status, f"HTTP status {status} from {shown(url)}")


def not_followed(target: httpx2.URL) -> ErrorData:
    """Make the error that stands for a redirect that leads elsewhere."""
    text = f"Redirect to {shown(target)} not followed; use that URL if it is the intended server"
    return ErrorData(code=INVALID_REQUEST, message=text)


def encoding(response: HttpResponse) -> str:
    """Return how a body is encoded, empty if it is not."""
    found = response.headers.get("content-encoding", "").strip().lower()
    return "" if found == "identity" else found


def _error_in(content: bytes) -> ErrorData | None:
    try:
        message = parse_message(content)
    except NoMessage:
        return None
    return message.error if isinstance(message, JSONRPCError) else None
