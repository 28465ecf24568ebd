"""Long lists in messages, parsed in pieces: 4,000 tools at once block the event loop for 10 ms.

A list is cut where an object ends and another one begins. What stands before the cut is a list of
whole elements if the parser takes it as one in brackets of its own: a cut inside an element leaves
a bracket or a quote open.
Source: RFC 8259.
"""

import re
import secrets

import anyio.lowlevel
from pydantic_core import from_json

from protocol.jsonrpc.lone_surrogates import CACHED
from protocol.model import Json, JsonObject

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
