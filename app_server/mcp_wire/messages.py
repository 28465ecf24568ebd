"""The four messages of JSON-RPC 2.0, as MCP has them, and how they are read from text.

The SDK's package of types has them too, beside those of every method and version of MCP: to import
it takes a third of a second, which the first list of tools would wait for.

Long lists are parsed in pieces: 4,000 tools at once block the event loop for 10 ms. A list is cut
where an object ends and another one begins. What stands before the cut is a list of whole elements
if the parser takes it as one in brackets of its own: a cut inside an element leaves a bracket or a
quote open.
Source: JSON-RPC 2.0; RFC 8259; MCP 2025-06-18, "Messages".
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import anyio.lowlevel
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from protocol.jsonrpc.errors import INTERNAL_ERROR
from protocol.jsonrpc.lone_surrogates import CACHED, read_json
from protocol.model import Json, JsonObject

RequestId: TypeAlias = Annotated[int, Field(strict=True)] | str

CONNECTION_CLOSED = -32000
"""Code of the error that stands for an answer that did not come."""


class ErrorData(BaseModel):
    """Why a request failed."""

    code: int
    message: str
    data: Any = None


class JSONRPCRequest(BaseModel):
    """A request."""

    jsonrpc: Literal["2.0"]
    id: RequestId
    method: str
    params: dict[str, Any] | None = None


class JSONRPCNotification(BaseModel):
    """A notification, which has no answer."""

    jsonrpc: Literal["2.0"]
    method: str
    params: dict[str, Any] | None = None


class JSONRPCResponse(BaseModel):
    """The result of a request."""

    jsonrpc: Literal["2.0"]
    id: RequestId
    result: dict[str, Any]


class JSONRPCError(BaseModel):
    """The failure of a request; without an id where that could not be read."""

    jsonrpc: Literal["2.0"]
    id: RequestId | None
    error: ErrorData


JSONRPCMessage: TypeAlias = JSONRPCRequest | JSONRPCNotification | JSONRPCResponse | JSONRPCError

jsonrpc_message_adapter: TypeAdapter[JSONRPCMessage] = TypeAdapter(JSONRPCMessage)

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Of one message: a line of a process, an event, a response over HTTP. Reading one that has very
many small parts takes 0.1 s, in which nothing else runs."""


@dataclass(frozen=True, slots=True)
class SessionMessage:
    """One message on its way through a transport."""

    message: JSONRPCMessage
    headers: Mapping[str, str] | None = None
    """Headers of HTTP that the message goes with."""
    in_response_to: RequestId | None = None
    """Our request whose response over HTTP brought the message."""


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
        # Most are results, which can be nothing else; to try all four takes twice as long.
        if "result" in value and not value.keys() & {"method", "error"}:
            return JSONRPCResponse.model_validate(value, by_name=False)
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


LARGE_BYTES = 128 * 1024
"""A message that is larger is looked at for a long list."""

PIECE_BYTES = 64 * 1024
"""Bytes parsed at once, and the rest of the last element: about 0.5 ms."""

MAX_TRIES = 16
"""To find the end of one piece; then the message is parsed as a whole."""

_LISTS = re.compile(rb'"(tools|resources|resourceTemplates|prompts)"\s*:\s*\[')
_CUT = re.compile(rb"\}\s*,\s*(?=\{)")

# An element stands as deep in a piece as in its message: the parser has a bound on depth.
_OPEN, _CLOSE = b"[[[", b"]]]"


async def parse_in_pieces(content: bytes, piece_bytes: int = PIECE_BYTES) -> JsonObject | None:
    """Parse a response whose result has a long list, with others running in between.

    Gives what `from_json` gives, or None: it has to be parsed as a whole, which also says what is
    wrong with it.
    """
    found = _LISTS.search(content, 0, LARGE_BYTES)
    if found is None:
        return None
    name = found[1].decode()
    elements: list[Json] = []
    begin = found.end()
    while begin + piece_bytes < len(content):
        for cut in _cuts(content, begin + piece_bytes):
            piece = _elements(content[begin : cut.start() + 1])
            await anyio.lowlevel.checkpoint()
            if piece is not None:
                break
        else:
            break
        elements += piece
        begin = cut.end()
    return _whole(content, found.end(), begin, name, elements)


def _cuts(content: bytes, position: int) -> list[re.Match[bytes]]:
    cuts: list[re.Match[bytes]] = []
    while len(cuts) < MAX_TRIES and (cut := _CUT.search(content, position)):
        cuts.append(cut)
        position = cut.end()
    return cuts


def _elements(piece: bytes) -> list[Json] | None:
    try:
        parsed = from_json(_OPEN + piece + _CLOSE, cache_strings=CACHED)
    except ValueError:
        return None
    elements: list[Json] = parsed[0][0]
    return elements


def _whole(
    content: bytes, list_begin: int, rest_begin: int, name: str, elements: list[Json]
) -> JsonObject | None:
    """Parse what is left of the list, and what stands around it."""
    # Of two members with one name the last one counts: it has to be this one.
    mark = secrets.token_hex()
    end = len(content)
    for _ in range(MAX_TRIES):
        end = content.rfind(b"]", rest_begin, end)
        if end < 0:
            break
        rest = _elements(content[rest_begin:end])
        if rest is None:
            continue
        try:
            message: JsonObject = from_json(
                content[:list_begin] + b'"%b"' % mark.encode() + content[end:],
                cache_strings=CACHED,
            )
        except ValueError:
            break
        result = message.get("result") if isinstance(message, dict) else None
        if not isinstance(result, dict) or result.get(name) != [mark]:
            break
        result[name] = elements + rest
        return message
    return None
