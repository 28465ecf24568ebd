"""threads: logs, the state that they make, and the locks of writers."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.threads.files.locks import LockBusy, WriterLock
from app_server.threads.files.writers import LogWriter
from app_server.threads.log.state import NotARollout, begin, replay
from protocol.log.rollout import (
    HistoryAppended,
    InputQueued,
    InputTaken,
    ItemCompleted,
    NameChanged,
    Record,
    TurnCompleted,
    TurnStarted,
    render_record,
)
from tests.support.harness import claim
from tests.support.threads.rollouts import read_rollout
from tests.support.threads.stores import created, raw, records, user_message


@claim("rollout:replay", "rollout:torn-line")
@settings(max_examples=60, deadline=None)
@given(st.lists(records, max_size=12), st.integers(0, 200))
def test_what_is_read_back_equals_what_was_appended(
    tmp_path_factory: pytest.TempPathFactory, appended: list[Record], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    first = created()
    live = begin(first)
    writer = LogWriter(folder / "log", WriterLock(folder / "lock"))
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
    writer = LogWriter(folder / "log", WriterLock(folder / "lock"))
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
    writer = LogWriter(path, WriterLock(tmp_path / "lock"))
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
    LogWriter(path, WriterLock(tmp_path / "lock")).close()
    assert path.read_bytes() == whole
    path.write_bytes(b"x" * 200_000)
    LogWriter(path, WriterLock(tmp_path / "lock")).close()
    assert path.read_bytes() == b""


@claim("rollout:all-or-nothing")
def test_a_write_that_the_disk_refuses_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    writer = LogWriter(path, WriterLock(tmp_path / "lock"))
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


@claim("rollout:all-or-nothing")
def test_what_could_not_be_cut_off_either_is_cut_off_before_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that becomes read-only in the middle of a write; then it is mounted again."""
    path = tmp_path / "log"
    writer = LogWriter(path, WriterLock(tmp_path / "lock"))
    writer.append([created()], sync=True)
    before = path.read_bytes()
    real_write = os.write

    def failing_disk(file: int, content: bytes) -> int:
        if path.read_bytes() == before:
            return real_write(file, content[:10])
        raise OSError(errno.EROFS, "read-only")

    def refuse(file: int, length: int) -> None:
        raise OSError(errno.EROFS, "read-only")

    monkeypatch.setattr(os, "write", failing_disk)
    monkeypatch.setattr(os, "ftruncate", refuse)
    for _ in range(2):
        with pytest.raises(OSError, match="read-only"):
            writer.append([NameChanged(at_ms=1, name="n")], sync=True)
    monkeypatch.undo()
    writer.append([NameChanged(at_ms=2, name="again")], sync=True)
    writer.close()
    assert path.read_bytes().startswith(before + b'{"v":')
    assert replay(read_rollout(path)).name == "again"


def test_a_log_that_cannot_be_repaired_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"torn")
    monkeypatch.setattr(os, "ftruncate", _refuse_truncation(os.ftruncate))
    with pytest.raises(OSError, match="read-only"):
        LogWriter(path, WriterLock(tmp_path / "lock"))


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
        InputQueued(at_ms=2, input_id="1", items=[raw("second")], message=user_message("second")),
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
    assert state.turns[0].items == [user_message("second")]
    assert state.pending_input == []
    state.apply(queued[1])
    state.apply(TurnCompleted(at_ms=9, turn_id="t", status="completed", duration_ms=8))
    assert state.history[-1] == raw("third", "developer")
    assert (state.turns[0].status, state.turns[0].completed_at_ms) == ("completed", 9)
    assert state.open_turn is None


def test_a_turn_that_never_ended_is_given_up_when_the_next_one_begins() -> None:
    state = begin(created())
    state.apply(TurnStarted(at_ms=1, turn_id="lost"))
    queued = InputQueued(at_ms=2, input_id="1", items=[raw("late")], message=user_message("late"))
    state.apply(queued)
    state.apply(TurnStarted(at_ms=3, turn_id="next"))
    state.apply(TurnCompleted(at_ms=4, turn_id="lost", status="completed"))
    assert [(turn.id, turn.status) for turn in state.turns] == [
        ("lost", "interrupted"),
        ("next", "inProgress"),
    ]
    assert state.turns[0].items == [user_message("late")]
    assert state.open_turn is state.turns[1]


def test_items_before_any_turn_belong_to_none() -> None:
    state = begin(created())
    assert not state.has_content
    state.apply(ItemCompleted(at_ms=1, turn_id="t", item=user_message("x" * 2000)))
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
