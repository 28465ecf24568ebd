"""The status of a loaded thread: what it is, and when clients are notified of a change."""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from app_server.sessions.publisher import Publisher
from app_server.sessions.turn.slot import TurnSlot
from protocol.threads.thread import (
    ActiveThreadStatus,
    IdleThreadStatus,
    SystemErrorThreadStatus,
    ThreadActiveFlag,
    ThreadStatus,
)


class SessionStatus:
    """Follows the turn's slot and the questions that wait for the user."""

    def __init__(self, slot: TurnSlot, publisher: Publisher) -> None:
        self._slot = slot
        self._publisher = publisher
        self._waiting: Counter[ThreadActiveFlag] = Counter()
        self.log_failed = False
        """Whether the end of a turn could not be written."""

    @property
    def current(self) -> ThreadStatus:
        """The status, as the wire has it."""
        if self._slot.turn is not None:
            return ActiveThreadStatus(active_flags=sorted(+self._waiting))
        return SystemErrorThreadStatus() if self.log_failed else IdleThreadStatus()

    def publish(self) -> None:
        """Send the status to every client."""
        self._publisher.status(self.current)

    def waiting_on_approval(self) -> AbstractContextManager[None]:
        """Show that the user is asked for approval, for as long as the context lasts."""
        return self._waiting_on("waitingOnApproval")

    def waiting_on_user_input(self) -> AbstractContextManager[None]:
        """Show that the model asked the user something, for as long as the context lasts."""
        return self._waiting_on("waitingOnUserInput")

    @contextmanager
    def _waiting_on(self, flag: ThreadActiveFlag) -> Iterator[None]:
        self._waiting[flag] += 1
        if self._slot.turn is not None:
            self._slot.turn.user_was_asked = True
            self.publish()
        try:
            yield
        finally:
            self._waiting[flag] -= 1
            if self._slot.turn is not None and not self._slot.turn.scope.cancel_called:
                self.publish()
