"""threads: files of logs and locks, each part alone."""

import errno
import fcntl
import json
import os
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from app_server.runtime import clock
from app_server.sessions.memory_budget import HistorySizes, size_of
from app_server.threads.failures import Holder, InvalidThreadId
from app_server.threads.files import locks, writers
from app_server.threads.files.locks import (
    LockBusy,
    SharedLock,
    WriterLock,
    holder_of,
    known_holder,
    short_lock,
)
from app_server.threads.files.writers import FileLog, LogPaths, LogWriter, whole_lines
from app_server.threads.log import reading
from app_server.threads.log.faults import LogFaults
from app_server.threads.log.reading import Line, read_lines, scan_lines
from app_server.threads.log.state import begin
from protocol.log.rollout import HistoryAppended, NameChanged, render_record
from tests.support.threads.stores import created, raw


def descriptors_open() -> list[str]:
    return os.listdir("/dev/fd")


# Faults.


@pytest.mark.parametrize(
    ("count", "named"),
    [
        (1, "line 1 is"),
        (2, "2 lines (1, 2) are"),
        (5, "5 lines (1, 2, 3, 4, 5) are"),
        (6, "6 lines (1, 2, 3, 4, 5, ...) are"),
    ],
)
def test_five_lines_of_each_kind_are_named(count: int, named: str) -> None:
    faults = LogFaults()
    assert faults.texts(Path("log")) == []
    for number in range(1, count + 1):
        faults.add_damaged(number)
    assert faults.texts(Path("log")) == [f"log: {named} damaged; skipped, and kept in the file"]
    faults = LogFaults(torn_bytes=3)
    for number in range(1, count + 1):
        faults.add_newer(number)
    assert faults.texts(Path("log")) == [
        "log: a crash tore the last line (3 bytes); it was never acknowledged, and it is left out",
        f"log: {named} of a newer version; skipped, and kept in the file",
    ]
    assert (faults.newer, faults.damaged) == (count, 0)


# Lines.


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"123\n12", [Line(1, b"123\n", True), Line(2, b"12", False)]),
        (b"\n\n", [Line(1, b"\n", True), Line(2, b"\n", True)]),
        # As long as the bound with its end; one byte longer; and behind it.
        (b"1234\n1\n", [Line(1, b"1234\n", True), Line(2, b"1\n", True)]),
        (b"12345\n1\n", [Line(1, None, True), Line(2, b"1\n", True)]),
        (b"12345678901\n1", [Line(1, None, True), Line(2, b"1", False)]),
        (b"12345", [Line(1, None, False)]),
        (b"1\n1234567890", [Line(1, b"1\n", True), Line(2, None, False)]),
    ],
)
def test_lines_are_read_up_to_a_length(content: bytes, lines: list[Line]) -> None:
    assert list(read_lines(BytesIO(content), 5)) == lines


def test_a_line_of_a_log_has_256_mib() -> None:
    assert reading.MAX_LINE_BYTES == 256 * 1024 * 1024


def test_lines_are_walked_from_a_place_to_another(tmp_path: Path) -> None:
    path = tmp_path / "log"
    records = [NameChanged(at_ms=number, name="n") for number in range(3)]
    lines = [render_record(record) for record in records]
    path.write_bytes(b"".join(lines) + b"torn")
    size = len(lines[0])
    found = list(scan_lines(FileLog(path)))
    assert [(line.offset, line.end, line.type, line.at_ms) for line in found] == [
        (size * number, size * (number + 1), "threadNameChanged", number)
        if line.type == "threadNameChanged"
        else (size * number, size * (number + 1), line.type, number)
        for number, line in enumerate(found)
    ]
    assert len(found) == 3
    for end, count in ((0, 0), (1, 1), (size, 1), (size + 1, 2), (2 * size, 2), (None, 3)):
        assert len(list(scan_lines(FileLog(path), 0, end))) == count
    assert [line.offset for line in scan_lines(FileLog(path), size, 2 * size)] == [size]


@pytest.mark.parametrize("step", [64 * 1024])
def test_the_last_whole_line_is_found_wherever_it_ends(tmp_path: Path, step: int) -> None:
    path = tmp_path / "log"
    for content, length in (
        (b"", 0),
        (b"\n", 1),
        (b"x", 0),
        (b"a\nb", 2),
        (b"a\nb\n", 4),
        # Around the pieces in which it is looked for, from the end.
        *((b"a\n" + b"x" * (step + more), 2) for more in (-2, -1, 0, 1)),
        *((b"\n" + b"x" * (step * 2 + more), 1) for more in (-1, 0, 1)),
        (b"x" * (step * 2 + 1), 0),
    ):
        path.write_bytes(content)
        with path.open("rb") as file:
            assert whole_lines(file.fileno()) == length


