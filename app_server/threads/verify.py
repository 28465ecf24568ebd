"""Whether a home's logs, locks and index are whole and agree. It only reads; everything blocks.

Beside a running server a look may meet a change half-way: what differs is looked at once more.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from app_server.threads.faults import LogFaults
from app_server.threads.index import ThreadRow
from app_server.threads.locks import Holder, holder_of
from app_server.threads.rollout import LogTooNew, read_rollout
from app_server.threads.snapshot import IndexSnapshot, read_index
from app_server.threads.state import NotARollout, replay

SECOND_LOOK_S = 1.0
"""Before what differs is looked at again: longer than an index is behind a running server."""


@dataclass(slots=True)
class LogCheck:
    """One log."""

    thread_id: str
    path: Path
    size: int
    faults: LogFaults = field(default_factory=LogFaults)
    row: ThreadRow | None = None
    """What the index should say; None when it is no log of a thread that this version reads."""
    problem: str | None = None
    """Why there is no row."""


@dataclass(frozen=True, slots=True)
class LockCheck:
    """One lock file."""

    thread_id: str
    holder: Holder | None
    """None: its process has died, and the next one to load the thread takes it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thread of which index and log say different things."""

    thread_id: str
    text: str


def check_logs(home: Path, progress: Callable[[int], None]) -> Iterator[LogCheck]:
    """Read every log of a home, in the order of their ids; `progress` hears of each one's size."""
    for path in sorted((home / "threads").rglob("*.jsonl")):
        check = check_log(path)
        progress(check.size)
        yield check


def check_log(path: Path) -> LogCheck:
    """Read one log; what cannot be read is said in the result."""
    check = LogCheck(path.stem, path, 0)
    try:
        check.size = path.stat().st_size
        check.row = ThreadRow.of(replay(read_rollout(path, check.faults)))
    except LogTooNew:
        check.problem = "was written by a newer version of this server"
    except NotARollout:
        check.problem = "does not begin as the log of a thread"
    except OSError as exc:
        check.problem = f"cannot be read: {exc.strerror}"
    return check


def check_locks(home: Path) -> list[LockCheck]:
    """Say who holds each lock of a home."""
    return [LockCheck(path.stem, _holder(path)) for path in sorted((home / "locks").glob("*.lock"))]


def _holder(path: Path) -> Holder | None:
    try:
        return holder_of(path)
    except OSError:
        return None


def differences(
    home: Path, index_path: Path, snapshot: IndexSnapshot, checks: dict[str, LogCheck]
) -> list[Difference]:
    """Compare an index with what the logs say, and look again at what differs.

    Threads that a running process holds are left out: it tells the index in its own time.

    Raises:
        NoIndex: it has gone in the meantime.
    """
    suspects = _suspects(home, snapshot, checks)
    if not suspects:
        return []
    time.sleep(SECOND_LOOK_S)
    again = {
        thread_id: check_log(checks[thread_id].path)
        for thread_id in suspects
        if thread_id in checks
    }
    found = _suspects(home, read_index(index_path), {**checks, **again})
    return [
        Difference(thread_id, text) for thread_id, text in found.items() if thread_id in suspects
    ]


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
        if _holder(home / "locks" / f"{thread_id}.lock") is None
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
