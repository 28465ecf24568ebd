"""How many values a JSON text holds, counted without building them.

A parser holds the interpreter until it is done, and an empty list takes two bytes of text but fifty
of memory. So a large text is counted first, in pieces, between which others may run.
Source: docs/wire.md, "Bounds".
"""

MAX_VALUES = 50_000
"""Members and elements of one incoming message, at all levels together."""

PIECE_CHARS = 256 * 1024
"""A text is counted in pieces of this size; one takes about a millisecond."""


class ValueCount:
    """A count that grows with every piece of one text.

    Members and elements are counted by the commas and opening brackets outside of strings: that is
    right but for empty objects and lists, which count as if they held one. Of a text that is not
    JSON it says no less than what a parser builds before it notices.
    """

    def __init__(self) -> None:
        self.values = 0
        self._in_string = False
        self._escaping = False

    def add(self, piece: str) -> None:
        """Count the next piece, of any length."""
        if self._escaping:
            piece = piece[1:]
        piece = piece.replace("\\\\", "").replace('\\"', "")
        self._escaping = piece.endswith("\\")
        parts = piece.split('"')
        outside = "".join(parts[self._in_string :: 2])
        self.values += outside.count(",") + outside.count("[") + outside.count("{")
        self._in_string ^= len(parts) % 2 == 0
