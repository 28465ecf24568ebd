"""Failures of the host methods to wire errors."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app_server.host.files.work import PathRefused
from protocol.jsonrpc.errors import internal_error, invalid_request


@contextmanager
def file_failures() -> Iterator[None]:
    """Translate what the system says of a path, and what makes no sense for it."""
    try:
        yield
    except PathRefused as exc:
        raise invalid_request(str(exc), "fileRefused") from exc
    except OSError as exc:
        number = exc.errno or 0
        raise internal_error(
            f"{os.strerror(number)} (os error {number})",
            "fileFailed",
            reason=errno.errorcode.get(number, "unknown"),
        ) from exc


def as_path(path: str) -> Path:
    """Take a path of a client: `.` and `..` go by the text, links are left alone.

    Raises:
        RpcError: no file can have it.
    """
    if "\0" in path:
        raise invalid_request("file name contained an unexpected NUL byte", "fileRefused")
    return Path(os.path.normpath(path))
