"""How much of `mcpMetaByServer` a turn takes, which is in the memory of its turn and nowhere else.

Source: docs/mcp.md, "Calls".
"""

from pydantic_core import to_json

from app_server.sessions.errors import McpMetaTooLarge
from protocol.model import Json
from protocol.turns import McpMetaByServer

MAX_META_BYTES = 256 * 1024
"""Of all entries of a turn, as JSON without blanks."""


def check_mcp_meta(known: McpMetaByServer, more: McpMetaByServer) -> None:
    """Check that a turn can take `more`, which replaces what is known for the same servers.

    Raises:
        McpMetaTooLarge: together they would be too large.
    """
    if not more:
        return
    merged = {**known, **more}
    # Counted roughly first: what is far too large is not written out.
    if _chars(merged, MAX_META_BYTES) > MAX_META_BYTES or len(to_json(merged)) > MAX_META_BYTES:
        raise McpMetaTooLarge


def _chars(value: Json, enough: int) -> int:
    """Count the characters of texts and keys; stops soon after `enough`."""
    match value:
        case str():
            return len(value)
        case dict():
            parts = [*value.items()]
            chars = sum(len(key) for key, _ in parts)
            inner = [each for _, each in parts]
        case list():
            chars, inner = 0, value
        case _:
            return 0
    for each in inner:
        if chars > enough:
            break
        chars += _chars(each, enough)
    return chars
