"""From the text of a patch to values. No I/O.

Source: docs/tools.md, "Patches".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


class PatchFailed(Exception):
    """The patch is not applied."""


class BadPatch(PatchFailed):
    """It is not written as the grammar wants it."""


class EmptyPatch(PatchFailed):
    """It changes no file."""


class NotApplicable(PatchFailed):
    """It does not fit what is on the disk; nothing was changed."""


class NotWritten(PatchFailed):
    """The disk refused, or a file had changed meanwhile."""

    def __init__(self, message: str, changed: Sequence[int] | None = ()) -> None:
        """Say what failed; `changed` are the numbers of the changes that had been made by then.

        None: it is not known.
        """
        super().__init__(message)
        self.changed = None if changed is None else tuple(changed)


BEGIN = "*** Begin Patch"
END = "*** End Patch"
ADD = "*** Add File: "
DELETE = "*** Delete File: "
UPDATE = "*** Update File: "
MOVE = "*** Move to: "
ENVIRONMENT = "*** Environment ID: "
END_OF_FILE = "*** End of File"
CONTEXT = "@@"

LARK = r"""start: begin file_change+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?

file_change: add | delete | update
add: "*** Add File: " path LF added_line+
delete: "*** Delete File: " path LF
update: "*** Update File: " path LF move? edits?

path: /(.+)/
added_line: "+" /(.*)/ LF
move: "*** Move to: " path LF
edits: (context | edit_line)+ end_of_file?
context: ("@@" | "@@ " /(.+)/) LF
edit_line: (" " | "-" | "+") /(.*)/ LF
end_of_file: "*** End of File" LF

%import common.LF
"""
"""Grammar for models with freeform tools; the parser accepts a little more."""

LARK_ENVIRONMENTS = LARK.replace(
    "start: begin file_change+ end",
    'start: begin environment? file_change+ end\nenvironment: "*** Environment ID: " path LF',
)
"""The same, where a patch can name the environment whose files it changes."""


MAX_FILES = 2_000
"""Files that one patch names at most."""

_HEREDOC_STARTS = ("<<EOF", "<<'EOF'", '<<"EOF"')
_HEADERS = "'*** Add File: {path}', '*** Delete File: {path}', '*** Update File: {path}'"


Lines: TypeAlias = Sequence[tuple[str, str]]
"""Lines of a hunk, each with its mark in front: ` ` stays, `-` goes, `+` comes."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that follow each other in a file, and what they become."""

    contexts: tuple[str, ...]
    """Lines somewhere above them, perhaps far, in their order."""
    lines: Lines
    at_end: bool = False
    """Whether they are the last of the file."""


@dataclass(frozen=True, slots=True)
class AddFile:
    """A file that is written, whether there is one or not."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A file that goes."""

    path: str


@dataclass(frozen=True, slots=True)
class UpdateFile:
    """A file whose lines change, or its name, or both."""

    path: str
    move_to: str | None
    hunks: tuple[Hunk, ...]


FileChange: TypeAlias = AddFile | DeleteFile | UpdateFile


@dataclass(frozen=True, slots=True)
class Patch:
    """Changes of files, in their order; at least one."""

    changes: tuple[FileChange, ...]
    environment_id: str | None = None
    """The environment whose files they are; None: that of the turn."""


def parse_patch(text: str) -> Patch:
    """Read a patch. White space around the first and the last line does not matter.

    Raises:
        BadPatch: it is none; the text names the line, counted from 1.
        EmptyPatch: it names no file.
    """
    return _Parser(_unwrapped(text.strip().split("\n"))).patch()


def _unwrapped(lines: list[str]) -> list[str]:
    """Take away a here-document that a model has put around."""
    if len(lines) >= 4 and lines[0].strip() in _HEREDOC_STARTS and lines[-1].strip() == "EOF":
        return lines[1:-1]
    return lines


