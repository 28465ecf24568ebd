"""Whether a home's locks are held, and its index agrees with its logs. Everything here blocks.

Beside a running server a look may meet a change half-way: what differs is looked at once more.
"""

import time
from dataclasses import asdict
from pathlib import Path

from app_server.threads.index.rows import ThreadRow
from app_server.threads.index.snapshot import IndexSnapshot, read_index
from app_server.threads.log.file.locks import Holder, known_holder
from app_server.threads.repair.checking import LogCheck, check_log

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
