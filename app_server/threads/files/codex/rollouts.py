"""Rollouts of Codex: files, names of threads, lines, and the threads that they continue.

Everything here blocks.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic_core import from_json

from app_server.threads.files.codex.items import parse_time_ms
from app_server.threads.log.faults import LogFaults
from app_server.threads.log.reading import read_lines
from protocol.model import JsonObject

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
        """Path of the rollout."""
        return Path(self.place)

    @property
    def updated_at_ms(self) -> int:
        """Unix milliseconds of Codex's last write to it."""
        return self.mtime_ns // 1_000_000


class SeenRollout(NamedTuple):
    """A rollout of Codex as it was when it was last read."""

    thread_id: str
    path: str
    size: int
    mtime_ns: int
    name: str | None

    @classmethod
    def of(cls, file: CodexFile, name: str | None) -> "SeenRollout":
        """Return the identity by which a changed rollout is recognized."""
        return cls(file.thread_id, file.place, file.size, file.mtime_ns, name)


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


MAX_LINE_BYTES = 64 * 1024 * 1024

MAX_FORKS = 32
"""Threads that one may continue, each a fork of the one before."""

MAX_HEAD_LINES = 400
"""Lines that are looked at for the first message of a user."""

TAIL_BYTES = 64 * 1024
"""Of a rollout that are searched for the last settings."""


class NotACodexRollout(Exception):
    """A file does not begin as a rollout of its thread does."""


@dataclass(frozen=True, slots=True)
class CodexLine:
    """One line: what happened, and when."""

    number: int
    """In its file, from 1."""
    at_ms: int
    kind: str
    payload: JsonObject
    ordinal: int | None
    """Position among the lines of a thread and of the threads that it continues."""


def read_codex_lines(rollout: CodexFile, faults: LogFaults) -> Iterator[CodexLine]:
    """Read a rollout of Codex; lines that make no sense, and a torn last one, are left out.

    What Codex wrote after the look that found the rollout is left out too, so that reading it
    twice gives the same lines.

    Raises:
        OSError: it cannot be read.
    """
    with rollout.path.open("rb") as file:
        at, end = 0, rollout.size
        for number, content, ended in read_lines(file, MAX_LINE_BYTES):
            at += len(content or b"")
            if not ended or at > end:
                return
            line = None if content is None else _parse(number, content)
            if line is None:
                faults.add_damaged(number)
            else:
                yield line


def _parse(number: int, content: bytes) -> CodexLine | None:
    try:
        value = from_json(content)
    except ValueError:
        return None
    match value:
        case {"type": str(kind), "payload": dict(payload)}:
            ordinal = value.get("ordinal")
            return CodexLine(
                number,
                parse_time_ms(value.get("timestamp")),
                kind,
                payload,
                ordinal if isinstance(ordinal, int) else None,
            )
    return None


@dataclass(slots=True)
class CodexHead:
    """Metadata from the first lines of a rollout."""

    meta: JsonObject
    at_ms: int
    context: JsonObject = field(default_factory=dict)
    """The first settings of a turn."""
    first_user_line: CodexLine | None = None

    @property
    def forked_at(self) -> tuple[str, int] | None:
        """The thread whose lines come before these, and its ordinal at which these go on."""
        match self.meta:
            case {"forked_from_id": str(found), "forked_from_ordinal_exclusive": int(ordinal)}:
                return found, ordinal
        return None


def read_head(file: CodexFile) -> CodexHead:
    """Read what the first lines of a rollout say.

    Raises:
        NotACodexRollout, OSError
    """
    head: CodexHead | None = None
    lines = read_codex_lines(file, LogFaults())
    for number, line in enumerate(lines):
        if head is None:
            if line.kind != "session_meta" or line.payload.get("id") != file.thread_id:
                raise NotACodexRollout(file.path)
            created = parse_time_ms(line.payload.get("timestamp"))
            head = CodexHead(line.payload, created or line.at_ms)
        elif line.kind == "turn_context" and not head.context:
            head.context = line.payload
        elif is_user_message(line) and head.first_user_line is None:
            head.first_user_line = line
        if (head.context and head.first_user_line) or number >= MAX_HEAD_LINES:
            break
    if head is None:
        raise NotACodexRollout(file.path)
    return head


def read_last_context(file: CodexFile) -> JsonObject | None:
    """Return the last settings of a turn, if they stand near the end of a rollout.

    Raises:
        OSError: it cannot be read.
    """
    with file.path.open("rb") as opened:
        opened.seek(max(0, file.size - TAIL_BYTES))
        lines = opened.read(TAIL_BYTES).splitlines()
    for content in reversed(lines):
        if b'"turn_context"' in content:
            line = _parse(0, content)
            if line is not None and line.kind == "turn_context":
                return line.payload
    return None


def is_user_message(line: CodexLine) -> bool:
    """Whether a user says something, in either form."""
    if line.kind != "event_msg":
        return False
    match line.payload:
        case {"type": "user_message"} | {"type": "item_completed", "item": {"type": "UserMessage"}}:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Segment:
    """A rollout, or the part of it that another one continues."""

    file: CodexFile
    head: CodexHead
    before: int | None = None
    """The ordinal at which it ends; None means the end of the file."""

    def lines(self, faults: LogFaults) -> Iterator[CodexLine]:
        """Read its lines; see `read_codex_lines`."""
        for line in read_codex_lines(self.file, faults):
            if self.before is not None and line.ordinal is not None and line.ordinal >= self.before:
                return
            yield line


def segments_of(file: CodexFile, files: Mapping[str, CodexFile]) -> list[Segment]:
    """Find the rollouts that make up a thread, the oldest first.

    A thread that a fork continues may be gone: then the fork begins where it was forked.

    Raises:
        NotACodexRollout, OSError: the rollout itself cannot be read.
    """
    segments = [Segment(file, read_head(file))]
    while len(segments) < MAX_FORKS:
        forked = segments[0].head.forked_at
        if forked is None or (parent := files.get(forked[0])) is None:
            break
        try:
            segments.insert(0, Segment(parent, read_head(parent), forked[1]))
        except (NotACodexRollout, OSError):
            break
    return segments
