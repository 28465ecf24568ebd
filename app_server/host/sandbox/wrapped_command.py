"""The command line that starts a command in its sandbox, and why there may be none."""

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field


class SandboxUnavailable(Exception):
    """No sandbox works here, or for this policy; the text says what to install or set."""


NO_NETWORK = "CODEX_SANDBOX_NETWORK_DISABLED"
"""Set to 1 in the environment of what is confined without network; test suites know it."""


@dataclass(frozen=True, slots=True)
class WrappedCommand:
    """Command line in a sandbox, with the resources that live as long as its process."""

    argv: Sequence[str]
    pass_fds: Sequence[int] = ()
    """Descriptors that the process inherits, under the same numbers."""
    takes_terminal: bool = False
    """Whether the command makes its stdin its controlling terminal by itself, so that the starter
    must not: `setsid` yes, `TIOCSCTTY` no."""
    network: socket.socket | None = None
    """The socket that receives its proxy's listener, as a descriptor beside a byte; None: it has no
    proxy. Closed with this."""
    placeholders: Sequence[tuple[int, str]] = ()
    """Descriptors of `pass_fds` that are of empty folders, and the folders' names: the starter may
    remove them when it has ended; else `close` does. They are open until then."""
    fds: ExitStack = field(default_factory=ExitStack)
    """Closes the other `pass_fds`."""
    held: ExitStack = field(default_factory=ExitStack)
    """Lets go of the rest."""

    def started(self) -> None:
        """Close the descriptors: the process has its own. Harmless when called again."""
        self.fds.close()

    def close(self) -> None:
        """Release all resources, once the process has ended, or if it was never started.

        Blocks: call it in a worker thread. Harmless when called again.
        """
        with self.held, self.fds:
            pass
