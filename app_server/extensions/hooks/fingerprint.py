"""The fingerprint of a folder: one digest of all that it holds. Blocks: call it in a worker thread.

It is the one that Codex makes of a plugin, so that both trust the same hooks of it.
Source: docs/hooks.md, "Hooks of plugins".
"""

import hashlib
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TypeAlias

PREFIX = b"codex-plugin-bundle-v1"

MAX_ENTRIES = 4_096
"""Files and folders of one folder."""
MAX_BYTES = 256 * 1024 * 1024
"""Of its files together."""
MAX_KNOWN = 64
"""Folders whose fingerprints are remembered."""
CHUNK_BYTES = 1024 * 1024

_Entry: TypeAlias = tuple[str, os.stat_result]
"""The path of an entry below the folder, and what it was when it was looked at."""


class NoFingerprint(Exception):
    """A folder has none; the text says why."""


_KNOWN: OrderedDict[Path, tuple[object, str]] = OrderedDict()
"""States of folders when they were read last, and their fingerprints."""


def fingerprint(root: Path, *, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES) -> str:
    """Return the SHA-256 of a folder, in hexadecimal digits.

    The files are read again if one of them was written, replaced, added or removed since. Only
    folders of at most `max_entries` files and folders and `max_bytes` have one.

    Raises:
        NoFingerprint: it is no folder, has a link or a special file, or is too large.
    """
    try:
        entries = list(_walk(root, max_entries, max_bytes))
        seen = [(path, _state(found)) for path, found in entries]
        known = _KNOWN.get(root)
        if known is not None and known[0] == seen:
            return known[1]
        digest = _digest(root, entries)
    except OSError as exc:
        raise NoFingerprint(f"{exc.filename or root}: {exc.strerror}") from exc
    _KNOWN[root] = seen, digest
    while len(_KNOWN) > MAX_KNOWN:
        _KNOWN.popitem(last=False)
    return digest


def _state(found: os.stat_result) -> tuple[int, ...]:
    # Whoever changes a file may set its time of modification back, but not that of its change.
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _walk(root: Path, max_entries: int, max_bytes: int) -> Iterator[_Entry]:
    """Give the folder itself, whose path is empty, and all below it, in the order of Codex."""
    left = [""]
    count = size = 0
    while left:
        path = left.pop()
        found = os.lstat(root / path)
        count, size = count + 1, size + (found.st_size if stat.S_ISREG(found.st_mode) else 0)
        if count > max_entries + 1 or size > max_bytes:
            raise NoFingerprint(f"more than {max_entries} files, or {max_bytes} bytes")
        if stat.S_ISDIR(found.st_mode):
            names = sorted(_names(root / path), key=os.fsencode, reverse=True)
            left += [f"{path}/{name}" if path else name for name in names]
        elif not stat.S_ISREG(found.st_mode):
            raise NoFingerprint(f"{root / path} is no file and no folder")
        yield path, found


def _names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        # One more than may be there is enough to see that there are too many.
        return [entry.name for entry in islice(entries, MAX_ENTRIES + 1)]


def _digest(root: Path, entries: list[_Entry]) -> str:
    digest = hashlib.sha256(PREFIX)
    for path, found in entries:
        encoded = os.fsencode(path)
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
        if stat.S_ISDIR(found.st_mode):
            digest.update(b"directory")
            continue
        digest.update(b"file" + found.st_size.to_bytes(8, "little"))
        if _add_file(digest, root / path) != found.st_size:
            raise NoFingerprint(f"{root / path} changed while it was read")
    return digest.hexdigest()


def _add_file(digest: "hashlib._Hash", path: Path) -> int:
    size = 0
    # With an opener, since what becomes a folder meanwhile is opened, refused, and closed again.
    with open(path, "rb", opener=_open) as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
