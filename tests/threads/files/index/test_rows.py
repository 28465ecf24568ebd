"""Rows of the index: many are written and read by few statements, whatever is in them."""

from dataclasses import replace
from pathlib import Path

from app_server.threads.files.index.index import ROWS_AT_ONCE, ThreadIndex
from app_server.threads.log.state import begin
from app_server.threads.rows import ThreadQuery, ThreadRow
from tests.support.threads.stores import created

SHOWN = replace(ThreadRow.of(begin(created())), has_content=True)


def test_rows_come_back_as_they_were_put(tmp_path: Path) -> None:
    rows = [
        replace(SHOWN, id="1", created_at_ms=2**53 + 1, name='"\\\n\0\x7f', preview="\u2028 😀"),
        replace(SHOWN, id="2", created_at_ms=3, name="", source='{"custom":"\\u0000"}'),
        replace(SHOWN, id="3", created_at_ms=2, daybreak_enabled=True, archived=False),
        replace(SHOWN, id="4", created_at_ms=1, daybreak_enabled=False, effort="high"),
    ]
    index = ThreadIndex(tmp_path / "threads.sqlite3")
    try:
        index.put(rows, is_open=False)
        assert list(index.page(ThreadQuery(limit=10)).rows) == rows
        assert [index.find(row.id) for row in rows] == rows
    finally:
        index.close()


def test_many_rows_are_written_by_few_statements(tmp_path: Path) -> None:
    number = 2 * ROWS_AT_ONCE + 1
    rows = [replace(SHOWN, id=f"{n:04}", created_at_ms=n) for n in range(number)]
    index = ThreadIndex(tmp_path / "threads.sqlite3")
    statements: list[str] = []
    try:
        with index.reading() as database:
            database.set_trace_callback(statements.append)
        index.put(rows, is_open=True)
        assert [text.split()[0] for text in statements] == ["BEGIN", *["INSERT"] * 3, "COMMIT"]
        renamed = [replace(row, name="new") for row in rows]
        index.add(renamed)
        page = index.page(ThreadQuery(limit=number, ascending=True))
        assert list(page.rows) == rows
        index.put([*renamed, renamed[0]], is_open=False)
        page = index.page(ThreadQuery(limit=number, ascending=True))
        assert list(page.rows) == renamed
        assert index.open_ids() == []
    finally:
        index.close()
