"""Checks of a home for `app-server doctor`: folders, logs, locks, indexes. Everything here blocks.

Nothing is changed but by the rebuilds. Beside a running server a look may meet a change half-way:
what differs is looked at once more.
"""

import fcntl
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from app_server.runtime.files.disk import lock_within
from app_server.runtime.files.opening import open_regular
from app_server.runtime.files.sqlite import connect_to_read, problem_of, version_of
from app_server.threads.checks import Check, Progress, counted, note_receivers, note_wakes
from app_server.threads.failures import Holder
from app_server.threads.files.codex.rollouts import SeenRollout, find_files
from app_server.threads.files.filing import LOCK_WAIT_S, LogLocked
from app_server.threads.files.history import index as history
from app_server.threads.files.index.derived import IndexReplaced
from app_server.threads.files.index.index import SCHEMA_VERSION, ThreadIndex
from app_server.threads.files.index.rebuild import LogCheck, check_log, rebuild, refresh
from app_server.threads.files.ledger import SCHEMA_VERSION as LEDGER_VERSION
from app_server.threads.files.locks import holder_of, known_holder
from app_server.threads.files.notifications import outbox_path
from app_server.threads.files.outbox import DEAD_LETTERS, DISABLED
from app_server.threads.files.outbox import SCHEMA_VERSION as OUTBOX_VERSION
from app_server.threads.files.wakes import COUNTS as WAKE_COUNTS
from app_server.threads.log.faults import LogFaults
from app_server.threads.organization import FilingState
from app_server.threads.rows import COLUMN_NAMES, ThreadRow, row_of
from protocol.log.filing import FilingRecord, is_newer_filing, parse_filing_record


class NoIndex(Exception):
    """There is no index that could be read; the text says why."""


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """Every row of the index."""

    rows: dict[str, ThreadRow] = field(default_factory=dict)
    """By thread id; those of Codex too."""
    open_ids: frozenset[str] = frozenset()
    """Threads that a process held when it last wrote here."""
    codex: dict[str, SeenRollout] = field(default_factory=dict)
    is_complete: bool = True
    """Not while a process fills it."""


