"""threads.loading and threads.live: what loading leaves out, and what is deferred."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import anyio
import pytest

from app_server.threads.files.history.index import HistoryIndex
from app_server.threads.files.store import FileStore
from app_server.threads.files.writers import FileLog, LogWriter
from app_server.threads.history.search import SearchQuery
from app_server.threads.log import reading
from app_server.threads.log.faults import LogFaults, LogTooNew
from app_server.threads.log.reading import load_state, read_lines
from app_server.threads.log.state import ThreadState, replay
from protocol.log.rollout import NameChanged, Record, TurnsReverted, render_record
from tests.support.harness import WAIT_S
from tests.support.threads.damaged_logs import DAMAGED, NEWER_KIND, NEWER_VERSION
from tests.support.threads.histories import THREAD, turn, write
from tests.support.threads.rollouts import read_rollout
from tests.support.threads.stores import created


def log(path: Path, *parts: Record | bytes) -> Path:
    path.write_bytes(
        b"".join(part if isinstance(part, bytes) else render_record(part) for part in parts)
    )
    return path


def texts(state: ThreadState) -> list[list[str]]:
    return [[item.model_dump()["id"] for item in turn.items] for turn in state.turns]


def test_what_loading_leaves_out_is_counted_and_named(tmp_path: Path) -> None:
    name = NameChanged(at_ms=2, name="n")
    path = log(tmp_path / "log", created(), NEWER_KIND, DAMAGED, NEWER_VERSION, name, b"torn")
    faults = LogFaults()
    assert load_state(FileLog(path), faults).name == "n"
    assert faults == LogFaults(4, 1, 2, [3], [2, 4])
    newer = log(tmp_path / "newer", NEWER_VERSION, name)
    with pytest.raises(LogTooNew):
        load_state(FileLog(newer))


def test_what_a_revert_dropped_is_left_out_however_a_log_is_read(tmp_path: Path) -> None:
    dropped = TurnsReverted(at_ms=3, before_turn_id="t1")
    path = log(tmp_path / "log", created(), *turn(0, "a"), DAMAGED, *turn(1, "b"), dropped)
    faults = LogFaults()
    state = load_state(FileLog(path), faults)
    assert texts(state) == [["u0", "a0.0"]]
    assert state == replay(read_rollout(path))
    assert faults == LogFaults(0, 1, 0, [7])


@pytest.mark.parametrize(
    ("harm", "quick", "thorough"),
    [
        (lambda line: line.replace(b"answer", b"\0\0\0\0\0\0"), 1, 1),
        (lambda line: line[:-3] + b"\n", 1, 1),
        # What is still closed at both ends costs a look at every byte.
        (lambda line: line.replace(b'"answer"', b'"answer'), 0, 1),
    ],
)
def test_harmed_items_are_left_out_and_counted(
    tmp_path: Path, harm: Callable[[bytes], bytes], quick: int, thorough: int
) -> None:
    records = turn(0, "answer", "more")
    harmed = harm(render_record(records[3]))
    path = log(tmp_path / "log", created(), *records[:3], harmed, *records[4:])
    for with_history in (True, False):
        faults = LogFaults()
        state = load_state(FileLog(path), faults, with_history=with_history)
        assert (texts(state), faults.damaged) == ([["u0", "a0.1"]], quick)
    faults = LogFaults()
    assert texts(load_state(FileLog(path), faults, thorough=True)) == [["u0", "a0.1"]]
    assert (faults.damaged, faults.damaged_lines) == (thorough, [5])


def test_a_line_that_is_too_long_is_passed_over_by_all_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "read_lines", partial(read_lines, limit_bytes=4000))
    path = log(tmp_path / "log", created(), *turn(0, "x" * 5000, "short"))
    faults = LogFaults()
    assert texts(load_state(FileLog(path), faults)) == [["u0", "a0.1"]]
    assert faults == LogFaults(0, 1, 0, [5])
    index = HistoryIndex(tmp_path / "history")
    key, _ = index.caught_up(THREAD, path)
    (outline,) = index.turns(key, below=None, above=None, limit=5)
    assert (outline.status, len(outline)) == ("completed", 2)
    index.close()


@pytest.mark.parametrize("more", [(), (NameChanged(at_ms=3, name="later"),)])
async def test_what_is_deferred_is_written_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: Sequence[Record]
) -> None:
    store = FileStore(tmp_path)
    await store.open()
    thread = await store.create(created())
    deferred = NameChanged(at_ms=2, name="deferred")
    thread.defer(deferred)
    seen: list[str | None] = []

    def decide(state: ThreadState) -> Sequence[Record]:
        seen.append(state.name)
        return more

    def refuse(*_: object, **__: object) -> list[int]:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(LogWriter, "append", refuse)
        with pytest.raises(OSError, match="No space"):
            await thread.change(decide)
    assert await thread.change(decide) == more
    assert seen == ["deferred"]
    path = Path(store.shown_path(thread.id))
    assert list(read_rollout(path))[1:] == [deferred, *more]
    assert thread.state == replay(read_rollout(path))
    await store.unload(thread)
    await store.aclose()


def test_a_history_index_that_another_process_makes_is_made_together(tmp_path: Path) -> None:
    path = log(tmp_path / "log", created(), *turn(0, "a"))
    first = HistoryIndex(tmp_path / "history")
    first.catch_up([(THREAD, path)])
    second = HistoryIndex(tmp_path / "history")
    assert (first.is_new, second.is_new) == (True, True)
    write(path, *turn(1, "b"))
    second.catch_up([(THREAD, path)])
    second.mark_complete()
    key, _ = first.caught_up(THREAD, path)
    found = first.turns(key, below=None, above=None, limit=5)
    assert [outline.id for outline in found] == ["t1", "t0"]
    third = HistoryIndex(tmp_path / "history")
    assert not third.is_new
    for index in (first, second, third):
        index.close()


async def test_a_history_that_cannot_be_written_gets_later_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    store = FileStore(tmp_path)
    await store.open()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.run)
        thread = await store.create(created())
        with monkeypatch.context() as full:
            tried = anyio.Event()

            def refuse_and_signal(*_: object) -> None:
                anyio.from_thread.run_sync(tried.set)
                refuse()

            full.setattr(HistoryIndex, "catch_up", refuse_and_signal)
            await thread.append(*turn(0, "a walrus"))
            with anyio.fail_after(WAIT_S):
                await tried.wait()
        with anyio.fail_after(WAIT_S):
            page, _ = await store.history.search(SearchQuery("walrus", 5))
        assert [found.thread_id for found in page.found] == [thread.id]
        tasks.cancel_scope.cancel()
    await store.unload(thread)
    await store.aclose()


async def test_a_history_that_is_never_written_does_not_keep_a_store_from_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    store = FileStore(tmp_path)
    await store.open()
    thread = await store.create(created())
    await thread.append(*turn(0, "a walrus"))
    monkeypatch.setattr(HistoryIndex, "catch_up", refuse)
    await store.unload(thread)
    await store.aclose()
    write(Path(store.shown_path(thread.id)), *turn(1, "still there"))
    assert len(load_state(FileLog(Path(store.shown_path(thread.id)))).turns) == 2
