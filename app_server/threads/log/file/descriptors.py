"""Opening a file for a moment, also when no descriptor is left. Everything here blocks.

One descriptor is kept back for that, so that a thread that was accepted can be written whatever
takes the others.
Source: docs/storage.md, "Descriptors".
"""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_EXHAUSTED = (errno.EMFILE, errno.ENFILE)


class _Spare:
    """A descriptor of nothing, which gives way to one of something."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._file: int | None = None

    def keep(self) -> None:
        """Have a descriptor if that can be."""
        if self._file is None:
            with suppress(OSError):
                self._file = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def give_way(self) -> None:
        """Have none."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


_spare = _Spare()


@contextmanager
def open_file(path: Path, flags: int) -> Iterator[int]:
    """Open a file for as long as the context lasts; a new one is for its owner alone.

    Raises:
        OSError: see os.open. With no descriptor left, callers take turns with the spare one.
    """
    with _spare.lock:
        _spare.keep()
    flags |= os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o600)
    except OSError as exc:
        if exc.errno not in _EXHAUSTED:
            raise
        with _spare.lock:
            _spare.give_way()
            try:
                file = os.open(path, flags, 0o600)
                try:
                    yield file
                finally:
                    os.close(file)
            finally:
                _spare.keep()
        return
    try:
        yield file
    finally:
        os.close(file)
