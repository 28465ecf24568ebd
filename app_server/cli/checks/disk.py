"""Whether the disks of the home and of temporary files take what is written.

Space is one thing that can be missing; quotas, entries of folders and disks that turned read-only
are others. So something is written: to a file without a name, which vanishes with its descriptor.
"""

import errno
import os
import tempfile
from pathlib import Path

from app_server.cli.checks.machine import Machine
from app_server.threads.repair import Check

WRITTEN_BYTES = 256 * 1024
FEW_ENTRIES = 1000
"""Files that can still be made; some file systems have no such bound and say 0 of 0."""

ADVICE = {
    errno.ENOSPC: "make room on this disk: what cannot be stored is refused",
    errno.EDQUOT: "make room within the quota of this user: what cannot be stored is refused",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "the disk is mounted read-only: look at the log of the kernel, and mount it anew",
    errno.EACCES: "give this user the right to write there",
}


def check_disk(machine: Machine) -> Check:
    """Write and sync a little beside the threads, and where temporary files go."""
    check = Check("disk", message=str(machine.home))
    for folder in (_existing(machine.home), Path(tempfile.gettempdir())):
        _check_folder(folder, check)
    return check


def _existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _check_folder(folder: Path, check: Check) -> None:
    try:
        facts = os.statvfs(folder)
        _write(folder)
    except OSError as exc:
        check.add("error", f"{folder}: {exc.strerror}")
        check.advise(ADVICE.get(exc.errno or 0, "look at the disk and at the log of the kernel"))
        return
    if facts.f_files > 0 and facts.f_favail < FEW_ENTRIES:
        check.add("error", f"{folder}: {facts.f_favail} more files can be made on its disk")
        check.advise("remove files that nobody needs: this disk has no room for more names")


def _write(folder: Path) -> None:
    number = (
        os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        if hasattr(os, "O_TMPFILE")
        else _removed_file(folder)
    )
    try:
        left = WRITTEN_BYTES
        while left:
            left -= os.write(number, bytes(left))
        os.fsync(number)
    finally:
        os.close(number)


def _removed_file(folder: Path) -> int:
    number, name = tempfile.mkstemp(dir=folder)
    Path(name).unlink()
    return number
