"""Pages of lists whose cursors are numbers, and what fits into one message."""

import pytest

from app_server.handlers.views.pages import fitting, page
from protocol.jsonrpc.errors import RpcError


@pytest.mark.parametrize(
    ("cursor", "limit", "rows", "following"),
    [
        (None, None, "abc", None),
        (None, 2, "ab", "2"),
        ("2", 2, "c", None),
        ("1", 0, "b", "2"),
        ("1", 2, "bc", None),
        ("3", None, "", None),
    ],
)
def test_pages_follow_each_other(
    cursor: str | None, limit: int | None, rows: str, following: str | None
) -> None:
    found = page("abc", cursor, limit, "apps")
    assert found == (list(rows), following)


@pytest.mark.parametrize(
    ("cursor", "message"),
    [
        ("4", "cursor 4 exceeds total apps 3"),
        ("x", "invalid cursor: x"),
        ("", "invalid cursor: "),
        ("-1", "invalid cursor: -1"),
        ("٣", "invalid cursor: ٣"),
        ("007", "cursor 7 exceeds total apps 3"),
        ("1" * 18, f"cursor {'1' * 18} exceeds total apps 3"),
        ("1" * 19, f"invalid cursor: {'1' * 19}"),
    ],
)
def test_a_page_that_there_is_not_is_refused(cursor: str, message: str) -> None:
    with pytest.raises(RpcError) as refused:
        page("abc", cursor, None, "apps")
    assert refused.value.message == message
    assert refused.value.data == {"code": "invalidCursor", "cursor": cursor}


@pytest.mark.parametrize(("most", "kept"), [(0, [3]), (3, [3]), (4, [3, 1]), (9, [3, 1, 5])])
def test_a_page_ends_where_the_next_entry_would_not_fit(most: int, kept: list[int]) -> None:
    assert fitting([3, 1, 5], most, lambda size: size) == kept
