"""threads: a log that is open: what is written before what, and what is left when it is closed."""

import errno
import os
from pathlib import Path

import pytest

from app_server.threads.failures import ThreadBusy
from app_server.threads.files.writers import FileLog, FileWriter, LogPaths, LogWriters
from app_server.threads.log.faults import FirstLineDamaged
from app_server.threads.log.live import LiveThread, LogClosed
from app_server.threads.log.reading import load_state, read_created, scan_lines
from app_server.threads.log.state import NotARollout, ThreadState, begin
from protocol.log.rollout import (
    HistoryAppended,
    ItemCompleted,
    NameChanged,
    SignalMark,
    TurnCompleted,
    TurnsReverted,
    TurnStarted,
    render_record,
)
from tests.support.threads.stores import created, raw, user_message


def writers_of(folder: Path) -> LogWriters:
    return LogWriters(folder / "locks", LogPaths(folder / "threads"))


async def begun(folder: Path) -> tuple[LiveThread, LogWriters]:
    """Begin a thread whose log has its first line."""
    writers, first = writers_of(folder), created()
    writer = writers.open(first.thread_id)
    writer.append([first], sync=True)
    return LiveThread(begin(first), FileWriter(writer), lambda state: None), writers


class Follower:
    """Keeps the state of a log after each append."""

    def __init__(self) -> None:
        self.states: list[ThreadState] = []

    def log_grew(self, state: ThreadState) -> None:
        self.states.append(state)


def types(thread: LiveThread, folder: Path) -> list[str]:
    return [
        line.type for line in scan_lines(FileLog(LogPaths(folder / "threads").path_of(thread.id)))
    ]


async def test_a_revert_is_written_behind_what_was_deferred_and_read_back_alike(
    tmp_path: Path,
) -> None:
    thread, _ = await begun(tmp_path)
    mark = SignalMark(source="s", id="i", item_id="item")
    await thread.append(
        TurnStarted(at_ms=2000, turn_id="a"),
        ItemCompleted(at_ms=2001, turn_id="a", item=user_message("kept")),
        TurnCompleted(at_ms=2002, turn_id="a", status="completed"),
        TurnStarted(at_ms=2003, turn_id="b"),
        HistoryAppended(at_ms=2004, items=[raw("signal")], signals=[mark]),
    )
    thread.defer(TurnCompleted(at_ms=2005, turn_id="b", status="failed"))
    follower = Follower()
    thread.followers = [follower]
    await thread.revert(TurnsReverted(at_ms=2006, before_turn_id="b"))
    assert types(thread, tmp_path) == [
        *("threadCreated", "turnStarted", "itemCompleted", "turnCompleted"),
        *("turnStarted", "historyAppended", "turnCompleted", "turnsReverted"),
    ]
    assert [turn.id for turn in thread.state.turns] == ["a"]
    assert (thread.state.updated_at_ms, thread.state.history) == (2006, [])
    # The signal that went with it counts as taken back.
    place = thread.state.signals.find(("s", "i"))
    assert place is not None
    assert place.stage == "recalled"
    assert follower.states[-1] is thread.state
    path = LogPaths(tmp_path / "threads").path_of(thread.id)
    assert load_state(FileLog(path)) == thread.state
    await thread.aclose()


async def test_nothing_is_written_to_a_log_that_was_closed(tmp_path: Path) -> None:
    thread, writers = await begun(tmp_path)
    assert writers.holder(thread.id) is not None
    last: list[ThreadState] = []
    thread.defer(NameChanged(at_ms=2000, name="deferred"))
    await thread.aclose(last.append)
    await thread.aclose(last.append)
    assert last == [thread.state]
    assert types(thread, tmp_path) == ["threadCreated", "nameChanged"]
    assert (await thread.log_end(), writers.holder(thread.id)) == (None, None)
    for write in (
        thread.append(NameChanged(at_ms=1, name="late")),
        thread.revert(TurnsReverted(at_ms=1, before_turn_id="a")),
    ):
        with pytest.raises(LogClosed) as refused:
            await write
        assert (refused.value.errno, refused.value.strerror, refused.value.filename) == (
            *(errno.EBADF, "the thread was unloaded", thread.id),
        )
    assert thread.state.name == "deferred"


