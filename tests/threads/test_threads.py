"""threads: logs, state, locks and the index; and thread/* as clients use them."""

import asyncio
import errno
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.config.values import Config
from app_server.rpc.hub import Hub
from app_server.runtime.clock import SystemClock
from app_server.sessions.ports import SessionPorts
from app_server.sessions.registry import Sessions
from app_server.threads.index.index import ThreadIndex
from app_server.threads.index.query import ThreadQuery
from app_server.threads.index.rows import ThreadRow
from app_server.threads.log.locks import STARTED_AT, LockBusy, WriterLock
from app_server.threads.log.rollout import RolloutWriter, read_rollout
from app_server.threads.log.state import NotARollout, ThreadState, begin, replay
from app_server.threads.store import (
    InvalidThreadId,
    ThreadBusy,
    ThreadDamaged,
    ThreadNotFound,
    ThreadStore,
)
from app_server.turns.model.interface import ModelRequest
from app_server.views.threads import MAX_TURNS_CHARS, turns_of_state
from protocol.cursors import InvalidCursor
from protocol.items import AgentMessageThreadItem, TextUserInput, UserInput, UserMessageThreadItem
from protocol.metadata_records import (
    AttachmentAdded,
    AttachmentRemoved,
    DaybreakChanged,
    GitInfoChanged,
    GoalChanged,
    MemoryModeChanged,
    ProjectChanged,
    ReadStateChanged,
    SectionChanged,
)
from protocol.policy import ReadOnlySandboxPolicy
from protocol.rollout import (
    ArchivedChanged,
    HistoryAppended,
    InputQueued,
    InputTaken,
    ItemCompleted,
    NameChanged,
    Record,
    Settings,
    SettingsChanged,
    SignalMark,
    SignalRecalled,
    ThreadCreated,
    TokensUsed,
    TurnCompleted,
    TurnStarted,
    render_record,
)
from protocol.thread_facts import ThreadAttachment, ThreadGoal
from protocol.threads import (
    GitInfo,
    ThreadStartThreadUnreadPosition,
    TurnThreadUnreadPosition,
)
from protocol.turns import ThreadTokenUsage, TokenUsageBreakdown
from tests.support.harness import WAIT_S, Gate, ScriptedModel, approvals_in, claim, says, serve
from tests.support.no_processes import NoProcesses

CLOCK = SystemClock()
SETTINGS = Settings(
    model="m",
    model_provider="p",
    cwd="/",
    approval_policy="on-request",
    sandbox_policy=ReadOnlySandboxPolicy(),
)


def created(at_ms: int = 1000, thread_id: str | None = None, **kwargs: Any) -> ThreadCreated:
    return ThreadCreated(
        at_ms=at_ms,
        thread_id=thread_id or CLOCK.new_id(),
        settings=SETTINGS,
        source="vscode",
        cli_version="0.169.0",
        **kwargs,
    )


def said(text: str, at_ms: int = 1, item_id: str = "u") -> UserMessageThreadItem:
    content: list[UserInput] = [TextUserInput(type="text", text=text)]
    return UserMessageThreadItem(
        id=item_id, content=content, started_at_ms=at_ms, completed_at_ms=at_ms
    )


