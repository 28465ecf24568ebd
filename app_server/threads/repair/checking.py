"""One log, and what the index should say of it. Everything here blocks."""

from dataclasses import dataclass, field
from pathlib import Path

from app_server.threads.index.rows import ThreadRow
from app_server.threads.log.faults import LogFaults, LogTooNew, NotARollout
from app_server.threads.log.loading import load_state


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
            load_state(path, check.faults, with_history=False, thorough=thorough)
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
