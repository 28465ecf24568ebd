"""Checks of a store, and what they found.

Source: docs/operations.md, "Doctor".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from app_server.threads.failures import Holder

MAX_DETAILS = 50
"""Details of one check that are printed; the others are counted."""


Status: TypeAlias = Literal["ok", "warning", "error"]


_RANK: dict[Status, int] = {"ok": 0, "warning": 1, "error": 2}


@dataclass(slots=True)
class Check:
    """The result of one check."""

    name: str
    status: Status = "ok"
    message: str = ""
    todo: str | None = None
    """Advice for the user; None when nothing has to be done."""
    details: list[str] = field(default_factory=list)
    more: int = 0
    """Details that were left out."""

    def advise(self, todo: str) -> None:
        """Say what to do, besides what is said already."""
        if self.todo is None:
            self.todo = todo
        elif f"; {todo}; " not in f"; {self.todo}; ":
            self.todo = f"{self.todo}; {todo}"

    def add(self, status: Status, text: str) -> None:
        """Note one thing that was found; the worst status counts."""
        self.status = max(self.status, status, key=_RANK.__getitem__)
        if len(self.details) < MAX_DETAILS:
            self.details.append(text)
        else:
            self.more += 1


Progress: TypeAlias = Callable[[str], None]


def counted(number: int, noun: str) -> str:
    """Say how many there are of something whose plural has an s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def note_receivers(
    check: Check, dead: Sequence[tuple[str, int]], disabled: Sequence[tuple[str, str]]
) -> None:
    """Note receivers of notifications with dead letters, and those that want nothing more.

    `dead` has labels of receivers and how many letters each has, `disabled` labels and reasons.
    """
    for label, count in dead:
        check.add("warning", f"{label}: {counted(count, 'dead letter')}")
    for label, reason in disabled:
        check.add("warning", f"{label} {reason}, and is sent nothing more")
    if dead:
        check.advise("see that the receiver answers; dead letters are forgotten after 30 days")
    if disabled:
        check.advise("take the entry out of `notifications`, or correct it and switch it off once")


OVERDUE_MS = 300_000
"""After its time a wake has been left alone: servers look every 5 s, and try again every 60 s."""


def note_wakes(check: Check, counts: tuple[int, int, int | None], now_ms: int) -> None:
    """Note the wakes of a store, where it has any.

    `counts` has the open ones, the lost ones, and the earliest time of an open one.
    """
    is_open, lost, earliest_ms = counts
    if is_open:
        check.add("ok", f"{counted(is_open, 'open wake')}")
    if lost:
        check.add(
            "ok", f"{counted(lost, 'lost wake')} of the last 30 days, of which threads were told"
        )
    if earliest_ms is not None and now_ms - earliest_ms > OVERDUE_MS:
        check.add("warning", f"a wake is overdue for {(now_ms - earliest_ms) // 60_000} minutes")
        check.advise("start a server: what is overdue comes then; if one runs, see its log")


class StoreChecks(Protocol):
    """Checks of a store from outside, beside servers that use it. Blocks."""

    def is_there(self) -> bool:
        """Whether there is a store that could be looked into."""

    def place(self) -> Check:
        """Check where the store is: rights and space."""

    def threads(self, progress: Progress) -> Sequence[Check]:
        """Check all threads and what is derived of them; nothing is changed.

        `progress` is called with what is going on.
        """

    def filing(self) -> Check:
        """Check the projects and sections."""

    def signals(self) -> Check:
        """Check the ledger of signals."""

    def notifications(self) -> Check:
        """Check the outbox of notifications."""

    def rebuild(self, progress: Progress) -> Sequence[Check]:
        """Make what is derived again, beside running servers, whose threads are left alone.

        Raises:
            OSError: it cannot be written.
        """

    def holders(self) -> Sequence[Holder]:
        """Return the holder of each thread that a process holds.

        Raises:
            OSError: that cannot be seen.
        """
