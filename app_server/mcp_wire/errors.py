"""The exceptions of connections to MCP servers, with their texts."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from protocol.jsonrpc.errors import INVALID_PARAMS
from protocol.model import Json

ProgressCallback: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
"""Progress so far, its total if known, a message if there is one."""


class McpError(Exception):
    """A server or a call failed."""


class TransportClosed(McpError):
    """The server ended while, or before, it was called."""

    def __init__(self) -> None:
        super().__init__("Transport closed")


class EndedByQuestion(TransportClosed):
    """The server ended when it was asked for its revisions, before it said anything."""


class ServerNotReading(McpError):
    """The server runs, but does not read what it is sent."""


class RequestTimedOut(McpError):
    """The server did not answer in time."""

    def __init__(self, method: str, timeout_s: float) -> None:
        super().__init__(f"timed out awaiting {method} after {timeout_s:g}s")


class PeerError(McpError):
    """The server answered with a JSON-RPC error, or one stands for an answer that did not come."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class RequestRefused(McpError):
    """A request of the server is answered with this error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class BadQuestion(RequestRefused):
    """A question of the server that cannot be asked; the text is what the server is answered."""

    def __init__(self, message: str) -> None:
        super().__init__(INVALID_PARAMS, message)


class NoCredential(McpError):
    """The token for a request is unavailable now; the text holds no secret."""
