"""store in PostgreSQL: logs are read like files, a bounded piece at a time."""

from collections.abc import Iterator
from uuid import UUID, uuid4

import psycopg
import pytest

from app_server.threads.history.outlining import MAX_PAGES, PAGE_CHARS, TextPages
from app_server.threads.log.outline import ItemKind, ItemPlace
from app_server.threads.postgresql import records
from app_server.threads.postgresql.database import Connection, Database, OneConnection
from app_server.threads.postgresql.history import DatabaseHistoryReader
from app_server.threads.postgresql.records import DatabaseLog
from protocol.log.rollout import ItemCompleted, render_record
from protocol.turns.items import AgentMessageThreadItem

pytestmark = pytest.mark.postgresql

SIZES = [1, 700, 3, 5000, *([40] * 100), 999, 1000, 1001, 1]
"""Bytes of appends: small and large ones, and those at the bound."""


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True) as opened:
        yield opened


def filled(connection: Connection, sizes: list[int]) -> tuple[UUID, bytes]:
    """Append bodies of these sizes to the log of a thread; its id, and its bytes."""
    thread_id, content = uuid4(), b""
    for number, size in enumerate(sizes):
        body = bytes([32 + number % 90]) * size
        connection.execute(
            "INSERT INTO records (thread_id, position, epoch, body) VALUES (%s, %s, 1, %s)",
            (thread_id, len(content), body),
        )
        content += body
    return thread_id, content


def test_any_range_of_a_log_reads_as_in_a_file(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "READ_BYTES", 1000)
    thread_id, content = filled(connection, SIZES)
    log = DatabaseLog(OneConnection(connection), thread_id)
    assert log.size() == len(content)
    with log.open() as file:
        assert file.read() == content
        for offset in (0, 1, 700, 703, 704, 5703, 5704, len(content) - 1, len(content)):
            for length in (1, 39, 1000, 6000):
                file.seek(offset)
                assert file.read(length) == content[offset : offset + length]


def test_a_read_of_a_long_log_fetches_few_rows_beside_those_that_are_read(
    connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "READ_BYTES", 1000)
    thread_id, content = filled(connection, [100] * 2000)
    # As PostgreSQL does by itself a minute later: it chooses by what it knows of a table.
    connection.execute("ANALYZE records")
    reader = Database(database_url).connect()
    with reader, DatabaseLog(OneConnection(reader), thread_id).open() as file:
        assert file.read() == content
    # A session reports what it has counted when it ends.
    (fetched,) = connection.execute(
        "SELECT sum(idx_tup_fetch + seq_tup_read) FROM pg_stat_user_tables "
        "WHERE relname LIKE 'records%'"
    ).fetchone() or (None,)
    assert fetched is not None
    assert fetched < 2 * 2000


@pytest.mark.parametrize("offset", [0, 16_000, 16_384, 20_000, 32_767, 32_768, 70_000])
def test_item_is_read_wherever_it_stands_in_a_log(
    connection: Connection, database_url: str, offset: int
) -> None:
    thread_id, content = filled(connection, [offset] if offset else [])
    item = AgentMessageThreadItem(id="msg_1", text="ok")
    body = render_record(ItemCompleted(at_ms=1, turn_id="t", item=item))
    connection.execute(
        "INSERT INTO records (thread_id, position, epoch, body) VALUES (%s, %s, 1, %s)",
        (thread_id, len(content), body),
    )
    database = Database(database_url)
    database.open()
    try:
        reader = DatabaseHistoryReader(database, thread_id)
        assert reader.item(ItemPlace(len(content), len(body), ItemKind.AGENT)) == item
    finally:
        database.close()


def test_what_was_said_in_a_long_log_takes_bounded_memory() -> None:
    pages = TextPages(lambda: None)
    for number in range(5000):
        pages.add(f"{number} " + "x" * 1000)
    kept = [page for page, text in pages.changed.items() if text]
    assert kept == list(range(max(kept) - MAX_PAGES + 1, max(kept) + 1))
    assert sum(map(len, pages.changed.values())) <= MAX_PAGES * PAGE_CHARS
