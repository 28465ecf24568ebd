"""The plan in a message of a model: what stands between two lines of its own. No I/O.

Source: docs/tools.md, "Plan mode".
"""

import re
from typing import Literal, NamedTuple

PLAN_OPENING = "<proposed_plan>"
PLAN_CLOSING = "</proposed_plan>"
MAX_KEPT_CHARS = 256
"""Of a line that may become one of the two."""

_LINES = re.compile(r"[^\n]*\n|[^\n]+")


class Piece(NamedTuple):
    """A piece of text, and what it is part of."""

    part: Literal["message", "plan"]
    text: str


class PlanSplitter:
    r"""Parts a text into message and plan while it arrives.

    feed("a\n<proposed_") returns [Piece("message", "a\n")]: what may become one of the two lines is
    kept back. A plan that is not closed ends with the text.
    """

    def __init__(self) -> None:
        self._is_plan = False
        self._line = ""
        """The beginning of the current line, for as long as it may be one of the two."""
        self._is_beginning = True

    def feed(self, text: str) -> list[Piece]:
        """Take more text; returns what is certain by now, as few pieces as can be."""
        pieces: list[Piece] = []
        for line in _LINES.findall(text):
            self._take(line, pieces)
        return pieces

    def finish(self) -> list[Piece]:
        """Return what was kept back."""
        pieces: list[Piece] = []
        if not self._switches(self._line):
            self._give(self._line, pieces)
        self._line = ""
        return pieces

    def _take(self, line: str, pieces: list[Piece]) -> None:
        ends = line.endswith("\n")
        if self._is_beginning:
            self._line += line
            self._is_beginning = False
            if ends and self._switches(self._line):
                self._is_plan = not self._is_plan
            elif not ends and self._may_switch(self._line):
                self._is_beginning = True
                return
            else:
                self._give(self._line, pieces)
            self._line = ""
        else:
            self._give(line, pieces)
        self._is_beginning = ends

    def _marker(self) -> str:
        return PLAN_CLOSING if self._is_plan else PLAN_OPENING

    def _switches(self, line: str) -> bool:
        return line.strip() == self._marker()

    def _may_switch(self, line: str) -> bool:
        return self._marker().startswith(line.strip()) and len(line) < MAX_KEPT_CHARS

    def _give(self, text: str, pieces: list[Piece]) -> None:
        part: Literal["message", "plan"] = "plan" if self._is_plan else "message"
        if not text:
            return
        if pieces and pieces[-1].part == part:
            text = pieces.pop().text + text
        pieces.append(Piece(part, text))


def split_plan(text: str) -> tuple[str, str | None]:
    """Part a whole text into the message and the plan; None if there is none, or a blank one."""
    splitter = PlanSplitter()
    pieces = [*splitter.feed(text), *splitter.finish()]
    message = "".join(piece.text for piece in pieces if piece.part == "message")
    plan = "".join(piece.text for piece in pieces if piece.part == "plan")
    return message, plan if plan.strip() else None
