"""A program of its own: ends the process groups of a server that has died, however it died.

Its stdin is a pipe from the server, with a line for each group that comes (`+ID`) or goes (`-ID`).
The end of the pipe means that the server has ended. Runs as `python -I -S`, and imports little:
there is one beside every server that has children.
Source: docs/environments.md, "Children".
"""

import os
import signal
import time
from collections.abc import Iterable

TERMINATE_S = 2.0
"""Between SIGTERM and SIGKILL."""

LOOK_S = 0.02
"""Between looks at groups that were asked to end."""


def read_groups(pipe: int) -> set[int]:
    """Read lines until the pipe ends and return the groups that are left."""
    groups: set[int] = set()
    rest = b""
    while chunk := os.read(pipe, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            group = int(line[1:])
            if line.startswith(b"+"):
                groups.add(group)
            else:
                groups.discard(group)
    return groups


def end_groups(groups: Iterable[int]) -> None:
    """Send SIGTERM, and SIGKILL to the remaining ones after a while."""
    left = [group for group in groups if _signal(group, signal.SIGTERM)]
    deadline = time.monotonic() + TERMINATE_S
    while left and time.monotonic() < deadline:
        time.sleep(LOOK_S)
        left = [group for group in left if _signal(group, 0)]
    for group in left:
        _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    """Whether there still is such a group."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def main() -> None:
    """Watch over the server at the other end of stdin."""
    # Whoever stops everything at once must not stop this before the server.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    end_groups(read_groups(0))


if __name__ == "__main__":
    main()