# Descriptors.


def test_the_spare_descriptor_is_given_for_a_file_and_had_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    real_open = os.open
    left = 1

    def open_few(name: Any, flags: int, *more: Any) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.EMFILE, "Too many open files")
        left -= 1
        return real_open(name, flags, *more)

    def close(number: int) -> None:
        nonlocal left
        left += 1
        real_close(number)

    real_close = os.close
    monkeypatch.setattr(writers, "_spare", writers._Spare())
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_few)
        patch.setattr(os, "close", close)
        # The only one becomes the spare one, gives way each time, and is had again.
        for _ in range(3):
            with writers.open_file(path, os.O_RDONLY) as file:
                assert os.pread(file, 1, 0) == b"x"
                assert left == 0
            assert left == 0
        left = 1
        before = descriptors_open()
        with writers.open_file(path, os.O_RDONLY):
            pass
        assert descriptors_open() == before
    writers._spare.give_way()
    with pytest.raises(FileNotFoundError), writers.open_file(tmp_path / "none", os.O_RDONLY):
        pass


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        with writers.open_file(tmp_path / "new", os.O_RDWR | os.O_CREAT) as file:
            assert not os.get_inheritable(file)
    finally:
        os.umask(umask)
    assert (tmp_path / "new").stat().st_mode & 0o7777 == 0o600


# Locks.


def test_who_takes_a_lock_is_said_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "made" / "lock"
    before = descriptors_open()
    lock = WriterLock(path, "ws://127.0.0.1:1")
    assert json.loads(path.read_text()) == {
        "pid": os.getpid(),
        "startedAt": clock.STARTED_AT,
        "address": "ws://127.0.0.1:1",
    }
    holder = Holder(os.getpid(), clock.STARTED_AT, "ws://127.0.0.1:1")
    assert (holder_of(path), known_holder(path)) == (holder, holder)
    held = descriptors_open()
    with pytest.raises(LockBusy) as busy:
        WriterLock(path)
    assert busy.value.holder == holder
    assert descriptors_open() == held
    lock.release()
    assert (path.exists(), descriptors_open()) == (False, before)
    assert known_holder(path) is None
    with pytest.raises(FileNotFoundError):
        holder_of(path)
    path.write_text("{}")
    assert (holder_of(path), descriptors_open()) == (None, before)
    assert path.parent.stat().st_mode & 0o7777 == 0o700


def test_a_lock_is_tried_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    lock = WriterLock(tmp_path / "lock")
    with pytest.raises(LockBusy):
        WriterLock(tmp_path / "lock")
    assert slept == [0.001, 0.005, 0.02]
    lock.release()


@pytest.mark.parametrize(
    ("content", "holder"),
    [
        ('{"pid": 1, "startedAt": 2, "address": "a", "more": 0}', Holder(1, 2, "a")),
        ('{"pid": "1", "startedAt": 2.5, "address": 3}', Holder()),
        ('{"startedAt": 2}', Holder(None, 2, None)),
        ('{"pid": 1}', Holder(1)),
        ('{"address": "a"}', Holder(None, None, "a")),
        ("[]", Holder()),
        ("", Holder()),
        ("{", Holder()),
        ('{"pid": 1}' + " " * 4086, Holder(1)),
        ('{"pid": 1}' + " " * 4086 + "x", Holder(1)),
    ],
)
def test_a_file_that_says_less_names_less(tmp_path: Path, content: str, holder: Holder) -> None:
    path = tmp_path / "lock"
    path.write_text(content)
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert holder_of(path) == holder


def test_a_holder_is_said_in_a_few_words() -> None:
    said = [str(Holder()), str(Holder(7)), str(Holder(7, 1, "a")), str(Holder(None, 1, "a"))]
    assert said == ["an unknown process", "process 7", "process 7 at a", "an unknown process at a"]


def test_who_shares_a_lock_learns_whether_it_is_alone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    before = descriptors_open()
    first = SharedLock(path)
    assert [first.is_only_one(), first.is_only_one()] == [True, True]
    second = SharedLock(path)
    # To ask takes nothing away from anybody.
    assert [first.is_only_one(), second.is_only_one(), first.is_only_one()] == [False] * 3
    second.release()
    assert first.is_only_one()
    third = SharedLock(path)
    assert not third.is_only_one()
    first.release()
    assert third.is_only_one()
    third.release()
    assert (descriptors_open(), path.exists()) == (before, True)


