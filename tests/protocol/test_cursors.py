"""Cursors: the texts that clients hold, and what is refused."""

from collections.abc import Callable

import pytest

from app_server.handlers.views.pages import page_size
from protocol.cursors import (
    InvalidCursor,
    parse_cursor,
    parse_offset,
    parse_plain_cursor,
    render_cursor,
    render_plain_cursor,
)


def test_a_cursor_keeps_its_text() -> None:
    # Clients may hold these across an update of the server.
    assert render_cursor("signals", 7) == "WyJzaWduYWxzIiw3XQ=="
    assert parse_cursor("WyJzaWduYWxzIiw3XQ==") == ["signals", 7]
    assert render_plain_cursor("turns", "t", 3, 0, True) == '["turns","t",3,0,true]'
    assert parse_plain_cursor('["turns","t",3,0,true]') == ["turns", "t", 3, 0, True]


@pytest.mark.parametrize("parse", [parse_cursor, parse_plain_cursor])
@pytest.mark.parametrize("cursor", ["", "WyJ", "bm8=", "[", "é"])
def test_a_text_that_is_no_cursor_is_refused(parse: Callable[[str], object], cursor: str) -> None:
    with pytest.raises(InvalidCursor) as caught:
        parse(cursor)
    assert caught.value.args == (cursor,)


def test_an_offset_has_ascii_digits_alone() -> None:
    assert [parse_offset(one, 3) for one in ("0", "007", "999")] == [0, 7, 999]
    for refused in ("", "1000", "-1", "+1", " 1", "1_0", "\u0661", "²"):
        with pytest.raises(InvalidCursor):
            parse_offset(refused, 3)


def test_a_page_has_1_to_100_entries() -> None:
    assert [page_size(limit) for limit in (None, -3, 0, 1, 100, 101)] == [25, 1, 1, 1, 100, 100]
    assert page_size(None, 50) == 50
