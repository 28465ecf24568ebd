"""Text to messages.

Source: JSON-RPC 2.0; MCP 2025-06-18, "Messages".
"""

from mcp_types import JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError
from pydantic_core import from_json

from app_server.mcp_wire.long_lists import LARGE_BYTES, parse_in_pieces
from protocol.model import Json


class NoMessage(Exception):
    """What a server sent is no message; the text says why, without quoting it."""


def parse_message(content: bytes | str) -> JSONRPCMessage:
    """Read one message.

    Raises:
        NoMessage: it is not JSON, or no JSON-RPC.
    """
    try:
        # Parsed first: to have it validated while it is parsed takes eight times as long.
        return _message(from_json(content))
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
        raise NoMessage(first["msg"]) from None
