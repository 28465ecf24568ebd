"""Questions that the user is asked outside of the protocol: meanwhile no time runs out.

Source: docs/tools.md, "Elicitations".
"""

from app_server.runtime.pausable_timeouts import PausableTimeouts
from app_server.sessions.mcp_servers import ThreadServers

MAX_OPEN = 1_000


class NoOpenElicitation(Exception):
    """There is no such question."""


class TooManyElicitations(Exception):
    """There are MAX_OPEN questions."""


class OutOfBandElicitations:
    """How many are open for one loaded thread."""

    def __init__(self, servers: ThreadServers) -> None:
        self.timeouts = PausableTimeouts()
        """Of the thread's commands: how long they are waited for."""
        self.count = 0
        self._servers = servers

    def open(self) -> None:
        """Count one more; the first pauses the timeouts of commands and of calls of MCP servers.

        Raises:
            TooManyElicitations
        """
        if self.count == MAX_OPEN:
            raise TooManyElicitations
        self.count += 1
        if self.count == 1:
            self.timeouts.pause()
            self._servers.set.hold()

    def settle(self) -> None:
        """Count one less; the last resumes the timeouts.

        Raises:
            NoOpenElicitation
        """
        if not self.count:
            raise NoOpenElicitation
        self.count -= 1
        if not self.count:
            self.timeouts.resume()
            self._servers.set.release()
