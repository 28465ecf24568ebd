"""Where Codex keeps its rollouts and the names of its threads. Everything here blocks."""

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic_core import from_json

from app_server.threads.log.file.lines import read_lines

logger = logging.getLogger(__name__)

MAX_DEPTH = 6
"""Folders below `sessions`: year, month, day, and room for what may come."""

MAX_NAME_BYTES = 64 * 1024
"""Of one line of the file of names."""

_FILE = re.compile(
    r"rollout-.*?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.jsonl(\.zst)?"
)


@dataclass(frozen=True, slots=True)
class CodexFile:
    """A rollout as the folder shows it."""

    thread_id: str
    place: str
    """Its path; a text, since thousands are listed for each that is opened."""
    archived: bool
    size: int
    mtime_ns: int

    @property
    def path(self) -> Path:
        """Where it is."""
        return Path(self.place)

    @property
    def updated_at_ms(self) -> int:
        """When Codex wrote to it last, in Unix milliseconds."""
        return self.mtime_ns // 1_000_000


@dataclass(frozen=True, slots=True)
class CodexFolder:
    """All rollouts of a home at one moment."""

    files: dict[str, CodexFile]
    """By thread id; where there are several, the one that was written last."""
    compressed: int
    """Rollouts that Codex has compressed, which cannot be read here."""


FOLDERS = {"sessions": False, "archived_sessions": True}
"""Below a home, and whether what is in there is archived."""


def has_folders(home: Path) -> bool:
    """Whether there is a folder of Codex's; two stats."""
    return any((home / folder).exists() for folder in FOLDERS)


def find_files(home: Path) -> CodexFolder:
    """List the rollouts of Codex below a home; folders that cannot be read count as empty."""
    files: dict[str, CodexFile] = {}
    compressed = 0
    for folder, archived in FOLDERS.items():
        for entry in _walk(str(home / folder), MAX_DEPTH):
            found = _FILE.fullmatch(entry.name)
            if found is None:
                continue
            if found[2]:
                compressed += 1
                continue
            try:
                status = entry.stat()
            except OSError:
                # It was moved in this moment, to where the next look finds it.
                continue
            file = CodexFile(found[1], entry.path, archived, status.st_size, status.st_mtime_ns)
            known = files.get(file.thread_id)
            if known is None or known.mtime_ns <= file.mtime_ns:
                files[file.thread_id] = file
    return CodexFolder(files, compressed)


def _walk(folder: str, depth: int) -> Iterator["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            found = list(entries)
    except OSError:
        return
    for entry in found:
        try:
            is_folder, is_file = entry.is_dir(follow_symlinks=False), entry.is_file()
        except OSError:
            continue
        if is_folder and depth:
            yield from _walk(entry.path, depth - 1)
        elif is_file:
            yield entry


class CodexNames:
    """The names that Codex keeps in `session_index.jsonl`, read again when the file changes."""

    def __init__(self, home: Path) -> None:
        self._path = home / "session_index.jsonl"
        self._seen: tuple[int, int] | None = None
        self._names: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        """Return thread ids and names; lines that make no sense are left out."""
        try:
            status = self._path.stat()
            seen = (status.st_size, status.st_mtime_ns)
            if seen != self._seen:
                self._names, self._seen = _read_names(self._path), seen
        except OSError as exc:
            if not isinstance(exc, FileNotFoundError):
                logger.warning("%s: %s", self._path, exc.strerror)
            self._names, self._seen = {}, None
        return self._names


def _read_names(path: Path) -> dict[str, str]:
    names: dict[str, str] = {}
    with path.open("rb") as file:
        for line in read_lines(file, MAX_NAME_BYTES):
            try:
                entry = from_json(line.content or b"null")
            except ValueError:
                continue
            match entry:
                case {"id": str(thread_id), "thread_name": str(name)} if name.strip():
                    names[thread_id] = name.strip()
    return names