def read_index(path: Path) -> IndexSnapshot:
    """Read the index without writing to it.

    Raises:
        NoIndex: it is missing, of another version, or damaged.
    """
    if not path.exists():
        raise NoIndex("it is missing")
    try:
        with closing(connect_to_read(path)) as database:
            version = version_of(database)
            if abs(version) != SCHEMA_VERSION:
                raise NoIndex(f"it is of version {abs(version)}, not {SCHEMA_VERSION}")
            (problem,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if problem != "ok":
                raise NoIndex(f"it is damaged: {problem}")
            found = database.execute(f"SELECT {COLUMN_NAMES}, open FROM threads").fetchall()
            seen = database.execute(f"SELECT {', '.join(SeenRollout._fields)} FROM seen").fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as exc:
        raise NoIndex(f"it cannot be read: {exc}") from exc
    rows = [row_of(values[:-1]) for values in found]
    return IndexSnapshot(
        {row.id: row for row in rows},
        frozenset(values[0] for values in found if values[-1]),
        {values[0]: SeenRollout(*values) for values in seen},
        is_complete=version > 0,
    )


SECOND_LOOK_S = 1.0
"""Before what differs is looked at again: longer than an index is behind a running server."""


def lock_holders(home: Path) -> dict[str, Holder | None]:
    """Say who holds each lock of a home, by thread.

    None: its process has died, and the next one to load the thread takes it.
    """
    return {path.stem: known_holder(path) for path in sorted((home / "locks").glob("*.lock"))}


def differences(
    home: Path, index_path: Path, snapshot: IndexSnapshot, checks: dict[str, LogCheck]
) -> dict[str, str]:
    """Compare an index with what the logs say, and look again at what differs.

    Returns what differs, in words, by thread. Threads that a running process holds are left out:
    it tells the index in its own time.

    Raises:
        NoIndex: it has gone in the meantime.
    """
    suspects = _suspects(home, snapshot, checks)
    if not suspects:
        return {}
    time.sleep(SECOND_LOOK_S)
    again = {
        thread_id: check_log(checks[thread_id].path, thorough=True)
        for thread_id in suspects
        if thread_id in checks
    }
    found = _suspects(home, read_index(index_path), {**checks, **again})
    return {thread_id: text for thread_id, text in found.items() if thread_id in suspects}


def _suspects(home: Path, snapshot: IndexSnapshot, checks: dict[str, LogCheck]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for thread_id, check in checks.items():
        text = _difference(snapshot.rows.get(thread_id), check.row)
        if text is not None:
            texts[thread_id] = text
    for thread_id in snapshot.rows:
        if thread_id not in checks and thread_id not in snapshot.codex:
            texts[thread_id] = "is in the index, and there is no log of it"
    return {
        thread_id: text
        for thread_id, text in texts.items()
        if known_holder(home / "locks" / f"{thread_id}.lock") is None
    }


def _difference(shown: ThreadRow | None, wanted: ThreadRow | None) -> str | None:
    if shown == wanted:
        return None
    if shown is None:
        return "is missing in the index"
    if wanted is None:
        return "is in the index, and its log cannot be read"
    before, after = asdict(shown), asdict(wanted)
    members = [
        f"{name} is {_short(before[name])}, the log says {_short(after[name])}"
        for name in after
        if before[name] != after[name]
    ]
    return "; ".join(members)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


LITTLE_SPACE_BYTES = 256 * 1024 * 1024
NO_SPACE_BYTES = 16 * 1024 * 1024
HISTORY_STEP = 50
"""Threads a transaction."""


def examine(home: Path, progress: Progress) -> list[Check]:
    """Check a home without changing anything in it; `progress` is called with what is going on."""
    folder = check_home(home)
    if folder.status == "error" and not is_folder(home):
        return [folder]
    logs, checks = _check_logs(home, progress)
    return [
        folder,
        logs,
        _check_locks(home),
        _check_index(home, checks),
        _check_history(home),
        _check_codex(home),
    ]


def check_home(home: Path) -> Check:
    """Check folders, rights and space."""
    check = Check("home", message=str(home))
    try:
        _check_folders(home, check)
    except OSError as exc:
        check.add("error", f"{exc.filename or home}: {exc.strerror}")
        check.advise("let this user read and write it, or choose another home with --home")
    return check


def is_folder(path: Path) -> bool:
    """Whether a path is a folder; one that may not be looked at is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _check_folders(home: Path, check: Check) -> None:
    if not home.is_dir():
        check.add("error", "it is no folder" if home.exists() else "it does not exist")
        check.todo = "start the server once, or choose another home with --home"
        return
    for folder in (home, *(home / name for name in ("threads", "locks", "index"))):
        if folder.exists():
            _check_folder(folder, check)
    free = shutil.disk_usage(home).free
    if free < LITTLE_SPACE_BYTES:
        check.add("error" if free < NO_SPACE_BYTES else "warning", f"{_size(free)} are free")
        check.todo = "make room on this disk: what cannot be stored is refused"


def _check_folder(folder: Path, check: Check) -> None:
    status = folder.stat()
    if not stat.S_ISDIR(status.st_mode):
        check.add("error", f"{folder} is no folder")
        check.todo = "move it away: the server needs a folder there"
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK) or _is_read_only(folder):
        check.add("error", f"{folder} cannot be written")
        check.todo = "give this user the right to write there"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        check.add("warning", f"others can write to {folder}")
        check.todo = f"chmod go-w {folder}"


def _is_read_only(folder: Path) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def _check_logs(home: Path, progress: Progress) -> tuple[Check, dict[str, LogCheck]]:
    check = Check("logs")
    checks: dict[str, LogCheck] = {}
    began = reported = time.monotonic()
    read_bytes = 0
    for path in sorted((home / "threads").rglob("*.jsonl")):
        log = check_log(path, thorough=True)
        read_bytes += log.size
        if time.monotonic() - reported > 1.0:
            reported = time.monotonic()
            progress(f"{counted(len(checks), 'log')}, {_size(read_bytes)} read")
        checks[log.thread_id] = log
        if log.problem is not None:
            check.add("warning", f"{log.path} {log.problem}")
        for text in log.faults.texts(log.path):
            check.add("warning", text)
    for left in sorted((home / "threads").rglob("*.importing")):
        check.add("warning", f"{left} is left of an import that was cut off")
    for left in sorted((home / "threads").rglob("*.part")):
        check.add("warning", f"{left} is left of a fork that was cut off")
    seconds = max(time.monotonic() - began, 1e-9)
    speed = _size(round(read_bytes / seconds))
    check.message = f"{counted(len(checks), 'log')}, {_size(read_bytes)}, read at {speed}/s"
    if check.details:
        check.todo = (
            "nothing is lost that was acknowledged, and nothing must be done; keep a copy of a "
            "damaged file if you want to look into it"
        )
    return check, checks


def _check_locks(home: Path) -> Check:
    check = Check("locks")
    holders = lock_holders(home)
    left = [thread_id for thread_id, holder in holders.items() if holder is None]
    held, over = counted(len(holders) - len(left), "thread"), counted(len(left), "lock")
    check.message = f"{held} held, {over} left over"
    for thread_id, holder in holders.items():
        if holder is not None:
            check.add("ok", f"{thread_id} is held by {holder}")
    for thread_id in left:
        check.add("ok", f"{thread_id}: its process has died; whoever comes next takes it")
    return check


def _check_index(home: Path, logs: dict[str, LogCheck]) -> Check:
    check, path = Check("index"), index_path(home)
    if not path.exists() and not logs:
        check.message = "there are no threads yet"
        return check
    try:
        snapshot = read_index(path)
        found = differences(home, path, snapshot, logs) if snapshot.is_complete else {}
    except NoIndex as exc:
        check.status, check.message = "warning", str(exc)
        check.todo = "nothing: the next start makes it from the logs; or run doctor --rebuild"
        return check
    if not snapshot.is_complete:
        check.status, check.message = "warning", "it is being made, or that was cut off"
        check.todo = "wait for the running server, or run doctor --rebuild"
        return check
    check.message = f"{counted(len(snapshot.rows), 'row')}, {len(found)} of them unlike the logs"
    for thread_id, text in found.items():
        was_open = thread_id in snapshot.open_ids
        repaired = " (repaired at the next start)" if was_open else ""
        check.add("ok" if was_open else "error", f"{thread_id} {text}{repaired}")
    if check.status != "ok":
        check.todo = "run doctor --rebuild"
    return check


def _check_history(home: Path) -> Check:
    check, path = Check("history", message="the index of what was said"), history_path(home)
    if not path.exists():
        check.message = "there is no history yet"
        return check
    problem = problem_of(path, history.SCHEMA_VERSION, history.check_rows)
    if problem is not None:
        check.status, check.message = "warning", f"it cannot be used: {problem}"
        check.todo = "nothing: the next start makes it from the logs; or run doctor --rebuild"
    return check


def _check_codex(home: Path) -> Check:
    folder = find_files(home)
    check = Check("codex", message=f"{counted(len(folder.files), 'thread')} of Codex")
    if folder.compressed:
        check.add(
            "warning",
            f"{counted(folder.compressed, 'rollout')} compressed, which cannot be read here",
        )
    return check


def index_path(home: Path) -> Path:
    """Return where the index of a home is."""
    return home / "index" / "threads.sqlite3"


def history_path(home: Path) -> Path:
    """Return where the index of what was said is."""
    return home / "index" / "history.sqlite3"


def rebuild_history(home: Path, progress: Progress) -> Check:
    """Make the index of what was said from the logs if it is damaged or behind.

    Safe beside a running server.

    Raises:
        OSError: the index cannot be written.
    """
    check = Check("rebuild history")
    index = history.HistoryIndex(history_path(home))
    try:
        if not index.is_new:
            with suppress(IndexReplaced):
                index.check()
        was_new, generation = index.is_new, index.generation
        logs = [(path.stem, path) for path in (home / "threads").rglob("*.jsonl")]
        for first in range(0, len(logs), HISTORY_STEP):
            index.catch_up(logs[first : first + HISTORY_STEP])
            progress(f"{min(first + HISTORY_STEP, len(logs))} histories")
        index.mark_complete(generation)
    finally:
        index.close()
    check.message = f"{len(logs)} histories, {'all made again' if was_new else 'none was damaged'}"
    return check


def rebuild_index(home: Path, progress: Progress) -> Check:
    """Make the index from the logs; safe beside a running server, whose threads it leaves alone.

    Raises:
        OSError: the index cannot be written, or another process is making it.
    """
    began = time.monotonic()
    index = ThreadIndex(index_path(home))
    try:
        if index.is_made_elsewhere:
            return Check("rebuild", "warning", "another process is making the index")

        def note(count: int) -> None:
            progress(f"{count} threads, {count / (time.monotonic() - began):.0f}/s")

        if not index.is_new:
            # Row by row, unless the file itself is damaged.
            with suppress(IndexReplaced):
                index.check_pages()
        if index.is_new:
            count, left_alone = rebuild(index, home, note), 0
        else:
            count, left_alone = refresh(index, home, note)
    finally:
        index.close()
    seconds = time.monotonic() - began
    check = Check(
        "rebuild", message=f"{counted(count, 'thread')} in {seconds:.1f} s, {count / seconds:.0f}/s"
    )
    if left_alone:
        check.add("ok", f"{counted(left_alone, 'thread')} of running processes, left to them")
    return check


def _size(count: int) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count} {unit}"
        count //= 1024
    return f"{count} GiB"


def check_filing(home: Path) -> Check:
    """Read every line of the log, as a server does, and leave the file as it is."""
    check, path = Check("filing", message="projects and sections"), home / "filing.jsonl"
    try:
        lines = _filed_lines(path)
    except FileNotFoundError:
        check.message = "there are no projects and sections yet"
    except LogLocked:
        check.add("error", f"another process has held the lock of {path} for {LOCK_WAIT_S:.0f} s")
        check.advise("end the process that hangs; requests about projects and sections are refused")
    except OSError as exc:
        _refuse(check, path, exc.strerror)
    else:
        if lines is None:
            _refuse(check, path, "it is no file")
        else:
            _check_filed(lines, path, check)
    return check


def _filed_lines(path: Path) -> list[bytes] | None:
    file = open_regular(path)
    if file is None:
        return None
    with file:
        # While a server adds to it, the last line is not whole yet.
        if not lock_within(file.fileno(), LOCK_WAIT_S, fcntl.LOCK_SH):
            raise LogLocked
        return file.readlines()


def _refuse(check: Check, path: Path, reason: str | None) -> None:
    check.add("error", f"{path} cannot be read: {reason}")
    check.advise(
        f"let {path} be a file that this user can read and write; threads are there meanwhile, and "
        "requests about projects and sections are refused"
    )


def _check_filed(lines: Sequence[bytes], path: Path, check: Check) -> None:
    faults = LogFaults()
    state = FilingState().after(_records(lines, faults))
    check.message = f"{len(state.projects)} projects, {len(state.sections)} sections"
    if not os.access(path, os.W_OK):
        check.add("error", f"{path} cannot be written")
        check.advise(f"give this user the right to write to {path}")
    for text in faults.texts(path):
        check.add("warning", text)
    if faults.torn_bytes:
        check.advise("nothing: the next change cuts the torn line off")
    if faults.damaged:
        check.advise(
            "look whether a project or a section is missing: put back a copy of the file, or make "
            "it again"
        )
    if faults.newer:
        check.advise("run the newer version that shares this home: it knows what its lines say")


def _records(lines: Sequence[bytes], faults: LogFaults) -> Iterator[FilingRecord]:
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            faults.torn_bytes = len(line)
        elif (record := parse_filing_record(line)) is not None:
            yield record
        elif is_newer_filing(line):
            faults.add_newer(number)
        else:
            faults.add_damaged(number)


SIGNALS_LOST = (
    "signals that waited there and could not be read are lost, as the log of the server said; let "
    "their senders repeat them, then remove the file"
)


def check_signals(home: Path) -> Check:
    """Read the ledger without changing it. Source: docs/signals.md, "Ledger"."""
    path = home / "signals" / "ledger.sqlite3"
    check = Check("signals", message="the ledger of signals")
    for kept in sorted(path.parent.glob(f"{path.name}.damaged*")):
        if not kept.name.endswith(("-wal", "-shm")):
            check.add("warning", f"{kept} is a damaged ledger that was set aside")
            check.advise(SIGNALS_LOST)
    if not path.exists():
        check.message = "there is no ledger of signals yet"
        return check
    problem = problem_of(path, LEDGER_VERSION)
    if problem is not None:
        check.add("error", f"{path} cannot be used: {problem}")
        check.advise("nothing if it is damaged: a server sets it aside and keeps what can be read")
        return check
    with closing(connect_to_read(path)) as database:
        # A ledger of the time before wakes has no such table.
        if database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'wakes'").fetchone():
            note_wakes(check, database.execute(WAKE_COUNTS).fetchone(), time.time_ns() // 1_000_000)
    return check


def check_notifications(home: Path) -> Check:
    """Read the outbox without changing it. Source: docs/notifications.md, "Dead letters"."""
    path = outbox_path(home)
    check = Check("notifications", message="the outbox of notifications")
    for kept in sorted(path.parent.glob(f"{path.name}.damaged*")):
        if not kept.name.endswith(("-wal", "-shm")):
            check.add("warning", f"{kept} is a damaged outbox that was set aside")
            check.advise("remove it: what waited in it was not sent")
    if not path.exists():
        check.message = "there is no outbox of notifications yet"
        return check
    problem = problem_of(path, OUTBOX_VERSION)
    if problem is not None:
        check.add("error", f"{path} cannot be used: {problem}")
        check.advise("nothing if it is damaged: a server sets it aside and begins another one")
        return check
    with closing(connect_to_read(path)) as database:
        dead = database.execute(DEAD_LETTERS).fetchall()
        disabled = database.execute(DISABLED).fetchall()
    note_receivers(check, dead, disabled)
    return check


class FileChecks:
    """Checks of the files of a home."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def is_there(self) -> bool:
        """Whether the home is a folder."""
        return is_folder(self._home)

    def place(self) -> Check:
        """Check folders, rights and space."""
        return check_home(self._home)

    def threads(self, progress: Progress) -> Sequence[Check]:
        """Check logs, locks and indexes; nothing is changed."""
        return examine(self._home, progress)

    def filing(self) -> Check:
        """Read every line of the log of projects and sections, as a server does."""
        return check_filing(self._home)

    def signals(self) -> Check:
        """Read the ledger of signals without changing it."""
        return check_signals(self._home)

    def notifications(self) -> Check:
        """Read the outbox of notifications without changing it."""
        return check_notifications(self._home)

    def rebuild(self, progress: Progress) -> Sequence[Check]:
        """Make both indexes from the logs.

        Raises:
            OSError: an index cannot be written.
        """
        return [rebuild_index(self._home, progress), rebuild_history(self._home, progress)]

    def holders(self) -> Sequence[Holder]:
        """Return the holder of each thread; of locks that can be read.

        Raises:
            OSError: the folder of locks cannot be read.
        """
        found = []
        for path in (self._home / "locks").glob("*.lock"):
            # A lock that goes meanwhile, or that is another user's, is counted for nobody.
            with suppress(OSError):
                if (holder := holder_of(path)) is not None:
                    found.append(holder)
        return found
