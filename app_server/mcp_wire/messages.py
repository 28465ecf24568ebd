"""Text to messages.

Source: JSON-RPC 2.0; MCP 2025-06-18, "Messages".
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from app_server.mcp_wire.envelopes import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    jsonrpc_message_adapter,
)
from app_server.mcp_wire.long_lists import LARGE_BYTES, parse_in_pieces
from protocol.jsonrpc.errors import INTERNAL_ERROR
from protocol.jsonrpc.lone_surrogates import read_json
from protocol.model import Json

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Of one message: a line of a process, an event, a response over HTTP. Reading one that has very
many small parts takes 0.1 s, in which nothing else runs."""


@dataclass(frozen=True, slots=True)
class SessionMessage:
    """One message on its way through a transport."""

    message: JSONRPCMessage
    headers: Mapping[str, str] | None = None
    """Headers of HTTP that the message goes with."""


class NoMessage(Exception):
    """The bytes from a server are no JSON-RPC message; the text says why, without quoting them."""


def parse_message(content: bytes | str) -> JSONRPCMessage:
    """Read one message.

    Raises:
        NoMessage: it is not JSON, or no JSON-RPC.
    """
    try:
        # Parsed first: to have it validated while it is parsed takes eight times as long.
        return _message(read_json(content))
    except TypeError:
        # A text with surrogates, which bytes that are no UTF-8 become.
        raise NoMessage("Invalid JSON: not UTF-8") from None
    except ValueError as exc:
        raise NoMessage(f"Invalid JSON: {exc}") from None


async def read_message(content: bytes) -> JSONRPCMessage:
    """Do the same with others running in between, if the message has a long list.

    Raises:
        NoMessage: it is not JSON, or no JSON-RPC.
    """
    value = await parse_in_pieces(content) if len(content) > LARGE_BYTES else None
    return parse_message(content) if value is None else _message(value)


def _message(value: Json) -> JSONRPCMessage:
    try:
        if not isinstance(value, dict):
            raise NoMessage("Input should be an object")
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        message_id = value.get("id")
        is_answer = "method" not in value and isinstance(message_id, int | str)
        if not is_answer or isinstance(message_id, bool):
            raise NoMessage(first["msg"]) from None
        # Whoever waits for this answer learns now that it will not come.
        error = ErrorData(code=INTERNAL_ERROR, message=f"the answer is none: {first['msg']}")
        return JSONRPCError(jsonrpc="2.0", id=message_id, error=error)
