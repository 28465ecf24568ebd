"""Whether a signal is in the log of a thread: read from the file that the server names.

Neither our server nor the reference shows injected items to clients; both have them in the log
before they answer.
Source: docs/receiver.md, "Crashes".
"""

import stat
from enum import Enum
from pathlib import Path

import anyio.to_thread

from app_server.clients.receiver.agent.item import line_holds

MAX_LOG_BYTES = 512 * 1024 * 1024
"""A longer log is not read."""

MAX_LINE_BYTES = 64 * 1024 * 1024


class Presence(Enum):
    """What a log says of a signal."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"
    """There is no such file, or it cannot be read as a whole."""


async def log_exists(path: str | None) -> bool:
    """Whether there is a log yet; the reference makes it with the first item."""
    return path is not None and await anyio.to_thread.run_sync(Path(path).is_file)


async def find_in_log(path: str | None, signal_id: str, *, was_there: bool) -> Presence:
    """Look for a signal in a log; reads in a worker thread.

    `was_there` says whether the log existed before the item was sent. If not, its absence now
    means that of the item.
    """
    if path is None:
        return Presence.UNKNOWN
    return await anyio.to_thread.run_sync(_find, Path(path), signal_id, was_there)


def _find(path: Path, signal_id: str, was_there: bool) -> Presence:
    try:
        with path.open("rb") as file:
            status = path.stat()
            if status.st_size > MAX_LOG_BYTES or not stat.S_ISREG(status.st_mode):
                return Presence.UNKNOWN
            while line := file.readline(MAX_LINE_BYTES):
                if line_holds(line, signal_id):
                    return Presence.PRESENT
    except FileNotFoundError:
        return Presence.UNKNOWN if was_there else Presence.ABSENT
    except OSError:
        return Presence.UNKNOWN
    return Presence.ABSENT
