"""HTTP responses with an error status, as JSON-RPC errors.

Source: docs/mcp.md, "Connections".
"""

import httpx2

from app_server.mcp_wire.http.exchange import BodyBroken, HttpResponse, leave, media_type, read_body
from app_server.mcp_wire.http.redirects import shown
from app_server.mcp_wire.messages import ErrorData, JSONRPCError, NoMessage, parse_message
from protocol.jsonrpc.errors import INVALID_REQUEST, METHOD_NOT_FOUND

UNREACHABLE = -32000
"""Code of the error that stands for a response we did not get."""

SESSION_ENDED = "the server has ended the session"
"""Stands for a 404 to a request in a session: the server has not accepted it."""


def stand_in(status: int, message: str) -> ErrorData:
    """Make the error that stands for a response."""
    return ErrorData(code=UNREACHABLE, message=message, data={"status": status})


async def refusal(
    response: HttpResponse, url: httpx2.URL, *, in_session: bool, limit: int
) -> ErrorData:
    """Read a response with a status from 400 on; a JSON-RPC error in its body counts first.

    A body of more than `limit` bytes has none.
    The body does not count with 401, which always wants a sign-in, nor with 404 in a session.
    """
    status = response.status
    if status == 404 and in_session:
        await leave(response)
        return stand_in(status, SESSION_ENDED)
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
