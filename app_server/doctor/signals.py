"""Whether the ledger of signals can be read, and which ones were set aside because of damage."""

import sqlite3
from contextlib import closing
from pathlib import Path

from app_server.doctor.machine import Machine
from app_server.runtime.files.sqlite import check_whole, connect_to_read
from app_server.threads.repair.doctor import Check

LOST = (
    "signals that waited there and could not be read are lost, as the log of the server said; let "
    "their senders repeat them, then remove the file"
)


def check_signals(machine: Machine) -> Check:
    """Read the ledger without changing it. Source: docs/signals.md, "Ledger"."""
    path = machine.home / "signals" / "ledger.sqlite3"
    check = Check("signals", message="the ledger of signals")
    for kept in sorted(path.parent.glob(f"{path.name}.damaged*")):
        if not kept.name.endswith(("-wal", "-shm")):
            check.add("warning", f"{kept} is a damaged ledger that was set aside")
            check.advise(LOST)
    if not path.exists():
        check.message = "there is no ledger of signals yet"
        return check
    try:
        _read(path)
    except (sqlite3.Error, UnicodeDecodeError) as exc:
        check.add("error", f"{path} cannot be read: {exc}")
        check.advise("nothing if it is damaged: a server sets it aside and keeps what can be read")
    return check


def _read(path: Path) -> None:
    with closing(connect_to_read(path)) as database:
        check_whole(database)
        database.execute("SELECT count(*) FROM signals").fetchone()