def raw(text: str, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


USAGE = TokenUsageBreakdown(
    total_tokens=3,
    input_tokens=1,
    cached_input_tokens=0,
    output_tokens=2,
    reasoning_output_tokens=0,
)


def made(record: type[Any], **members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Make records of these members; `builds` would look for the names of the wire."""
    return st.fixed_dictionaries(members).map(lambda chosen: record(**chosen))


texts = st.text(max_size=20)
items = st.dictionaries(texts, st.none() | st.integers() | texts, max_size=3)
times = st.integers(0, 2**45)
signal_ids = st.sampled_from(["a", "b"])
marks = st.builds(SignalMark, source=st.just("s"), id=signal_ids, item_id=texts, woke=st.booleans())
records: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        HistoryAppended,
        at_ms=times,
        items=st.lists(items, min_size=1, max_size=1),
        signals=st.lists(marks, min_size=1, max_size=1),
    ),
    st.builds(
        InputQueued,
        at_ms=times,
        input_id=texts,
        items=st.lists(items, min_size=1, max_size=1),
        signal=marks,
    ),
    st.builds(SignalRecalled, at_ms=times, source=st.just("s"), id=signal_ids),
    st.builds(HistoryAppended, at_ms=times, items=st.lists(items, max_size=3)),
    st.builds(TurnStarted, at_ms=times, turn_id=texts),
    st.builds(
        InputQueued,
        at_ms=times,
        input_id=texts,
        items=st.lists(items, max_size=2),
        message=st.none() | st.builds(said, texts),
    ),
    st.builds(InputTaken, at_ms=times),
    st.builds(ItemCompleted, at_ms=times, turn_id=texts, item=st.builds(said, texts)),
    st.builds(
        ItemCompleted,
        at_ms=times,
        turn_id=texts,
        item=st.builds(AgentMessageThreadItem, id=texts, text=texts),
    ),
    st.builds(
        TurnCompleted,
        at_ms=times,
        turn_id=texts,
        status=st.sampled_from(["completed", "interrupted", "failed"]),
    ),
    st.builds(NameChanged, at_ms=times, name=texts),
    st.builds(ArchivedChanged, at_ms=times, archived=st.booleans()),
    st.builds(SettingsChanged, at_ms=times, settings=st.just(SETTINGS)),
    made(GitInfoChanged, at_ms=times, git_info=st.none() | made(GitInfo, sha=st.none() | texts)),
    made(DaybreakChanged, at_ms=times, enabled=st.booleans()),
    made(ProjectChanged, at_ms=times, project_id=st.none() | texts),
    made(SectionChanged, at_ms=times, section_id=st.sampled_from([None, "s", "t"]), rank=texts),
    made(MemoryModeChanged, at_ms=times, mode=st.sampled_from(["enabled", "disabled"])),
    made(
        ReadStateChanged,
        at_ms=times,
        first_unread=st.sampled_from(
            [None, ThreadStartThreadUnreadPosition(), TurnThreadUnreadPosition(turn_id="t")]
        ),
        revision=texts,
    ),
    made(
        GoalChanged,
        at_ms=times,
        goal=st.none()
        | made(
            ThreadGoal,
            thread_id=texts,
            objective=texts,
            status=st.sampled_from(["active", "complete"]),
            tokens_used=times,
            time_used_seconds=times,
            created_at=times,
            updated_at=times,
        ),
    ),
    made(
        AttachmentAdded,
        at_ms=times,
        attachment=made(
            ThreadAttachment,
            id=texts,
            attachment_type=texts,
            identity_key=texts,
            payload=items,
            created_at=times,
        ),
    ),
    made(AttachmentRemoved, at_ms=times, attachment_id=texts),
    st.builds(TokensUsed, at_ms=times, usage=st.just(ThreadTokenUsage(total=USAGE, last=USAGE))),
)


# Logs and state.


@claim("rollout:replay", "rollout:torn-line")
@settings(max_examples=60, deadline=None)
@given(st.lists(records, max_size=12), st.integers(0, 200))
def test_what_is_read_back_equals_what_was_appended(
    tmp_path_factory: pytest.TempPathFactory, appended: list[Record], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    first = created()
    live = begin(first)
    writer = RolloutWriter(folder / "log", WriterLock(folder / "lock"))
    writer.append([first], sync=True)
    for record in appended:
        writer.append([record], sync=False)
        live.apply(record)
    writer.close()
    assert replay(read_rollout(folder / "log")) == live

    # A line that was cut anywhere is as if it had never been begun.
    torn = render_record(NameChanged(at_ms=1, name="torn" * 20))[: max(1, cut % 100)]
    with (folder / "log").open("ab") as file:
        file.write(torn)
    assert replay(read_rollout(folder / "log")) == live
    writer = RolloutWriter(folder / "log", WriterLock(folder / "lock"))
    extra = NameChanged(at_ms=5, name="whole")
    writer.append([extra], sync=True)
    writer.close()
    live.apply(extra)
    assert replay(read_rollout(folder / "log")) == live


def test_lines_of_later_versions_are_skipped_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(
        render_record(created())
        + b'{"v":9,"atMs":1,"type":"somethingNew","x":1}\n'
        + render_record(NameChanged(at_ms=2, name="n"))
    )
    before = path.read_bytes()
    writer = RolloutWriter(path, WriterLock(tmp_path / "lock"))
    writer.close()
    assert replay(read_rollout(path)).name == "n"
    assert path.read_bytes() == before


@pytest.mark.parametrize("lines", [b"", b"not a record\n", render_record(InputTaken(at_ms=1))])
def test_a_file_that_does_not_begin_a_thread_is_none(tmp_path: Path, lines: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(lines)
    with pytest.raises(NotARollout):
        replay(read_rollout(path))


def test_a_long_torn_line_is_cut_too(tmp_path: Path) -> None:
    path = tmp_path / "log"
    whole = render_record(created())
    path.write_bytes(whole + b"x" * 200_000)
    RolloutWriter(path, WriterLock(tmp_path / "lock")).close()
    assert path.read_bytes() == whole
    path.write_bytes(b"x" * 200_000)
    RolloutWriter(path, WriterLock(tmp_path / "lock")).close()
    assert path.read_bytes() == b""


@claim("rollout:all-or-nothing")
def test_a_write_that_the_disk_refuses_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    writer = RolloutWriter(path, WriterLock(tmp_path / "lock"))
    writer.append([created()], sync=True)
    before = path.read_bytes()
    real_write = os.write

    def full_disk(file: int, content: bytes) -> int:
        if len(content) > 10:
            return real_write(file, content[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full_disk)
    with pytest.raises(OSError, match="No space left"):
        writer.append([NameChanged(at_ms=1, name="n")], sync=True)
    monkeypatch.undo()
    assert path.read_bytes() == before
    writer.append([NameChanged(at_ms=2, name="again")], sync=True)
    writer.close()
    assert replay(read_rollout(path)).name == "again"


def test_a_log_that_cannot_be_mended_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"torn")
    monkeypatch.setattr(os, "ftruncate", _refuse_truncation(os.ftruncate))
    with pytest.raises(OSError, match="read-only"):
        RolloutWriter(path, WriterLock(tmp_path / "lock"))


def _refuse_truncation(real: Any) -> Any:
    def refuse(file: int, length: int) -> None:
        if os.fstat(file).st_size == 4:
            raise OSError(errno.EROFS, "read-only")
        real(file, length)

    return refuse


def test_queued_input_becomes_visible_at_the_boundary_in_its_order() -> None:
    state = begin(created())
    state.apply(TurnStarted(at_ms=1, turn_id="t"))
    state.apply(HistoryAppended(at_ms=1, items=[raw("first")]))
    queued = [
        InputQueued(at_ms=2, input_id="1", items=[raw("second")], message=said("second")),
        InputQueued(at_ms=3, input_id="2", items=[raw("third", "developer")]),
    ]
    for record in queued:
        state.apply(record)
    assert state.history == [raw("first")]
    state.apply(HistoryAppended(at_ms=4, items=[raw("answer", "assistant")]))
    state.apply(InputTaken(at_ms=5))
    assert state.history == [
        raw("first"),
        raw("answer", "assistant"),
        raw("second"),
        raw("third", "developer"),
    ]
    assert state.turns[0].items == [said("second")]
    assert state.queued == []
    state.apply(queued[1])
    state.apply(TurnCompleted(at_ms=9, turn_id="t", status="completed", duration_ms=8))
    assert state.history[-1] == raw("third", "developer")
    assert (state.turns[0].status, state.turns[0].completed_at_ms) == ("completed", 9)
    assert state.open_turn is None


def test_a_turn_that_never_ended_is_given_up_when_the_next_one_begins() -> None:
    state = begin(created())
    state.apply(TurnStarted(at_ms=1, turn_id="lost"))
    state.apply(InputQueued(at_ms=2, input_id="1", items=[raw("late")], message=said("late")))
    state.apply(TurnStarted(at_ms=3, turn_id="next"))
    state.apply(TurnCompleted(at_ms=4, turn_id="lost", status="completed"))
    assert [(turn.id, turn.status) for turn in state.turns] == [
        ("lost", "interrupted"),
        ("next", "inProgress"),
    ]
    assert state.turns[0].items == [said("late")]
    assert state.open_turn is state.turns[1]


def test_items_before_any_turn_belong_to_none() -> None:
    state = begin(created())
    assert not state.has_content
    state.apply(ItemCompleted(at_ms=1, turn_id="t", item=said("x" * 2000)))
    assert (state.turns, len(state.preview)) == ([], 1024)


def test_one_writer_at_a_time_and_the_lock_names_it(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path / "locks" / "a")
    with pytest.raises(LockBusy) as caught:
        WriterLock(tmp_path / "locks" / "a")
    assert caught.value.holder.pid == os.getpid()
    lock.release()
    assert not (tmp_path / "locks" / "a").exists()
    WriterLock(tmp_path / "locks" / "a").release()


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    real_open, opened = os.open, []

    def open_then_remove(*args: Any) -> int:
        file = real_open(*args)
        opened.append(file)
        if len(opened) == 1:
            os.unlink(path)
        return file

    monkeypatch.setattr(os, "open", open_then_remove)
    lock = WriterLock(path)
    assert len(opened) == 2
    os.unlink(path)
    lock.release()


# The index.


def row(number: int, **changes: Any) -> ThreadRow:
    state = begin(created(at_ms=number, thread_id=f"id{number:04}"))
    state.apply(TurnStarted(at_ms=number, turn_id="t"))
    state.apply(ItemCompleted(at_ms=number, turn_id="t", item=said(f"hello {number}")))
    return replace(ThreadRow.of(state), **changes)


QUERY = ThreadQuery(limit=2)


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
        page = index.lists.page(query)
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
    page = index.lists.page(QUERY)
    index.put([row(9)], is_open=False)
    back = index.lists.page(replace(QUERY, cursor=page.backwards_cursor, ascending=True))
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
def test_a_cursor_of_nobody_is_refused(index: ThreadIndex, cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        index.lists.page(replace(QUERY, cursor=cursor))


def test_a_cursor_of_another_order_is_refused(index: ThreadIndex) -> None:
    index.put([row(1), row(2), row(3)], is_open=False)
    cursor = index.lists.page(QUERY).next_cursor
    with pytest.raises(InvalidCursor):
        index.lists.page(replace(QUERY, cursor=cursor, sort_key="updated_at_ms"))


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


# The store.


@asynccontextmanager
async def open_store(home: Path) -> AsyncIterator[ThreadStore]:
    store = ThreadStore(home)
    await store.open()
    running = asyncio.create_task(store.run())
    try:
        yield store
    finally:
        await store.aclose()
        running.cancel()
        await asyncio.wait({running})


async def listed(store: ThreadStore) -> list[tuple[str, str]]:
    page = await store.list_page(replace(QUERY, limit=100))
    return [(row.id, row.preview) for row in page.rows]


async def test_a_crash_leaves_rows_that_are_made_again(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        other = await store.create(created())
        await thread.append(
            TurnStarted(at_ms=5, turn_id="t"),
            ItemCompleted(at_ms=5, turn_id="t", item=said("hello")),
        )
        assert thread.state.preview == "hello"
        # As a crash would: the index never hears of the turn, the locks are gone.
        thread._changed = lambda _: None
        await thread.append(NameChanged(at_ms=6, name="named"))
        await thread.aclose()
        await other.aclose()
        store.path_of(other.id).unlink()
        store._behind.clear()
    async with open_store(tmp_path) as store:
        assert await listed(store) == [(thread.id, "hello")]
        page = await store.list_page(QUERY)
        assert page.rows[0].name == "named"
        assert store._index is not None
        assert store._index.open_ids() == []


async def test_a_row_whose_thread_another_process_holds_is_left_alone(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        async with open_store(tmp_path) as second:
            assert second._index is not None
            assert second._index.open_ids() == [thread.id]
            with pytest.raises(ThreadBusy, match=str(os.getpid())):
                await second.load(thread.id)
        await store.unload(thread)


@claim("threads:index-rebuilt")
async def test_an_index_that_is_missing_is_made_from_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.threads.index.rebuild.REBUILD_STEP", 2)
    async with open_store(tmp_path) as store:
        kept = []
        for number in range(5):
            thread = await store.create(created())
            await thread.append(
                TurnStarted(at_ms=number, turn_id="t"),
                ItemCompleted(at_ms=number, turn_id="t", item=said(f"hello {number}")),
            )
            await store.unload(thread)
            kept.append(thread.id)
        before = await listed(store)
        rows_before = (await store.list_page(replace(QUERY, limit=100))).rows
    (tmp_path / "threads" / "stray.jsonl").write_text("nothing\n")
    for file in (tmp_path / "index").iterdir():
        file.unlink()
    async with open_store(tmp_path) as store:
        assert await listed(store) == before
        assert (await store.list_page(replace(QUERY, limit=100))).rows == rows_before
    async with open_store(tmp_path) as store:
        assert await listed(store) == before
        assert {thread_id for thread_id, _ in before} == set(kept)


async def test_the_index_follows_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app_server.threads.store.FLUSH_S", 0)
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        await thread.append(NameChanged(at_ms=6, name="named"))
        with anyio.fail_after(WAIT_S):
            while store._behind:
                await asyncio.sleep(0)
            async with store._flushing:
                pass
        assert store._index is not None
        assert store._index.lists.page(QUERY).rows[0].name == "named"
        await store.unload(thread)


async def test_ephemeral_threads_leave_no_trace(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created(ephemeral=True))
        await thread.append(NameChanged(at_ms=1, name="n"))
        assert thread.ephemeral
        assert thread.state.name == "n"
        await store.unload(thread)
        assert await listed(store) == []
        with pytest.raises(ThreadNotFound):
            await store.read(thread.id)
    assert not (tmp_path / "threads").exists()


async def test_threads_that_are_none_are_refused(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        missing = CLOCK.new_id()
        for doing in (store.read, store.load, store.change):
            with pytest.raises(ThreadNotFound):
                await doing(missing)
            for strange in ("", "../x", missing.upper(), f"{{{missing}}}"):
                with pytest.raises(InvalidThreadId):
                    await doing(strange)
        store.path_of(missing).parent.mkdir(parents=True)
        store.path_of(missing).write_text("nothing\n")
        with pytest.raises(ThreadDamaged):
            await store.load(missing)
        assert not (tmp_path / "locks").exists()
        other_version = "00000000-0000-4000-8000-000000000000"
        assert store.path_of(other_version).parent.name == "other"


async def test_a_thread_that_cannot_be_written_is_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: RolloutWriter, records: Sequence[Record], *, sync: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with open_store(tmp_path) as store:
        monkeypatch.setattr(RolloutWriter, "append", refuse)
        with pytest.raises(OSError, match="No space left"):
            await store.create(created())
        assert not list((tmp_path / "locks").iterdir())
        (tmp_path / "locks").rmdir()
        (tmp_path / "locks").write_text("in the way")
        with pytest.raises(OSError, match="File exists"):
            await store.create(created())


async def test_a_folder_in_the_way_of_a_log_frees_the_lock(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        first = created()
        store.path_of(first.thread_id).mkdir(parents=True)
        with pytest.raises(OSError, match="Is a directory"):
            await store.create(first)
        assert not list((tmp_path / "locks").iterdir())


# thread/* as clients use them.


@claim("threads:started", "threads:restart")
async def test_a_restart_finds_every_thread_as_it_was(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        result = await client.call(
            "thread/start",
            {
                "model": "m1",
                "cwd": "/tmp",
                "approvalPolicy": "never",
                "sandbox": "workspace-write",
                "developerInstructions": "be kind",
                "threadSource": "user",
            },
        )
        thread = result["thread"]
        started = await client.wait_for("thread/started")
        assert started["params"]["thread"] == thread
        assert thread["id"] == thread["sessionId"]
        assert (thread["preview"], thread["turns"]) == ("", [])
        assert (thread["status"], thread["ephemeral"]) == ({"type": "idle"}, False)
        assert (thread["cliVersion"], thread["originator"]) == ("0.169.0", "test")
        assert (result["model"], result["cwd"]) == ("m1", "/tmp")
        assert result["approvalPolicy"] == "never"
        assert result["sandbox"]["type"] == "workspaceWrite"
        assert Path(thread["path"]).exists()
        await client.turn(thread["id"], "hello")
        await client.call("thread/name/set", {"threadId": thread["id"], "name": " my thread "})
        with_turns = {"threadId": thread["id"], "includeTurns": True}
        before = (await client.call("thread/read", with_turns))["thread"]
        empty = await client.start_thread()
    async with serve(tmp_path) as served, served.client() as client:
        stored = (await client.call("thread/read", with_turns))["thread"]
        gone = {"status": {"type": "notLoaded"}, "environments": None, "canAcceptDirectInput": None}
        assert stored == before | gone
        assert stored["name"] == "my thread"
        listed = (await client.call("thread/list", {}))["data"]
        assert listed == [stored | {"turns": []}]
        resumed = await client.call("thread/resume", {"threadId": thread["id"]})
        assert resumed["thread"] == before
        assert {key: resumed[key] for key in ("model", "cwd", "approvalPolicy", "sandbox")} == {
            key: result[key] for key in ("model", "cwd", "approvalPolicy", "sandbox")
        }
        usage = await client.wait_for("thread/tokenUsage/updated")
        assert usage["params"]["tokenUsage"]["total"]["totalTokens"] == 15
        await client.turn(thread["id"], "again")
        sent = served.model.requests[-1]["input"]
        assert [(item["role"], item["content"][0]["text"]) for item in sent] == [
            ("developer", "be kind"),
            ("user", "hello"),
            ("assistant", "ok"),
            ("user", "again"),
        ]
        assert (await client.call("thread/resume", {"threadId": empty}))["thread"]["id"] == empty


@claim("threads:resume-unknown", "threads:not-found")
async def test_threads_that_are_not_there_are_named_in_the_error(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        unknown = CLOCK.new_id()
        for method, params, text in (
            ("thread/resume", {}, f"no rollout found for thread id {unknown}"),
            ("thread/read", {}, f"thread not loaded: {unknown}"),
            ("thread/archive", {}, f"no rollout found for thread id {unknown}"),
            ("thread/unarchive", {}, f"no archived rollout found for thread id {unknown}"),
            ("thread/name/set", {"name": "x"}, f"no rollout found for thread id {unknown}"),
            ("thread/inject_items", {"items": [raw("x")]}, f"thread not found: {unknown}"),
            ("turn/start", {"input": []}, f"thread not found: {unknown}"),
            ("turn/steer", {"input": [], "expectedTurnId": "x"}, f"thread not found: {unknown}"),
            ("turn/interrupt", {"turnId": ""}, f"thread not found: {unknown}"),
            ("mcpServer/tool/call", {"server": "s", "tool": "t"}, f"thread not found: {unknown}"),
            ("mcpServerStatus/list", {}, f"thread not found: {unknown}"),
        ):
            error = await client.refusal(method, {"threadId": unknown, **params})
            assert (error.code, error.message) == (-32600, text)
            assert error.data == {"code": "threadNotFound", "threadId": unknown}
        assert await client.call("thread/unsubscribe", {"threadId": unknown}) == {
            "status": "notLoaded"
        }
        strange = await client.refusal("thread/resume", {"threadId": "zz"})
        assert (strange.message, strange.data["code"]) == (
            "invalid thread id: zz",
            "invalidThreadId",
        )


@claim("threads:list-filters")
async def test_lists_page_and_filter(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        names = ["one", "two", "three"]
        made = []
        for name in names:
            made.append(await client.start_thread(cwd=f"/tmp/{name}"))
            await client.turn(made[-1], f"about {name}")
        page = await client.call("thread/list", {"limit": 2})
        assert [thread["id"] for thread in page["data"]] == [made[2], made[1]]
        rest = await client.call("thread/list", {"cursor": page["nextCursor"], "limit": 0})
        assert [thread["id"] for thread in rest["data"]] == [made[0]]
        assert rest["nextCursor"] is None

        async def found(**params: Any) -> list[str]:
            result = await client.call("thread/list", params)
            return [names[made.index(thread["id"])] for thread in result["data"]]

        assert await found(searchTerm="TWO") == ["two"]
        assert await found(cwd="/tmp/three/../one") == ["one"]
        assert await found(cwd=["/tmp/one", "/tmp/two"], sortDirection="asc") == ["one", "two"]
        assert await found(modelProviders=["scripted"]) == ["three", "two", "one"]
        assert await found(modelProviders=["openai"]) == []
        assert await found(sourceKinds=["cli"]) == []
        assert await found(excludedThreadIds=made[:2]) == ["three"]
        assert await found(sectionId="x") == await found(parentThreadId=made[0]) == []
        bad = await client.refusal("thread/list", {"cursor": "zz"})
        assert (bad.code, bad.message) == (-32600, "invalid cursor: zz")
        assert bad.data == {"code": "invalidCursor", "cursor": "zz"}
        loaded = await client.call("thread/loaded/list", {"limit": 2})
        assert loaded == {"data": made[:2], "nextCursor": made[1]}
        following = await client.call("thread/loaded/list", {"cursor": made[1]})
        assert following == {"data": made[2:], "nextCursor": None}
        bad = await client.refusal("thread/loaded/list", {"cursor": "zz"})
        assert bad.message == "invalid cursor: zz"


@claim("threads:archive")
async def test_archiving_puts_a_thread_away_and_unarchiving_brings_it_back(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread()
        gate = Gate()
        served.model.scripts.append([gate])
        await client.call(
            "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": "hi"}]}
        )
        await gate.wait_until_reached()
        here = {"threadId": thread_id}
        assert await client.call("thread/archive", here) == {}
        gate.opened.set()
        messages = await client.until("thread/archived")
        assert [
            message["params"].get("turn", message["params"]).get("status")
            for message in messages
            if message["method"] in ("turn/completed", "thread/status/changed")
        ][-3:] == [{"type": "idle"}, "interrupted", {"type": "notLoaded"}]
        archived = await other.wait_for("thread/archived")
        assert archived["params"] == here
        assert (await client.refusal("turn/start", {**here, "input": []})).message == (
            f"thread not found: {thread_id}"
        )
        refused = await client.refusal("thread/resume", here)
        assert refused.data == {"code": "threadArchived", **here}
        assert (await client.call("thread/list", {}))["data"] == []
        away = (await client.call("thread/list", {"archived": True}))["data"]
        assert [thread["id"] for thread in away] == [thread_id]
        back = await client.call("thread/unarchive", here)
        assert back["thread"] == away[0]
        assert (await other.wait_for("thread/unarchived"))["params"] == here
        assert (await client.refusal("thread/unarchive", here)).message == (
            f"no archived rollout found for thread id {thread_id}"
        )
        assert (await client.call("thread/list", {}))["data"] == [back["thread"]]


@claim("threads:unsubscribe")
async def test_a_client_that_unsubscribed_hears_no_more(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        await other.call("thread/resume", here)
        assert await client.call("thread/unsubscribe", here) == {"status": "unsubscribed"}
        assert await client.call("thread/unsubscribe", here) == {"status": "notSubscribed"}
        await other.turn(thread_id, "hello")
        await other.call("thread/name/set", {**here, "name": "end"})
        heard = [message["method"] for message in await client.until("thread/name/updated")]
        assert heard == ["thread/status/changed", "thread/status/changed", "thread/name/updated"]


@claim("threads:unload-asked")
async def test_a_thread_is_let_go_when_its_last_client_asks(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")
        asks = {"threadId": thread_id, "unload": True}
        lock = tmp_path / "locks" / f"{thread_id}.lock"
        await other.call("thread/resume", {"threadId": thread_id})
        answer = await client.call("thread/unsubscribe", asks)
        assert (answer, lock.exists()) == ({"status": "unsubscribed", "unloaded": False}, True)
        answer = await other.call("thread/unsubscribe", asks)
        assert (answer, lock.exists()) == ({"status": "unsubscribed", "unloaded": True}, False)
        closed = await client.wait_for("thread/closed")
        assert closed["params"] == {"threadId": thread_id}
        answer = await other.call("thread/unsubscribe", asks)
        assert answer == {"status": "notLoaded", "unloaded": True}


@claim("threads:unload-asked")
async def test_a_thread_is_not_let_go_while_a_turn_runs(tmp_path: Path) -> None:
    gate = Gate()
    model = ScriptedModel()
    model.scripts = [[gate, *says("done")]]
    async with serve(tmp_path, model=model) as served, served.client() as client:
        thread_id = await client.start_thread()
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        await client.call("turn/start", params)
        await gate.wait_until_reached()
        asks = {"threadId": thread_id, "unload": True}
        answer = await client.call("thread/unsubscribe", asks)
        assert answer == {"status": "unsubscribed", "unloaded": False}
        gate.opened.set()
        await client.call("thread/resume", {"threadId": thread_id})


@claim("threads:name")
async def test_names_are_for_stored_threads_and_not_blank(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        error = await client.refusal("thread/name/set", {"threadId": thread_id, "name": " \n"})
        assert (error.code, error.message) == (-32600, "thread name must not be empty")
        await client.call("thread/name/set", {"threadId": thread_id, "name": "loaded"})
        event = await client.wait_for("thread/name/updated")
        assert event["params"] == {"threadId": thread_id, "threadName": "loaded"}
    async with serve(tmp_path) as served, served.client() as client:
        await client.call("thread/name/set", {"threadId": thread_id, "name": "stored"})
        result = await client.call("thread/read", {"threadId": thread_id})
        assert result["thread"]["name"] == "stored"


@claim("threads:ephemeral")
async def test_ephemeral_threads_live_in_memory_alone(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(ephemeral=True)
        here = {"threadId": thread_id}
        await client.turn(thread_id, "hello")
        read = await client.call("thread/read", here)
        assert (read["thread"]["path"], read["thread"]["ephemeral"]) == (None, True)
        for method, params, text in (
            (
                "thread/read",
                {"includeTurns": True},
                "ephemeral threads do not support includeTurns",
            ),
            (
                "thread/name/set",
                {"name": "x"},
                f"ephemeral thread does not support metadata updates: {thread_id}",
            ),
            ("thread/archive", {}, f"no rollout found for thread id {thread_id}"),
        ):
            error = await client.refusal(method, {**here, **params})
            assert (error.code, error.message) == (-32600, text)
        assert (await client.call("thread/list", {}))["data"] == []


async def test_a_thread_that_another_process_writes_is_named_busy(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        async with serve(tmp_path) as second, second.client() as late:
            error = await late.refusal("thread/resume", {"threadId": thread_id})
            assert error.code == -32600
            assert error.message == f"thread {thread_id} already has an active writer"
            holder = {"pid": os.getpid(), "startedAt": STARTED_AT, "address": served.urls[0]}
            assert error.data == {"code": "threadBusy", "threadId": thread_id, "holder": holder}
            read = await late.call("thread/read", {"threadId": thread_id})
            assert read["thread"]["id"] == thread_id


@claim("threads:unload")
async def test_a_thread_that_nobody_listens_to_is_unloaded_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.sessions.unloading.SWEEP_S", 0.001)
    config = "thread_unload_delay_secs = 0"
    async with serve(tmp_path, config=config) as served, served.client() as client:
        quiet, heard = await client.start_thread(), await client.start_thread()
        await client.call("thread/unsubscribe", {"threadId": quiet})
        messages = await client.until("thread/closed")
        assert [message["params"] for message in messages[-2:]] == [
            {"threadId": quiet, "status": {"type": "notLoaded"}},
            {"threadId": quiet},
        ]
        loaded = await client.call("thread/loaded/list", {})
        assert loaded["data"] == [heard]
        assert (await client.call("thread/resume", {"threadId": quiet}))["thread"]["id"] == quiet
        changed = await client.wait_for("thread/status/changed")
        assert changed["params"] == {"threadId": quiet, "status": {"type": "idle"}}


@claim("threads:resume-overrides")
async def test_resuming_can_change_the_settings_of_a_thread_that_is_not_loaded(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
    async with serve(tmp_path) as served, served.client() as client:
        result = await client.call(
            "thread/resume",
            {"threadId": thread_id, "model": "m2", "cwd": "sub", "sandbox": "danger-full-access"},
        )
        assert (result["model"], result["cwd"]) == ("m2", str(tmp_path / "sub"))
        assert result["sandbox"] == {"type": "dangerFullAccess"}
        again = await client.call("thread/resume", {"threadId": thread_id, "excludeTurns": True})
        assert (again["model"], again["thread"]["turns"]) == ("m2", [])
    async with serve(tmp_path) as served, served.client() as client:
        assert (await client.call("thread/resume", {"threadId": thread_id}))["model"] == "m2"


@claim("bounds:long-history")
def test_a_history_that_fits_no_message_loses_old_items_then_old_turns() -> None:
    state = begin(created())

    def add(number: int, size: int) -> None:
        state.apply(TurnStarted(at_ms=number, turn_id=f"t{number}"))
        item = AgentMessageThreadItem(id="a", text="x" * size)
        state.apply(ItemCompleted(at_ms=number, turn_id=f"t{number}", item=item))
        state.apply(TurnCompleted(at_ms=number, turn_id=f"t{number}", status="completed"))

    for number in range(3):
        add(number, MAX_TURNS_CHARS // 2)
    shown = turns_of_state(state)
    assert [(turn.id, turn.items_view, len(turn.items)) for turn in shown] == [
        ("t0", "notLoaded", 0),
        ("t1", "notLoaded", 0),
        ("t2", "full", 1),
    ]
    for number in range(3, 9000):
        add(number, 0)
    many = turns_of_state(state)
    assert many[-1].id == "t8999"
    assert sum(len(turn.model_dump_json()) for turn in many) <= MAX_TURNS_CHARS


async def test_a_home_that_cannot_be_used_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "index").write_text("in the way")
    with pytest.raises(OSError, match="index"):
        async with serve(tmp_path / "home"):
            pass


@claim("errors:storage")
async def test_a_full_disk_is_said_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        injected = {"threadId": thread_id, "items": [raw("kept", "developer")]}
        await client.call("thread/inject_items", injected)

        def refuse(self: RolloutWriter, records: Sequence[Record], *, sync: bool) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(RolloutWriter, "append", refuse)
            for method, params in (
                ("thread/inject_items", {"items": [raw("lost")]}),
                ("turn/start", {"input": [{"type": "text", "text": "lost"}]}),
                ("thread/name/set", {"name": "lost"}),
                ("thread/start", {}),
            ):
                named = {} if method == "thread/start" else {"threadId": thread_id}
                error = await client.refusal(method, {**named, **params})
                assert error.code == -32603
                assert "No space left on device" in error.message
                assert error.data["code"] == "storageFailed"
        await client.turn(thread_id, "after")
        assert served.model.inputs() == [("developer", "kept"), ("user", "after")]


class NoModel:
    """A model that nobody asks."""

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[Any]:
        raise AssertionError("no turn runs")


async def test_a_thread_that_is_loaded_while_it_is_put_away_is_loaded_again(
    tmp_path: Path,
) -> None:
    clock = SystemClock()
    hub = Hub(clock.now_ms)
    store = ThreadStore(tmp_path)
    await store.open()

    async def configure(state: ThreadState) -> tuple[Config, Settings]:
        return Config({}), state.settings

    async with anyio.create_task_group() as tasks:
        file = approvals_in(tmp_path)
        ports = SessionPorts(
            store=store,
            model=NoModel(),
            clients=hub,
            clock=clock,
            approvals=file,
            processes=NoProcesses(),
        )
        sessions = Sessions(ports, tasks, 0.0)
        first = await sessions.loading.start(created(), Config({}))
        async with anyio.create_task_group() as at_once:
            at_once.start_soon(sessions.unload, first.thread.id)
            while not first.closed:
                await anyio.lowlevel.checkpoint()
            second = await sessions.loading.load(first.thread.id, configure)
        assert second is not first
        assert sessions.find(first.thread.id) is second
        await second.input.inject([{"type": "message", "role": "developer", "content": []}])
        await sessions.aclose()
    await store.aclose()
