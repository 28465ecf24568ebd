"""Whether a home's locks are held, and its index agrees with its logs. Everything here blocks.

Beside a running server a look may meet a change half-way: what differs is looked at once more.
"""

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from app_server.threads.index.rows import ThreadRow
from app_server.threads.index.snapshot import IndexSnapshot, read_index
from app_server.threads.log.file.locks import Holder, holder_of
from app_server.threads.repair.checking import LogCheck, check_log

SECOND_LOOK_S = 1.0
"""Before what differs is looked at again: longer than an index is behind a running server."""


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
        thread_id: check_log(checks[thread_id].path, thorough=True)
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
