"""The file of a Unix socket: made, or taken over from a server that is dead.

What keeps it from being made is said with its path, before the system says "in use" of it.
Source: unix(7); docs/listeners.md.
"""

import errno
import os
import socket
import stat
import sys
from contextlib import suppress
from pathlib import Path

MAX_PATH_BYTES = 107 if sys.platform == "linux" else 103
"""Bytes of the system's `sun_path`, without the zero at its end."""
TOO_LONG = f"longer than the {MAX_PATH_BYTES} bytes that the path of a Unix socket may have"
NO_FOLDER = "is not there, and the socket's folder would be in it"
LINK_TO_NOTHING = "a symbolic link to what is not there"


def bind_socket(path: Path) -> socket.socket:
    """Return a socket that is bound to a path, for this user alone.

    Its folder is made; those above it are not, as a slip would make them too.

    A socket file that a dead server left behind is replaced; one that somebody listens on is not.

    Raises:
        OSError: the path cannot be bound, or is in use, or others could put a socket in its place.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, TOO_LONG, str(path))
    _make_folder(path.parent)
    _require_safe_folder(path.parent)
    _remove_stale_socket(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(str(path))
    except OSError as exc:
        bound.close()
        # The system does not say which path.
        raise OSError(exc.errno, exc.strerror, str(path)) from None
    try:
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    except BaseException:
        bound.close()
        raise
    return bound


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError as exc:
        raise FileNotFoundError(errno.ENOENT, NO_FOLDER, str(folder.parent)) from exc
    except FileExistsError as exc:
        raise NotADirectoryError(errno.ENOTDIR, "exists and is no folder", exc.filename) from None


def _require_safe_folder(folder: Path) -> None:
    """Refuse a folder where any user may replace the socket with one of their own.

    In one with the sticky bit, such as /tmp, everybody may remove only what is theirs.
    """
    mode = folder.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise OSError(errno.EPERM, "everybody may replace files in this folder", str(folder))


def _remove_stale_socket(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            raise OSError(errno.EEXIST, LINK_TO_NOTHING, str(path)) from None
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, "exists and is not a socket", str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # One that accepts nothing any more, and has its backlog full, would be waited for.
        probe.setblocking(False)
        try:
            with suppress(BlockingIOError):
                probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise OSError(errno.EADDRINUSE, "another server listens on this socket", str(path))
