"""Lines of Codex's rollouts, with the threads that they continue. Everything here blocks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic_core import from_json

from app_server.threads.codex.files import CodexFile
from app_server.threads.codex.values import parse_time_ms
from app_server.threads.log.faults import LogFaults
from app_server.threads.log.file.lines import read_lines
from protocol.model import JsonObject

MAX_LINE_BYTES = 64 * 1024 * 1024

MAX_FORKS = 32
"""How many threads one may continue, each a fork of the one before."""

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
    """Where it stands among the lines of a thread and those that it continues."""


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
    """What the first lines of a rollout say."""

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
