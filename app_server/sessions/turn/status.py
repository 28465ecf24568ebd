"""The status of a loaded thread: what it is, and when clients hear of a change."""

from collections.abc import Iterator
from contextlib import contextmanager

from app_server.sessions.publisher import Publisher
from app_server.sessions.turn.slot import TurnSlot
from protocol.threads import (
    ActiveThreadStatus,
    IdleThreadStatus,
    SystemErrorThreadStatus,
    ThreadStatus,
)


class SessionStatus:
    """Follows the turn's slot and the questions that wait for the user."""

    def __init__(self, slot: TurnSlot, publisher: Publisher) -> None:
        self._slot = slot
        self._publisher = publisher
        self._questions = 0
        self.log_failed = False
        """Whether the end of a turn could not be written."""

    @property
    def current(self) -> ThreadStatus:
        """The status, as the wire has it."""
        if self._slot.run is not None:
            return ActiveThreadStatus(active_flags=["waitingOnApproval"] if self._questions else [])
        return SystemErrorThreadStatus() if self.log_failed else IdleThreadStatus()

    def publish(self) -> None:
        """Send the status to every client."""
        self._publisher.status(self.current)

    @contextmanager
    def waiting_on_approval(self) -> Iterator[None]:
        """Show that the user is asked, for as long as the context lasts."""
        self._questions += 1
        if self._slot.run is not None:
            self._slot.run.user_was_asked = True
            self.publish()
        try:
            yield
        finally:
            self._questions -= 1
            if self._slot.run is not None and not self._slot.run.scope.cancel_called:
                self.publish()