class _Parser:
    def __init__(self, lines: list[str]) -> None:
        # A patch that was written with the line ends of Windows; none of them is part of its text.
        is_crlf = all(line.endswith("\r") for line in lines[:-1])
        self._lines = [line.removesuffix("\r") for line in lines] if is_crlf else lines
        if self._lines[0].strip() != BEGIN:
            raise BadPatch(f"invalid patch: The first line of the patch must be '{BEGIN}'")
        if self._lines[-1].strip() != END or len(self._lines) < 2:
            raise BadPatch(f"invalid patch: The last line of the patch must be '{END}'")
        self._end = len(self._lines) - 1
        self._at = 1

    def patch(self) -> Patch:
        environment_id = self._after(ENVIRONMENT)
        changes: list[FileChange] = []
        while self._at < self._end:
            if not (changes and not self._line.strip()):
                changes.append(self._change())
                if len(changes) > MAX_FILES:
                    raise BadPatch(f"invalid patch: it names more than {MAX_FILES} files")
            else:
                self._at += 1
        if not changes:
            raise EmptyPatch("empty patch")
        return Patch(tuple(changes), environment_id)

    @property
    def _line(self) -> str:
        return self._lines[self._at]

    def _after(self, header: str) -> str | None:
        """Take a line that begins with a header, if it is the next one, and return the rest."""
        if (line := self._line.strip()).startswith(header.rstrip()):
            self._at += 1
            return line.removeprefix(header.rstrip()).strip()
        return None

    def _path(self, header: str) -> str | None:
        number = self._at
        path = self._after(header)
        if path == "" or (path and "\0" in path):
            raise self._bad(number, f"'{header}' needs a path")
        return path

    def _bad(self, index: int, message: str) -> BadPatch:
        return BadPatch(f"invalid hunk at line {index + 1}, {message}")

    def _change(self) -> FileChange:
        number = self._at
        if (path := self._path(ADD)) is not None:
            added: list[str] = []
            while self._line.startswith("+"):
                added.append(self._line[1:] + "\n")
                self._at += 1
            return AddFile(path, "".join(added))
        if (path := self._path(DELETE)) is not None:
            return DeleteFile(path)
        if (path := self._path(UPDATE)) is not None:
            move_to = self._path(MOVE)
            hunks = self._hunks()
            if not hunks and move_to is None:
                raise self._bad(number, f"Update file hunk for path '{path}' is empty")
            return UpdateFile(path, move_to, tuple(hunks))
        message = f"'{self._line.strip()[:200]}' is not a valid hunk header. "
        raise self._bad(number, f"{message}Valid hunk headers: {_HEADERS}")

    def _hunks(self) -> list[Hunk]:
        hunks: list[Hunk] = []
        while self._at < self._end and not self._is_header(self._line):
            if hunks and not self._line.strip() and self._blank_until_header():
                break
            hunks.append(self._hunk(is_first=not hunks))
        return hunks

    def _blank_until_header(self) -> bool:
        index = self._at
        while not self._lines[index].strip():
            index += 1
        return index == self._end or self._is_header(self._lines[index])

    @staticmethod
    def _is_header(line: str) -> bool:
        return line.startswith("*** ") and line.rstrip() != END_OF_FILE

    def _hunk(self, *, is_first: bool) -> Hunk:
        start = self._at
        contexts = self._contexts()
        if self._at == start and not is_first:
            wanted = "Expected update hunk to start with a @@ context marker"
            raise self._bad(start, f"{wanted}, got: '{self._line[:200]}'")
        lines: list[tuple[str, str]] = []
        at_end = False
        while self._at < self._end and not self._is_header(line := self._line):
            if line.rstrip() == END_OF_FILE:
                self._at += 1
                at_end = True
                break
            if line.startswith(CONTEXT) and lines:
                break
            if line and line[0] not in " -+":
                raise self._bad(
                    self._at,
                    f"Unexpected line found in update hunk: '{line[:200]}'. Every line should "
                    "start with ' ' (context line), '+' (added line), or '-' (removed line)",
                )
            # Models leave the blank away in front of an empty line that stays.
            lines.append((line[0], line[1:]) if line else (" ", ""))
            self._at += 1
        if not lines:
            raise self._bad(start, "Update hunk does not contain any lines")
        return Hunk(contexts, tuple(lines), at_end)

    def _contexts(self) -> tuple[str, ...]:
        found: list[str] = []
        while (line := self._line.rstrip()) == CONTEXT or line.startswith(f"{CONTEXT} "):
            if line != CONTEXT:
                found.append(self._line[len(CONTEXT) + 1 :])
            self._at += 1
        return tuple(found)
