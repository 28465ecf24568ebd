"""How many files and sockets a process may have open.

Source: getrlimit(2), RLIMIT_NOFILE.
"""

import resource
from contextlib import suppress

LARGEST = 1 << 20
"""Asked for where the hard limit says that there is none; systems that have another bound refuse
more."""


def raise_limit() -> int:
    """Raise the soft limit of this process to the hard one; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LARGEST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Some systems refuse their own hard limit; then it stays as it is.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
