"""store in PostgreSQL: a home that is copied into a database and back has the same bytes."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from app_server.threads.files.ledger import Ledger
from app_server.threads.files.outbox import FileOutbox
from app_server.threads.files.signals import ledger_path
from app_server.threads.files.store import filing_path
from app_server.threads.files.writers import LogPaths, LogWriters
from app_server.threads.opening.copies import Copied, export_home, import_home
from app_server.threads.organization import PINNED
from app_server.threads.outbox import OutboxEntry
from app_server.threads.postgresql.copying import DatabaseCopy
from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.outbox import PostgresOutbox
from app_server.threads.postgresql.store import PostgresStore
from app_server.threads.rows import ThreadQuery
from protocol.log.filing import SectionPut
from protocol.log.metadata import ReadStateChanged
from protocol.log.rollout import (
    ArchivedChanged,
    HistoryCompacted,
    NameChanged,
    Record,
    ThreadCreated,
    TurnsReverted,
    render_record,
)
from protocol.threads.thread import ThreadSection, TurnThreadUnreadPosition
from tests.support.postgresql import Cluster, name_of
from tests.support.processes import EXECUTABLE
from tests.support.receiver.stages import entry
from tests.support.receiver.wakes import stored_timer
from tests.support.threads.histories import turn
from tests.support.threads.stores import CLOCK, created, raw

pytestmark = pytest.mark.postgresql

SECTION = SectionPut(at_ms=1, section=ThreadSection(id="s", name="Later"))


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    opened.open()
    yield opened
    opened.close()


def log_in(home: Path, *lines: bytes | Record, first: ThreadCreated | None = None) -> str:
    """Write the log of a thread, a new one without `first`; returns its id."""
    first = created() if first is None else first
    path = LogPaths(home / "threads").path_of(first.thread_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = [render_record(first)]
    content += [line if isinstance(line, bytes) else render_record(line) for line in lines]
    path.write_bytes(b"".join(content))
    return first.thread_id


def home_of_all_kinds(home: Path) -> None:
    """Write a home with whatever a home can have."""
    many = [record for number in range(2500) for record in turn(number, f"text {number}")]
    log_in(home, *many)
    log_in(home, *turn(0, "a"), *turn(1, "b"), TurnsReverted(at_ms=9, before_turn_id="t1"))
    log_in(home, *turn(0, "old"), ArchivedChanged(at_ms=8, archived=True))
    log_in(home, b"no json at all\n", *turn(0, "after"), b"\0\0\0\0\n")
    log_in(home, b'{"v":99,"atMs":5,"type":"later","x":1}\n', *turn(0, "newer"))
    log_in(home, NameChanged(at_ms=3, name="with \0 in it"), *turn(0, "nul \0"))
    log_in(home, *turn(0, "x" * 3_000_000))
    forked = log_in(home, *turn(0, "forked"))
    log_in(home, *turn(0, "forked"), *turn(1, "b"), first=created(forked_from_id=forked))
    log_in(
        home,
        *turn(0, "long"),
        HistoryCompacted(at_ms=7, turn_id="t0", items=[raw("short")]),
        *turn(1, "c"),
    )
    unread = TurnThreadUnreadPosition(turn_id="t0")
    log_in(home, *turn(0, "new"), ReadStateChanged(at_ms=9, first_unread=unread, revision="1"))
    filing_path(home).write_bytes(render_record(SECTION))
    path = ledger_path(home)
    path.parent.mkdir(parents=True)
    ledger = Ledger(path)
    ledger.put([entry("a", stage="accepted"), entry("b", stage="seen")])
    over = stored_timer("over", 2000)
    ledger.wakes.add(over)
    ledger.wakes.move(over, replace(over, state="cancelled"))
    ledger.wakes.add(stored_timer("open", 3000))
    ledger.close()


def logs_of(home: Path) -> dict[str, bytes]:
    folder = home / "threads"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.jsonl")}


def silent(text: str) -> None:
    pass


def test_a_home_comes_back_with_the_same_bytes(tmp_path: Path, database: Database) -> None:
    home, back = tmp_path / "home", tmp_path / "back"
    home_of_all_kinds(home)
    count = len(logs_of(home))
    assert import_home(home, database, silent) == Copied(threads=count, signals=2)
    assert import_home(home, database, silent) == Copied(there=count, signals=2)
    assert export_home(database, back, silent) == Copied(threads=count, signals=2)
    assert export_home(database, back, silent) == Copied(there=count, signals=2)
    assert logs_of(back) == logs_of(home)
    assert filing_path(back).read_bytes() == filing_path(home).read_bytes()
    ledger = Ledger(ledger_path(back))
    assert [one.id for one in ledger.page(None, None, None, 9).entries] == ["b", "a"]
    (wake,) = ledger.wakes.page(None, None, None, 9).wakes
    assert replace(wake, number=None) == stored_timer("open", 3000)
    ledger.close()


def test_notifications_stay_where_they_were_put(tmp_path: Path, database: Database) -> None:
    """They would be sent twice, and by servers that may not know the receiver."""
    home, back = tmp_path / "home", tmp_path / "back"
    thread_id = log_in(home, *turn(1, "done"))
    waiting = OutboxEntry(
        target="webhook",
        id="msg",
        label="webhook",
        thread_id=thread_id,
        event="turnCompleted",
        subject="t",
        body="{}",
        run="r",
        created_at_ms=1,
    )
    outbox, shared = FileOutbox(home / "notifications" / "outbox.sqlite3"), PostgresOutbox(database)
    outbox.put([waiting], "r", 1)
    assert import_home(home, database, silent) == Copied(threads=1)
    assert (shared.counts(), shared.runs()) == ({}, {})
    shared.put([waiting], "r", 1)
    assert export_home(database, back, silent) == Copied(threads=1)
    assert not (back / "notifications").exists()
    assert (outbox.counts(), shared.counts()) == ({"waiting": 1}, {"waiting": 1})
    outbox.close()


async def test_what_was_imported_is_listed_read_and_written(
    tmp_path: Path, database_url: str
) -> None:
    home = tmp_path / "home"
    home_of_all_kinds(home)
    database = Database(database_url)
    store = PostgresStore(database)
    await store.open()
    try:
        import_home(home, database, silent)
        page = await store.lists.page(ThreadQuery(limit=100))
        assert len(page.rows) == len(logs_of(home)) - 1
        assert (await store.organization.refresh()).sections.keys() == {PINNED.id, "s"}
        names = [row.name for row in page.rows if row.name]
        assert names == ["with \ufffd in it"]
        thread = await store.load(page.rows[0].id)
        await thread.append(NameChanged(at_ms=99, name="again"))
        await store.unload(thread)
        assert (await store.lists.find(thread.id)).name == "again"
    finally:
        await store.aclose()


def test_a_torn_line_is_left_out_and_a_log_without_a_first_line_is_named(
    tmp_path: Path, database: Database
) -> None:
    torn = log_in(tmp_path, *turn(0, "a"), b'{"v":1,"atMs":5,"ty')
    path = LogPaths(tmp_path / "threads").path_of(CLOCK.new_id())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no first line\n")
    (tmp_path / "threads" / "notes.jsonl").write_bytes(b"{}\n")
    done = import_home(tmp_path, database, silent)
    assert (done.threads, sorted(done.left)) == (
        1,
        sorted(
            [
                f"{path.stem} has a damaged first line, so nothing is known of it",
                f"{tmp_path}/threads/notes.jsonl: its name is no id of a thread",
            ]
        ),
    )
    export_home(database, tmp_path / "back", silent)
    (content,) = logs_of(tmp_path / "back").values()
    whole = LogPaths(tmp_path / "threads").path_of(torn).read_bytes()
    assert content == whole[: whole.rfind(b"\n") + 1]


def test_a_thread_that_cannot_be_copied_keeps_no_other_from_its_copy(
    tmp_path: Path,
    database: Database,
    database_url: str,
    cluster: Cluster,
) -> None:
    folder = LogPaths(tmp_path / "threads").path_of(CLOCK.new_id())
    folder.mkdir(parents=True)
    long = log_in(tmp_path, b"x" * 100_000 + b"\n")
    refused = log_in(tmp_path, *turn(0, "a"))
    good = log_in(tmp_path, *turn(0, "b"))
    filing_path(tmp_path).write_bytes(render_record(SECTION))
    cluster.administer(f"ALTER TABLE threads ADD CHECK (id <> '{refused}')", name_of(database_url))
    done = import_home(tmp_path, database, silent, max_line_bytes=100_000)
    assert (done.threads, len(done.left)) == (1, 3)
    texts = sorted(done.left)
    assert texts[0].startswith(f"{folder.stem} cannot be copied: [Errno 21]")
    assert texts[1] == f"{long} has a line of 100001 bytes, more than a row takes"
    assert texts[2].startswith(f"{refused} cannot be copied: new row for relation")
    copy = DatabaseCopy(database)
    assert [str(one) for one in copy.ids()] == [good]
    assert copy.filing() == [render_record(SECTION)]


def test_what_differs_or_is_written_is_named_and_left_alone(
    tmp_path: Path, database: Database
) -> None:
    mine, held = log_in(tmp_path, *turn(0, "a")), log_in(tmp_path, *turn(0, "b"))
    writers = LogWriters(tmp_path / "locks", LogPaths(tmp_path / "threads"), "ws://127.0.0.1:7")
    writers.locks.mkdir()
    with writers.locked(held):
        done = import_home(tmp_path, database, silent)
    assert done.threads == 1
    (left,) = done.left
    assert left.startswith(f"{held} is written by process ")
    log_in(tmp_path, *turn(0, "other"), first=created(thread_id=mine))
    again = import_home(tmp_path, database, silent)
    assert (again.threads, again.left) == (
        1,
        [f"{mine} is in the database with other lines; delete it there, or leave it"],
    )


@pytest.mark.process
def test_an_import_that_was_killed_is_repeated(
    tmp_path: Path, database: Database, database_url: str
) -> None:
    home_of_all_kinds(tmp_path)
    for number in range(200):
        log_in(tmp_path, *turn(0, f"text {number}"))
    count = len(logs_of(tmp_path))
    importing = subprocess.Popen(
        [str(EXECUTABLE), "store", "import", "--store", database_url, "--home", str(tmp_path)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert importing.stderr is not None
    assert importing.stderr.readline() == f"thread 100 of {count}\n".encode()
    importing.kill()
    importing.communicate()
    done = import_home(tmp_path, database, silent)
    assert (done.threads + done.there, done.left) == (count, [])
    assert done.there >= 99
    back = tmp_path / "back"
    assert export_home(database, back, silent).threads == count
    assert logs_of(back) == logs_of(tmp_path)


def test_two_imports_at_once_copy_each_thread_once(tmp_path: Path, database: Database) -> None:
    home_of_all_kinds(tmp_path)
    count = len(logs_of(tmp_path))
    with ThreadPoolExecutor(2) as workers:
        copy = partial(import_home, tmp_path, database, silent)
        done = [work.result() for work in [workers.submit(copy) for _ in range(2)]]
    assert sorted((one.threads, one.there) for one in done) == [(0, count), (count, 0)]


def test_a_log_that_is_not_there_any_more_is_named_and_passed_over(
    tmp_path: Path, database: Database
) -> None:
    log_in(tmp_path, *turn(0, "one"))
    (log,) = (tmp_path / "threads").rglob("*.jsonl")
    gone = "01900000-0000-7000-8000-000000000009"
    log.with_stem(gone).symlink_to(tmp_path / "nowhere")
    said: list[str] = []
    done = import_home(tmp_path, database, said.append)
    assert (done.threads, done.left) == (1, [])
    assert f"{gone} is not there any more, and is passed over" in said


def test_projects_of_another_home_are_named(tmp_path: Path, database: Database) -> None:
    for name in ("one", "other"):
        home = tmp_path / name
        log_in(home, *turn(0, name))
        section = ThreadSection(id=name, name=name)
        filing_path(home).write_bytes(render_record(SectionPut(at_ms=1, section=section)))
    assert import_home(tmp_path / "one", database, silent).left == []
    assert import_home(tmp_path / "other", database, silent).left == [
        "the projects and sections of the database are others; they stay"
    ]
