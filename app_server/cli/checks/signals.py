"""Whether the ledger of signals can be read, and which ones were set aside because of damage."""

from app_server.cli.checks.machine import Machine
from app_server.runtime.files.sqlite import problem_of
from app_server.signals.ledger import SCHEMA_VERSION
from app_server.threads.repair import Check

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
    problem = problem_of(path, SCHEMA_VERSION)
    if problem is not None:
        check.add("error", f"{path} cannot be used: {problem}")
        check.advise("nothing if it is damaged: a server sets it aside and keeps what can be read")
    return check
