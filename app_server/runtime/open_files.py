"""Number of open files and sockets of a process, and its limit.

Source: getrlimit(2), RLIMIT_NOFILE.
"""

import resource
from contextlib import suppress
from pathlib import Path

LARGEST = 1 << 20
"""Asked for where the hard limit says that there is none; systems that have another bound refuse
more."""


OWN = Path("/proc/self/fd")


def open_files() -> int | None:
    """Count the open descriptors of this process; None where that is unknown. Blocks."""
    try:
        # One of them is the folder that is being read.
        return sum(1 for _ in OWN.iterdir()) - 1
    except OSError:
        return None


def limit() -> int | None:
    """Return how many files this process may have open; None where there is no bound."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Raise the soft limit of this process to the hard one; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LARGEST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Some systems refuse their own hard limit; then it stays as it is.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
