"""Questions that the user is asked outside of the protocol: meanwhile no time runs out.

Source: docs/tools.md, "Elicitations".
"""

from app_server.turns.context import ThreadContext

MAX_OPEN = 1_000


class NoOpenElicitation(Exception):
    """There is no such question."""


class TooManyElicitations(Exception):
    """There are MAX_OPEN questions."""


class OutOfBandElicitations:
    """Counter of the open out-of-band elicitations of one loaded thread."""

    def __init__(self, context: ThreadContext) -> None:
        self.count = 0
        self._timeouts = context.timeouts
        self._servers = context.servers

    def open(self) -> None:
        """Count one more; the first pauses the timeouts of commands and of calls of MCP servers.

        Raises:
            TooManyElicitations
        """
        if self.count == MAX_OPEN:
            raise TooManyElicitations
        self.count += 1
        if self.count == 1:
            self._timeouts.pause()
            self._servers.live().pause_timeouts()

    def settle(self) -> None:
        """Count one less; the last resumes the timeouts.

        Raises:
            NoOpenElicitation
        """
        if not self.count:
            raise NoOpenElicitation
        self.count -= 1
        if not self.count:
            self._timeouts.resume()
            self._servers.live().resume_timeouts()
