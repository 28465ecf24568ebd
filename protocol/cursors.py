"""Cursors: how a place in a list becomes a text that a client hands back. No I/O.

A place is a list of JSON values that begins with what it is a place in, so that a cursor of one
list is refused by another.
"""

import base64

from pydantic_core import from_json, to_json


class InvalidCursor(Exception):
    """A cursor that no page of ours has given out."""


def render_cursor(*place: object) -> str:
    """Write a place as URL-safe base64."""
    return base64.urlsafe_b64encode(to_json(place)).decode()


def parse_cursor(cursor: str) -> object:
    """Read what `render_cursor` wrote.

    Raises:
        InvalidCursor: it is no JSON in base64.
    """
    try:
        return from_json(base64.urlsafe_b64decode(cursor))
    except ValueError:
        raise InvalidCursor(cursor) from None


def render_plain_cursor(*place: object) -> str:
    """Write a place as JSON; cursors of a thread's history and of searches have this form."""
    return to_json(place).decode()


def parse_plain_cursor(cursor: str) -> object:
    """Read what `render_plain_cursor` wrote.

    Raises:
        InvalidCursor: it is no JSON.
    """
    try:
        return from_json(cursor)
    except ValueError:
        raise InvalidCursor(cursor) from None


def parse_offset(cursor: str, max_digits: int) -> int:
    """Read the cursor of a list whose cursors say how many entries came before.

    Raises:
        InvalidCursor: it is no number, or has more than `max_digits` digits.
    """
    # int() takes signs, blanks and digits of other alphabets too.
    if not is_offset(cursor) or len(cursor) > max_digits:
        raise InvalidCursor(cursor)
    return int(cursor)


def is_offset(cursor: str) -> bool:
    """Whether a cursor could say how many entries came before."""
    return cursor.isascii() and cursor.isdigit()
