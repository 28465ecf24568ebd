"""Whether a file is as it was when it was read, from one stat.

Source: racy-git, https://git-scm.com/docs/racy-git: a file may change twice within one tick of its
file system's clock, so one that was changed a moment ago cannot be told from its next version.
"""

from pathlib import Path
from typing import NamedTuple

SETTLED_S = 2.0
"""The coarsest clock of a file system in use: that of FAT."""

QUIET_S = 0.05
"""A file that was written a shorter time ago may not be whole yet."""


class Stamp(NamedTuple):
    """Identity of a version of a file. Times are Unix nanoseconds."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


ABSENT = Stamp(0, 0, 0, 0, 0)


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of a file: ABSENT if it does not exist, None if it is not settled."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return ABSENT
    except OSError:
        return None
    return Stamp(
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


def is_settled(stamp: Stamp | None, now_ns: int, after_s: float = SETTLED_S) -> bool:
    """Whether the file has been unchanged for a time.

    After SETTLED_S its next version will have another stamp than this one; after QUIET_S whoever
    wrote it has most likely written all.
    """
    if stamp is None:
        return False
    newest = max(stamp.modified_ns, stamp.changed_ns)
    return now_ns - newest > after_s * 1e9
