"""Bounds of the system that a server may meet."""

import resource

from app_server.cli.checks.machine import Machine
from app_server.threads.repair import Check

FEW_FILES = 1024
"""Open files: one for each loaded thread and each connection, and some dozens."""
SMALL_FILE_BYTES = 1024 * 1024 * 1024
"""Logs and the index grow."""


def check_limits(machine: Machine) -> Check:
    """Look at what the server cannot raise by itself."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    size, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    shown = "unlimited" if files == resource.RLIM_INFINITY else str(files)
    check = Check("limits", message=f"open files: {shown}")
    if files != resource.RLIM_INFINITY and files < FEW_FILES:
        check.add("warning", f"a server may have {files} files open")
        check.advise("raise the hard limit (ulimit -Hn, LimitNOFILE= of a systemd unit)")
    if size != resource.RLIM_INFINITY and size < SMALL_FILE_BYTES:
        check.add("warning", f"a file may have {size} bytes")
        check.advise("raise the limit on the size of files (ulimit -f, LimitFSIZE=)")
    return check
