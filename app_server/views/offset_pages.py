"""Pages of short lists that are made anew for each request: a cursor is how many came before."""

from collections.abc import Sequence
from typing import TypeVar

from protocol.cursors import is_offset
from protocol.errors import RpcError, invalid_request

Row = TypeVar("Row")

MAX_DIGITS = 18
"""Of a cursor; more are more than any list has."""


def page(
    rows: Sequence[Row], cursor: str | None, limit: int | None, what: str
) -> tuple[list[Row], str | None]:
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
    if cursor is None:
        return 0
    if not is_offset(cursor):
        raise invalid_cursor(cursor)
    start = int(cursor[:MAX_DIGITS])
    if start > len(rows):
        raise invalid_request(
            f"cursor {cursor} exceeds total {what} {len(rows)}", "invalidCursor", cursor=cursor
        )
    return start


def invalid_cursor(cursor: str) -> RpcError:
    """Refuse a cursor that is none of ours."""
    return invalid_request(f"invalid cursor: {cursor}", "invalidCursor", cursor=cursor)