async def test_a_log_grows_by_its_lines_and_nothing_changes_nothing(tmp_path: Path) -> None:
    thread, _ = await begun(tmp_path)
    length = await thread.log_end()
    record = NameChanged(at_ms=2000, name="n")
    assert length is not None
    follower = Follower()
    thread.followers = [follower]
    assert await thread.change(lambda state: []) == []
    assert (await thread.log_end(), follower.states) == (length, [])
    assert await thread.change(lambda state: [record]) == [record]
    assert await thread.log_end() == length + len(render_record(record))
    assert follower.states == [thread.state]
    await thread.aclose()


async def test_warnings_are_taken_once(tmp_path: Path) -> None:
    thread = LiveThread(begin(created(ephemeral=True)), None, lambda state: None, ["w"])
    assert (thread.take_warnings(), thread.take_warnings(), thread.ephemeral) == (["w"], [], True)


async def test_a_log_has_one_writer_and_its_lock_is_free_where_it_cannot_be_opened(
    tmp_path: Path,
) -> None:
    writers, thread_id = writers_of(tmp_path), created().thread_id
    writers.address = "ws://here"
    before = os.listdir("/dev/fd")
    with pytest.raises(FileNotFoundError):
        writers.open(thread_id, must_exist=True)
    assert (list((tmp_path / "locks").iterdir()), os.listdir("/dev/fd")) == ([], before)
    writer = writers.open(thread_id)
    for refused in (lambda: writers.open(thread_id), lambda: writers.locked(thread_id).__enter__()):
        with pytest.raises(ThreadBusy, match=f"process {os.getpid()} at ws://here"):
            refused()
    holder = writers.holder(thread_id)
    assert holder is not None
    assert (holder.pid, holder.address) == (os.getpid(), "ws://here")
    writer.close()
    with writers.locked(thread_id), pytest.raises(ThreadBusy):
        writers.open(thread_id)
    assert writers.holder(thread_id) is None
    writers.open(thread_id, must_exist=True).close()


# Reading.


def test_the_first_line_says_which_thread_it_is(tmp_path: Path) -> None:
    path, first = tmp_path / "log", created()
    for content, failure in (
        (b"", NotARollout),
        (b'{"torn', NotARollout),
        (b"damaged\n", FirstLineDamaged),
        (render_record(NameChanged(at_ms=1, name="n")), FirstLineDamaged),
    ):
        path.write_bytes(content)
        with pytest.raises(NotARollout) as refused:
            read_created(FileLog(path))
        assert type(refused.value) is failure
        with pytest.raises(NotARollout) as refused:
            load_state(FileLog(path))
        assert type(refused.value) is failure
    path.write_bytes(render_record(first) + b"damaged\n")
    assert read_created(FileLog(path)) == first


def test_a_thread_that_is_only_looked_at_has_all_but_its_history(tmp_path: Path) -> None:
    path = tmp_path / "log"
    records = [
        created(),
        TurnStarted(at_ms=2000, turn_id="a"),
        HistoryAppended(at_ms=3000, items=[raw("x")]),
        ItemCompleted(at_ms=4000, turn_id="a", item=user_message("first")),
        ItemCompleted(at_ms=5000, turn_id="a", item=user_message("second")),
        HistoryAppended(at_ms=6000, items=[]),
    ]
    for count in range(2, len(records) + 1):
        path.write_bytes(b"".join(map(render_record, records[:count])))
        whole, looked = load_state(FileLog(path)), load_state(FileLog(path), with_history=False)
        assert looked.updated_at_ms == whole.updated_at_ms == records[count - 1].at_ms
        assert (looked.turns, looked.preview) == (whole.turns, whole.preview)
        assert (looked.history, looked.history_left_out) == ([], count >= 3)
        assert looked.has_content
    empty = render_record(HistoryAppended(at_ms=6000, items=[]))
    path.write_bytes(render_record(created()) + empty)
    looked = load_state(FileLog(path), with_history=False)
    assert (looked.history_left_out, looked.has_content) == (False, False)
