"""Lines of a file that anybody may have written, in bounded memory. Everything here blocks."""

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

MAX_LINE_BYTES = 256 * 1024 * 1024
"""Of one line; the largest that a client can cause is a message of 64 MiB, escaped."""


class Line(NamedTuple):
    """One line as it stands in a file."""

    number: int
    """From 1."""
    content: bytes | None
    """With its line end; None when it is too long to be looked at."""
    ended: bool
    """Whether it has a line end; only the last line of a file may have none."""


def read_lines(file: BinaryIO, limit_bytes: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Read a file line by line, holding at most one line of `limit_bytes`.

    Raises:
        OSError: the file cannot be read.
    """
    number = 0
    while content := file.readline(limit_bytes):
        number += 1
        ended = content.endswith(b"\n")
        if ended or len(content) < limit_bytes:
            yield Line(number, content, ended)
            continue
        while content and not content.endswith(b"\n"):
            content = file.readline(limit_bytes)
        yield Line(number, None, bool(content))