def test_a_short_lock_is_free_again_however_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    before = descriptors_open()
    with short_lock(path):
        monkeypatch.setattr(locks, "SHORT_S", 0.0)
        with pytest.raises(OSError, match="another process holds it") as busy, short_lock(path):
            pass
        assert busy.value.errno == errno.EBUSY
    with pytest.raises(KeyError), short_lock(path):
        raise KeyError
    with short_lock(path):
        pass
    assert descriptors_open() == before


# Paths.

BORN = "01900000-0000-7000-8000-000000000000"
"""Born at 0x019000000000 ms, which is 2024-06-10."""


@pytest.mark.parametrize(
    ("thread_id", "place"),
    [
        (BORN, "2024/06/10"),
        ("00000000-0000-7000-8000-000000000000", "1970/01/01"),
        # The last moment that counts, and the next.
        ("e677ccf9-8000-7000-8000-000000000000", "9999/12/31"),
        ("e677ccf9-8001-7000-8000-000000000000", "other"),
        ("ffffffff-ffff-7000-8000-000000000000", "other"),
        ("01900000-0000-4000-8000-000000000000", "other"),
    ],
)
def test_a_log_is_in_the_folder_of_the_day_that_its_id_was_made(
    tmp_path: Path, thread_id: str, place: str
) -> None:
    paths = LogPaths(tmp_path)
    path = tmp_path / place / f"{thread_id}.jsonl"
    assert (paths.path_of(thread_id), paths.exists(thread_id)) == (path, False)
    path.parent.mkdir(parents=True)
    path.touch()
    assert paths.exists(thread_id)


@pytest.mark.parametrize(
    "text", ["", "x", "../" + BORN, BORN.replace("-", ""), f"{{{BORN}}}", BORN.replace("0", "A", 1)]
)
def test_what_is_no_id_has_no_log(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidThreadId):
        LogPaths(tmp_path).path_of(text)
    assert not LogPaths(tmp_path).exists(text)


# Sizes.


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (None, 64),
        (1, 64),
        ("abc", 67),
        ([], 64),
        (["a", ["b"]], 64 * 4 + 2),
        ({"name": "abc", "other": {"x": [1]}}, 64 * 5 + 3),
    ],
)
def test_a_value_counts_64_bytes_and_its_text(value: Any, size: int) -> None:
    assert size_of(value) == size


async def test_histories_are_measured_once_and_again_when_they_change() -> None:
    sizes, state, other = HistorySizes(), begin(created()), begin(created())
    one = 2 * size_of(raw("x"))

    def add(count: int) -> None:
        for _ in range(count):
            state.apply(HistoryAppended(at_ms=1, items=[raw("x")]))

    assert await sizes.measure([state, other]) == 0
    for count in (1, 1, 501):
        add(count)
        assert await sizes.measure([state, other]) == len(state.history) * one
        # What was counted is not looked at again.
        assert await sizes.measure([state]) == len(state.history) * one
    # A list that is shorter, or another one, is counted anew.
    del state.history[3:]
    assert await sizes.measure([state]) == 3 * one
    state.history[:] = [raw("xx")] * 3
    assert await sizes.measure([state]) == 3 * one
    other.history = [raw("xx")] * 3
    assert await sizes.measure([other]) == 3 * 2 * size_of(raw("xx"))
    assert await sizes.measure([]) == 0
    assert await sizes.measure([state]) == 3 * 2 * size_of(raw("xx"))


def test_a_writer_knows_how_long_its_log_is(tmp_path: Path) -> None:
    path = tmp_path / "log"
    record = NameChanged(at_ms=1, name="n")
    size = len(render_record(record))
    writer = LogWriter(path, WriterLock(tmp_path / "lock"))
    assert (writer.end, writer.torn_bytes) == (0, 0)
    assert writer.append([record, record], sync=True) == [size, size]
    assert (writer.end, path.stat().st_size) == (2 * size, 2 * size)
    writer.close()
    with path.open("ab") as file:
        file.write(b"torn")
    again = LogWriter(path, WriterLock(tmp_path / "lock"), must_exist=True)
    assert (again.end, again.torn_bytes, path.stat().st_size) == (2 * size, 4, 2 * size)
    again.close()
