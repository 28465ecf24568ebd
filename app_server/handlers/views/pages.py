"""Pages of lists: how many entries they have, and cursors that say how many came before."""

from collections.abc import Callable, Sequence
from itertools import accumulate, takewhile
from typing import TypeVar

from protocol.cursors import InvalidCursor, parse_offset
from protocol.jsonrpc.errors import RpcError, invalid_request

Entry = TypeVar("Entry")

DEFAULT_PAGE = 25
MAX_PAGE = 100

MAX_DIGITS = 18
"""Of a cursor; more are more than any list has."""


def page_size(limit: int | None, default: int = DEFAULT_PAGE) -> int:
    """Choose it by what a client asks for: 1 to MAX_PAGE, `default` without a wish."""
    return min(max(default if limit is None else limit, 1), MAX_PAGE)


def fitting(entries: Sequence[Entry], most: int, size_of: Callable[[Entry], int]) -> list[Entry]:
    """Keep as many entries from the front as have `most` together, at least one."""
    sizes = takewhile(lambda size: size <= most, accumulate(map(size_of, entries)))
    return list(entries[: max(sum(1 for _ in sizes), 1)])


def page(
    rows: Sequence[Entry], cursor: str | None, limit: int | None, what: str
) -> tuple[list[Entry], str | None]:
    """Return one page and the cursor of the next; no limit means all, and 0 means one.

    Raises:
        RpcError: the cursor is no number, or behind the end of the list.
    """
    start = offset(rows, cursor, what)
    end = len(rows) if limit is None else min(start + max(limit, 1), len(rows))
    return list(rows[start:end]), None if end == len(rows) else str(end)


def offset(rows: Sequence[object], cursor: str | None, what: str) -> int:
    """Return where a page begins.

    Raises:
        RpcError: the cursor is no number, or behind the end of the list.
    """
    start = 0 if cursor is None else cursor_number(cursor)
    if start > len(rows):
        raise invalid_request(
            f"cursor {start} exceeds total {what} {len(rows)}", "invalidCursor", cursor=cursor
        )
    return start


def cursor_number(cursor: str) -> int:
    """Read a cursor that is a number.

    Raises:
        RpcError: it is none, or has too many digits.
    """
    try:
        return parse_offset(cursor, MAX_DIGITS)
    except InvalidCursor:
        raise invalid_cursor(cursor) from None


def invalid_cursor(cursor: str) -> RpcError:
    """Refuse a cursor that is none of ours."""
    return invalid_request(f"invalid cursor: {cursor}", "invalidCursor", cursor=cursor)
