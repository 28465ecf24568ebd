"""What to start in the place of a command that is confined."""

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack

NO_NETWORK = "CODEX_SANDBOX_NETWORK_DISABLED"
"""Set to 1 in the environment of what is confined without network; test suites know it."""


class Wrapped:
    """A command line, and what has to live as long as its process."""

    def __init__(
        self,
        argv: Sequence[str],
        pass_fds: Sequence[int] = (),
        *,
        is_confined: bool = False,
        takes_terminal: bool = False,
        network: socket.socket | None = None,
        ends: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.argv = argv
        self.pass_fds = pass_fds
        """Descriptors that the process inherits, under the same numbers."""
        self.is_confined = is_confined
        """Whether there is a sandbox around it; a signal ends that at once, and all inside."""
        self.takes_terminal = takes_terminal
        """The command makes its stdin its controlling terminal by itself. Whoever starts it must
        not have done so: `setsid` yes, `TIOCSCTTY` no."""
        self.network = network
        """Where the listener of its proxy arrives, as a descriptor beside a byte; None: it has no
        proxy. Closed with this."""
        self._open = list(pass_fds)
        self._ends = list(ends)

    def started(self) -> None:
        """Close the descriptors: the process has its own. Harmless when called again."""
        while self._open:
            os.close(self._open.pop())

    def close(self) -> None:
        """Let go of everything, once the process has ended, or if it was never started.

        Blocks: call it in a worker thread. Harmless when called again.
        """
        self.started()
        if self.network is not None:
            self.network.close()
        with ExitStack() as stack:
            while self._ends:
                stack.callback(self._ends.pop(0))
