"""Threads of Codex as logs of ours, for those who page and search them. Everything here blocks.

A copy is what an import would write, beside the index, and can be made again at any time. It is
named after size and time of its rollout, so that one that changed has a new copy, and after its own
size and checksum, so that damage is seen when a process first uses it.
Source: docs/storage.md, "Threads of Codex".
"""

import logging
import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from app_server.runtime.files.disk import atomic_write, make_folder
from app_server.runtime.files.sqlite import set_aside
from app_server.threads.files.codex.rollouts import SeenRollout
from app_server.threads.files.codex.threads import CodexSource, CodexThreads, records_to_import
from app_server.threads.log.faults import LogFaults
from protocol.log.rollout import render_record


def import_thread(source: CodexSource, path: Path, faults: LogFaults) -> None:
    """Write a thread of Codex to `path`; when this returns it is on disk.

    The caller holds the thread's lock. `faults` counts what could not be read.

    Raises:
        OSError: the source cannot be read, or the disk refused; then nothing is left behind.
    """
    make_folder(path.parent)
    with atomic_write(path, path.with_suffix(".importing")) as file:
        for record in records_to_import(source, faults):
            file.write(render_record(record))


logger = logging.getLogger(__name__)

READ_BYTES = 1 << 20

MAX_COPIES = 64
"""Copies that are kept, the most recently used ones."""


class CodexCopies:
    """A folder of copies; safe to use from any worker thread, and beside other processes."""

    def __init__(self, folder: Path, codex: CodexThreads) -> None:
        self._folder = folder
        self._codex = codex
        self._lock = threading.Lock()
        self._checked = set[Path]()
        """Copies that this process has made, or has read whole."""

    def listed(self) -> Iterator[tuple[str, str]]:
        """Walk the threads of Codex that lists show, each with what names its content."""
        return ((seen.thread_id, _version(seen)) for seen in self._codex.listed())

    def path_of(self, thread_id: str) -> Path:
        """Return the copy of a thread as it is now, which is made if need be.

        It stays there until MAX_COPIES others were used.

        Raises:
            NoCodexThread: Codex has no such thread.
            OSError: the rollout cannot be read, or the copy not be written.
        """
        with self._lock:
            source = self._codex.find(thread_id)
            version = _version(SeenRollout.of(source.file, source.name))
            path = self._intact(f"{thread_id}.{version}")
            if path is None:
                if self._folder.is_file():
                    set_aside(self._folder)
                # A name of its own: another process may make the same copy.
                making = self._folder / f"{thread_id}.{version}.{os.getpid()}.jsonl"
                import_thread(source, making, LogFaults())
                path = self._folder / f"{thread_id}.{version}.{_content(making)}.jsonl"
                making.rename(path)
                self._checked.add(path)
                self._forget_old(path)
            return path

    def _intact(self, name: str) -> Path | None:
        """Return the copy of a version of a thread, if it is what was written."""
        for path in self._folder.glob(f"{name}.*-*.jsonl"):
            if path.is_dir():
                set_aside(path)
            elif path in self._checked or path.name == f"{name}.{_content(path)}.jsonl":
                with suppress(FileNotFoundError):
                    os.utime(path)
                    self._checked.add(path)
                    return path
            else:
                logger.warning("%s is damaged, and is made again", path)
                path.unlink(missing_ok=True)
        return None

    def _forget_old(self, newest: Path) -> None:
        kept: list[tuple[int, Path]] = []
        for path in self._folder.iterdir():
            if path.name.startswith(newest.name.split(".")[0]):
                if path != newest and path.suffix == newest.suffix:
                    path.unlink(missing_ok=True)
                continue
            try:
                kept.append((path.stat().st_mtime_ns, path))
            except FileNotFoundError:
                continue
        kept.sort(reverse=True)
        for _, path in kept[MAX_COPIES - 1 :]:
            path.unlink(missing_ok=True)


def _content(path: Path) -> str | None:
    """Return size and checksum of a file, as a word; None when it cannot be read."""
    size = checksum = 0
    try:
        with path.open("rb") as file:
            while block := file.read(READ_BYTES):
                size, checksum = size + len(block), zlib.crc32(block, checksum)
    except OSError:
        return None
    return f"{size:x}-{checksum:08x}"


def _version(seen: SeenRollout) -> str:
    return f"{seen.size:x}-{seen.mtime_ns:x}"
