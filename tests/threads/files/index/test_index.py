"""threads: the index of threads, and how it is made anew."""

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app_server.threads.files.index.derived import IndexUnusable
from app_server.threads.files.index.index import ThreadIndex
from protocol.cursors import InvalidCursor
from tests.support.harness import claim
from tests.support.threads.stores import QUERY, row


@pytest.fixture
def index(tmp_path: Path) -> Any:
    opened = ThreadIndex(tmp_path / "index" / "threads")
    yield opened
    opened.close()


def ids(index: ThreadIndex, **changes: Any) -> list[str]:
    """Walk all pages of a query."""
    query = replace(QUERY, **changes)
    found: list[str] = []
    while True:
        page = index.page(query)
        found.extend(row.id for row in page.rows)
        if page.next_cursor is None:
            return found
        query = replace(query, cursor=page.next_cursor)


@claim("threads:list-order", "threads:list-cursor")
def test_pages_cover_everything_once_in_both_directions(index: ThreadIndex) -> None:
    index.put([row(number) for number in (3, 1, 2, 5, 4)], is_open=False)
    newest_first = ["id0005", "id0004", "id0003", "id0002", "id0001"]
    assert ids(index) == newest_first
    assert ids(index, ascending=True) == newest_first[::-1]
    index.put([row(2, updated_at_ms=99)], is_open=False)
    assert ids(index, sort_key="updated_at_ms")[0] == "id0002"
    page = index.page(QUERY)
    index.put([row(9)], is_open=False)
    back = index.page(replace(QUERY, cursor=page.backwards_cursor, ascending=True))
    assert [row.id for row in back.rows] == ["id0009"]


def test_filters_combine(index: ThreadIndex) -> None:
    index.put(
        [
            row(1),
            row(2, archived=True),
            row(3, has_content=False),
            row(4, model_provider="other", name="Grüße"),
            row(5, cwd="/elsewhere", source_kind="cli"),
            row(6, originator="ide", preview="100% sure"),
        ],
        is_open=False,
    )
    assert ids(index) == ["id0006", "id0005", "id0004", "id0001"]
    assert ids(index, archived=True) == ["id0002"]
    assert ids(index, model_providers=["other", "none"]) == ["id0004"]
    assert ids(index, source_kinds=["cli"]) == ["id0005"]
    assert ids(index, originators=["ide"]) == ["id0006"]
    assert ids(index, cwds=["/elsewhere"]) == ["id0005"]
    assert ids(index, excluded=["id0001", "id0005"]) == ["id0006", "id0004"]
    assert ids(index, search="HELLO 1") == ["id0001"]
    assert ids(index, search="grü") == ["id0004"]
    assert ids(index, search="0% s") == ["id0006"]
    assert ids(index, search="%") == ["id0006"]


@pytest.mark.parametrize(
    "cursor",
    [
        "zz",
        "",
        "e30=",
        "WzEsMl0=",
        "\0",
        "ü",
        "WyJjcmVhdGVkX2F0X21zIiwxMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwLCJ4Il0=",
    ],
)
def test_an_unknown_cursor_is_refused(index: ThreadIndex, cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        index.page(replace(QUERY, cursor=cursor))


def test_a_cursor_of_another_order_is_refused(index: ThreadIndex) -> None:
    index.put([row(1), row(2), row(3)], is_open=False)
    cursor = index.page(QUERY).next_cursor
    with pytest.raises(InvalidCursor):
        index.page(replace(QUERY, cursor=cursor, sort_key="updated_at_ms"))


@pytest.mark.parametrize("damage", ["other version", "no database"])
def test_an_index_that_cannot_be_used_is_made_anew(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "threads"
    first = ThreadIndex(path)
    assert first.is_new
    first.put([row(1)], is_open=False)
    first.mark_complete()
    first.close()
    second = ThreadIndex(path)
    assert not second.is_new
    assert ids(second) == ["id0001"]
    second.close()
    if damage == "other version":
        with sqlite3.connect(path) as database:
            database.execute("PRAGMA user_version = 99")
        database.close()
    else:
        path.write_bytes(b"x" * 10_000)
    third = ThreadIndex(path)
    assert third.is_new
    assert ids(third) == []
    third.close()


def test_a_closed_index_begins_no_other_file(tmp_path: Path) -> None:
    """A worker thread may go on with an index for a moment after it was closed."""
    path = tmp_path / "index" / "threads"
    index = ThreadIndex(path)
    index.close()
    for file in path.parent.iterdir():
        file.unlink()
    for use in (index.open_ids, index.check):
        with pytest.raises(IndexUnusable):
            use()
    assert list(path.parent.iterdir()) == []
    other = ThreadIndex(path)
    assert (other.is_new, other.is_made_elsewhere) == (True, False)
    other.close()
