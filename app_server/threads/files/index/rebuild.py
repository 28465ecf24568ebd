"""The index, or a part of it, is made again from the logs. Everything here blocks.

Beside other processes: rows of threads that one of them holds are its own business.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app_server.threads.files.index.index import ThreadIndex
from app_server.threads.files.locks import LockBusy, WriterLock
from app_server.threads.files.writers import FileLog, LogPaths
from app_server.threads.log.faults import LogFaults, LogTooNew
from app_server.threads.log.reading import load_state
from app_server.threads.log.state import NotARollout
from app_server.threads.rows import ThreadRow


@dataclass(slots=True)
class LogCheck:
    """One log."""

    thread_id: str
    path: Path
    size: int
    faults: LogFaults = field(default_factory=LogFaults)
    row: ThreadRow | None = None
    """Row that the index should have; None without a log that this version reads."""
    problem: str | None = None
    """Why there is no row."""
    is_readable: bool = True
    """Whether the disk gave it out; another time it may."""


def check_log(path: Path, *, thorough: bool = False) -> LogCheck:
    """Read one log; what cannot be read is said in the result.

    Damage in the middle of lines that no list depends on is found by those who are `thorough`.
    """
    check = LogCheck(path.stem, path, 0)
    try:
        check.size = path.stat().st_size
        check.row = ThreadRow.of(
            load_state(FileLog(path), check.faults, with_history=False, thorough=thorough)
        )
    except LogTooNew:
        check.problem = "was written by a newer version of this server"
    except NotARollout:
        check.problem = "does not begin as the log of a thread"
    except FileNotFoundError:
        check.problem = "is not there"
    except OSError as exc:
        check.problem, check.is_readable = f"cannot be read: {exc.strerror}", False
    return check


logger = logging.getLogger(__name__)

MARGIN_NS = 2_000_000_000
"""By which clocks of a disk may be coarse."""

REBUILD_STEP = 200
"""Rows a transaction while the index is made anew."""


def rebuild(index: ThreadIndex, home: Path, progress: Callable[[int], None]) -> int:
    """Fill an index that is not complete; returns how many threads it found.

    Threads that are in it stay as they are. `progress` is called after every REBUILD_STEP threads.

    Raises:
        IndexReplaced: it was begun anew meanwhile.
        OSError: the index cannot be written. Logs that cannot be read are left out.
    """
    rows: dict[Path, ThreadRow] = {}
    count, generation = 0, index.generation
    for path in (home / "threads").rglob("*.jsonl"):
        check = check_log(path)
        if check.row is None:
            logger.warning("%s is not listed: it %s", path, check.problem)
            continue
        rows[path] = check.row
        count += 1
        if len(rows) == REBUILD_STEP:
            _add(index, rows)
            logger.info("index: %d threads", count)
            progress(count)
            rows.clear()
    _add(index, rows)
    index.mark_complete(generation)
    return count


def _add(index: ThreadIndex, rows: Mapping[Path, ThreadRow]) -> None:
    index.add(rows.values())
    # A thread that was removed since it was read had no row yet to remove.
    index.forget_unheld(row.id for path, row in rows.items() if not path.exists())


def refresh(index: ThreadIndex, home: Path, progress: Callable[[int], None]) -> tuple[int, int]:
    """Make the rows of a complete index again, without a moment in which there are none.

    Returns how many rows it made, and how many it left to the processes that hold their threads.

    Raises:
        OSError: the index or a lock cannot be written.
    """
    count = left_alone = 0
    gone = set(index.own_ids())
    for path in (home / "threads").rglob("*.jsonl"):
        thread_id = path.stem
        gone.discard(thread_id)
        try:
            lock = WriterLock(home / "locks" / f"{thread_id}.lock")
        except LockBusy:
            left_alone += 1
            continue
        try:
            _make_row(index, path)
        finally:
            lock.release()
        count += 1
        if count % REBUILD_STEP == 0:
            progress(count)
    for thread_id in gone:
        index.forget(thread_id)
    return count, left_alone


def put_held(index: ThreadIndex, paths: Iterable[Path]) -> None:
    """Put the rows of threads that this process holds into an index that was begun anew.

    Raises:
        OSError: the index cannot be written.
    """
    rows = [check.row for check in map(check_log, paths) if check.row is not None]
    index.hold(rows)


def changed_logs(folder: Path, since_ns: int) -> dict[str, Path]:
    """Find the logs, by thread, that were written since a time, or up to MARGIN_NS before it."""
    return {
        path.stem: path
        for path in folder.rglob("*.jsonl")
        if written_ns(path) >= since_ns - MARGIN_NS
    }


def written_ns(path: Path) -> int:
    """Return when a file was last written; 0 when it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def refresh_changed(index: ThreadIndex, home: Path, paths: LogPaths, since_ns: int) -> int:
    """Make the rows again that miss what their logs say since a time; returns how many.

    Of older logs it is looked whether there is a row, and of rows whether
    there is a log. A thread that a process holds is left to that.

    Raises:
        IndexReplaced: it was begun anew meanwhile.
        OSError: the index or a lock cannot be written.
    """
    listed = set(index.own_ids())
    logs = {path.stem: path for path in (home / "threads").rglob("*.jsonl")}
    late = {name for name, path in logs.items() if written_ns(path) >= since_ns - MARGIN_NS}
    count = 0
    for thread_id in late | (logs.keys() ^ listed):
        path = logs.get(thread_id) or paths.path_of(thread_id)
        # First without the lock: a client may want the thread now.
        if check_log(path).row == index.find(thread_id):
            continue
        try:
            lock = WriterLock(home / "locks" / f"{thread_id}.lock")
        except LockBusy:
            continue
        try:
            _make_row(index, path)
        finally:
            lock.release()
        count += 1
    return count


def repair_rows(
    index: ThreadIndex, locks: Path, paths: LogPaths, ours: Collection[str]
) -> list[str]:
    """Make the rows again whose process has died without telling how its threads ended.

    Returns the threads whose rows it made; `ours` are threads that this process holds.

    Raises:
        OSError: the index cannot be written. A row whose lock cannot be had stays for later.
    """
    repaired: list[str] = []
    for thread_id in index.open_ids():
        if thread_id in ours:
            continue
        try:
            lock = WriterLock(locks / f"{thread_id}.lock")
        except LockBusy:
            continue
        except OSError as exc:
            logger.info("the row of %s is not repaired: %s", thread_id, exc)
            continue
        try:
            _make_row(index, paths.path_of(thread_id))
            repaired.append(thread_id)
        finally:
            lock.release()
    return repaired


def _make_row(index: ThreadIndex, path: Path) -> None:
    check = check_log(path)
    if check.row is not None:
        index.put([check.row], is_open=False)
    elif check.is_readable:
        index.forget(path.stem)
    else:
        logger.warning("%s %s; its row stays as it is", path, check.problem)
