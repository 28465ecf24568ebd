"""Whether a command failed because its sandbox denied something: a guess from what it says. No I/O.

Source: docs/tools.md, "Approvals and rules".
"""

from app_server.host.commands.output import KeptOutput

SIGNS = (
    b"Operation not permitted",
    b"Permission denied",
    b"Read-only file system",
    b"Network is unreachable",
    b"Could not resolve host",
    b"Temporary failure in name resolution",
)
"""What the system's errors are called, and what tools say that have no network."""

OWN_FAILURES = (2, 126, 127)
"""Exit codes with which shells say that the line itself cannot be run."""

LOOKED_AT_BYTES = 64 * 1024
"""Of the end of its output."""


def looks_denied(exit_code: int, output: KeptOutput) -> bool:
    """Whether the sandbox may be the reason of a failure."""
    if exit_code == 0 or exit_code in OWN_FAILURES:
        return False
    end = output.all()[-LOOKED_AT_BYTES:]
    return any(sign in end for sign in SIGNS)
