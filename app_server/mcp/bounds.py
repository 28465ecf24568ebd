"""Bounds of one server's lists, and of all tools that a thread adds to a model request.

Source: docs/mcp.md, "Bounds of lists".
"""

from collections.abc import Mapping, Sequence

from pydantic_core import to_json

from app_server.mcp_wire.errors import McpError
from protocol.model import Json

MAX_LISTED = 8192
"""Elements of one list of one server, invalid ones included."""

MAX_LIST_BYTES = 8 * 1024 * 1024
"""Of one list of one server, as a compact JSON array."""

MAX_DECLARED_BYTES = 4 * 1024 * 1024
"""Of all tools that one model request declares. With four bytes a token that is a million tokens,
as much as any model reads: a request above it could only be refused."""

MAX_FOUND_BYTES = 256 * 1024
"""Of the tools that one search declares; searches stay in the history."""


class ListTooLarge(McpError):
    """A server lists more than is read; the text says which bound it passes."""


def check_count(member: str, count: int) -> None:
    """Refuse a list by its length.

    Raises:
        ListTooLarge: it has more than MAX_LISTED elements.
    """
    if count > MAX_LISTED:
        raise ListTooLarge(f"the server lists more than {MAX_LISTED} {member}")


def check_bytes(member: str, size: int) -> None:
    """Refuse a list by its size.

    Raises:
        ListTooLarge: it has more than MAX_LIST_BYTES.
    """
    if size > MAX_LIST_BYTES:
        raise ListTooLarge(f"the server's list of {member} has more than {MAX_LIST_BYTES} bytes")


def bytes_of(elements: Sequence[Json]) -> int:
    """Return the bytes of elements in a compact JSON array, with a comma each.

    It takes some ms a MiB; element by element, so that in a worker thread it lets others run.
    """
    return sum(len(to_json(element, inf_nan_mode="null")) + 1 for element in elements)


def json_bytes(value: Json) -> int:
    """Return the bytes of a value as JSON, as a model request has it."""
    return len(to_json(value, inf_nan_mode="null"))


def left_out(sizes: Mapping[str, int]) -> frozenset[str]:
    """Return the servers whose tools do not fit into a model request; `sizes` are in bytes.

    Small ones are taken first: a server that wants everything keeps no other from being seen.
    """
    names: set[str] = set()
    left = MAX_DECLARED_BYTES
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        if sizes[name] > left:
            names.add(name)
        else:
            left -= sizes[name]
    return frozenset(names)
