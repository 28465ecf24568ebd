"""The entries of a replay buffer: messages as texts, as small as they can be."""

from array import array
from collections.abc import Hashable

from app_server.rpc.outgoing import Delta, Form, Outgoing

RUN = 64
"""Pieces of one text that are kept together, and leave together."""
ENTRY_BYTES = 160
"""Estimated bytes of an entry besides its texts."""
PIECE_BYTES = 64
"""Estimated bytes of a piece of a run besides its text, until the run is full."""

_PLAIN: Form = (True, False, True)
_STABLE: Form = (False, False, True)


class ReplayEntry:
    """One event, rendered."""

    __slots__ = ("_stable", "_whole", "first", "method", "size")

    def __init__(self, outgoing: Outgoing) -> None:
        assert outgoing.seq is not None
        self.method = outgoing.method
        self.first = outgoing.seq
        self._whole = outgoing.text(_PLAIN)
        stable = outgoing.text(_STABLE)
        self._stable = None if stable == self._whole else stable
        self.size = ENTRY_BYTES + len(self._whole) + len(self._stable or "")

    @property
    def last(self) -> int:
        """The number of the event."""
        return self.first

    def text(self, form: Form) -> str:
        """Give the message in a form."""
        experimental, jsonrpc, numbered = form
        text = self._whole if experimental or self._stable is None else self._stable
        if not numbered:
            text = text.removesuffix(f',"seq":{self.first}}}') + "}"
        return f'{{"jsonrpc":"2.0",{text[1:]}' if jsonrpc else text

    def delta(self, form: Form) -> Delta | None:
        """Give nothing: this is a whole."""
        return None


class ReplayDeltas:
    """Deltas of one text that follow each other, kept together."""

    __slots__ = ("_ends", "_newest", "_pieces", "first", "key", "size")

    def __init__(self, outgoing: Outgoing) -> None:
        assert outgoing.seq is not None
        self.first = outgoing.seq
        self.key: Hashable = outgoing.key
        self._newest = outgoing
        self._pieces: list[str] = []
        self._ends: array[int] | None = None
        self.size = ENTRY_BYTES
        self.add(outgoing)

    @property
    def last(self) -> int:
        """The number of the newest piece."""
        return self.first + len(self._pieces if self._ends is None else self._ends) - 1

    def takes(self, outgoing: Outgoing) -> bool:
        """Whether this is one more piece of the text, and there is room."""
        return len(self._pieces) < RUN and outgoing.is_delta and outgoing.key == self.key

    def add(self, outgoing: Outgoing) -> int:
        """Add a piece; returns by how many bytes the run grew."""
        self._pieces.append(outgoing.piece)
        self._newest = outgoing
        grown = PIECE_BYTES + len(outgoing.piece)
        self.size += grown
        return grown

    def close(self) -> int:
        """Keep the text as one, as nothing will be added; returns how many bytes that frees."""
        ends, length = array("L"), 0
        for piece in self._pieces:
            length += len(piece)
            ends.append(length)
        self._ends, self._pieces = ends, ["".join(self._pieces)]
        freed = len(ends) * (PIECE_BYTES - ends.itemsize)
        self.size -= freed
        return freed

    def since(self, after: int) -> Outgoing:
        """Give what came after a number, as one event; some of the run must."""
        skipped = max(after + 1 - self.first, 0)
        if self._ends is None:
            text = "".join(self._pieces[skipped:])
        else:
            text = self._pieces[0][self._ends[skipped - 1] if skipped else 0 :]
        newest = self._newest
        event = newest.event.model_copy(update={"delta": text})
        return Outgoing(newest.method, event, newest.at_ms, self.last)
