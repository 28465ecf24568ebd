"""Faults of a log, and their descriptions."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from app_server.threads.failures import ThreadDamaged, ThreadNotFound, ThreadTooNew
from app_server.threads.log.state import NotARollout

MAX_NAMED = 5
"""Lines that a text names; the others are counted."""


class FirstLineDamaged(NotARollout):
    """There are lines, and the first of them makes no sense."""


class LogTooNew(Exception):
    """A newer version began this log: what it says here would be a guess."""


@dataclass(slots=True)
class LogFaults:
    """Lines that reading a log left out. Only a torn last line is removed from the file."""

    torn_bytes: int = 0
    """Of a last line that a crash cut off in the middle; no client was promised it."""
    damaged: int = 0
    """Lines that make no sense."""
    newer: int = 0
    """Lines that only a newer version understands."""
    damaged_lines: list[int] = field(default_factory=list)
    """The first of them, from 1."""
    newer_lines: list[int] = field(default_factory=list)

    def add_damaged(self, number: int) -> None:
        """Count a line that makes no sense."""
        self.damaged += 1
        if len(self.damaged_lines) < MAX_NAMED:
            self.damaged_lines.append(number)

    def add_newer(self, number: int) -> None:
        """Count a line of a newer version."""
        self.newer += 1
        if len(self.newer_lines) < MAX_NAMED:
            self.newer_lines.append(number)

    def texts(self, log: object) -> list[str]:
        """Say each kind of fault in a sentence, which begins with the name of the log."""
        found = []
        if self.torn_bytes:
            found.append(
                f"{log}: a crash tore the last line ({self.torn_bytes} bytes); it was never "
                "acknowledged, and it is left out"
            )
        if self.damaged:
            found.append(
                f"{log}: {_lines(self.damaged, self.damaged_lines)} damaged; skipped, and kept in "
                "the file"
            )
        if self.newer:
            found.append(
                f"{log}: {_lines(self.newer, self.newer_lines)} of a newer version; skipped, and "
                "kept in the file"
            )
        return found


def _lines(count: int, named: list[int]) -> str:
    numbers = ", ".join(map(str, named)) + (", ..." if count > len(named) else "")
    return f"line {numbers} is" if count == 1 else f"{count} lines ({numbers}) are"


@contextmanager
def log_failures(thread_id: str) -> Iterator[None]:
    """Raise failures of a log as those of its thread."""
    try:
        yield
    except FirstLineDamaged:
        raise ThreadDamaged(thread_id) from None
    except (FileNotFoundError, NotARollout):
        raise ThreadNotFound(thread_id) from None
    except LogTooNew:
        raise ThreadTooNew(thread_id) from None
