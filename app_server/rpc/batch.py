"""The answers of one batch: collected, and sent as one array when the last has come.

Source: JSON-RPC 2.0, section 6; docs/wire.md, "Bounds".
"""

from collections.abc import Callable
from typing import TypeAlias

from protocol.jsonrpc.envelope import Batch, Invalid, Request, RequestId, render_batch, render_error
from protocol.jsonrpc.errors import MAX_ANSWER_CHARS, answer_too_large

Action: TypeAlias = Callable[[], None]
Reply: TypeAlias = Callable[[str, Action], None]
"""Takes an answer, and what to do once it is queued."""


class BatchAnswers:
    """Collects answers for one array of at most MAX_ANSWER_CHARS.

    The space that an error needs is kept for every request that is not answered yet. An answer that
    does not fit into the rest gives way to that error.
    """

    def __init__(self, batch: Batch, reply: Reply, jsonrpc: Callable[[], bool]) -> None:
        """Take a batch, where its array goes, and whether answers are to have `jsonrpc` now."""
        self._jsonrpc = jsonrpc
        self._missing = 0
        self._free = MAX_ANSWER_CHARS - len("[]")
        for message in batch.messages:
            if isinstance(message, Request | Invalid):
                self._missing += 1
                self._free -= _reserved(message.id)
        self._answers: list[str] = []
        self._actions: list[Action] = []
        self._reply = reply

    @property
    def fits(self) -> bool:
        """Whether there is space for an error to every request."""
        return self._free >= 0

    @property
    def is_complete(self) -> bool:
        """Whether no answer is missing."""
        return len(self._answers) == self._missing

    def abandon(self) -> None:
        """Do what was to follow the answers that came, as the array will never be sent."""
        self._act()

    def add(self, request_id: RequestId | None, text: str, then: Action) -> None:
        """Take one answer, and what to do once the array is queued."""
        more = len(text) + len(",") - _reserved(request_id)
        if more > self._free:
            text = _too_large(request_id, len(text), jsonrpc=self._jsonrpc())
            more = 0
        self._free -= more
        self._answers.append(text)
        self._actions.append(then)
        if self.is_complete:
            self._reply(render_batch(self._answers), self._act)

    def _act(self) -> None:
        actions, self._actions = self._actions, []
        for action in actions:
            action()


def _reserved(request_id: RequestId | None) -> int:
    # The longest form: with `jsonrpc`, and with as many digits as a size may have.
    return len(_too_large(request_id, 10**9, jsonrpc=True)) + len(",")


def _too_large(request_id: RequestId | None, size: int, *, jsonrpc: bool) -> str:
    return render_error(request_id, answer_too_large(size).to_wire(), jsonrpc=jsonrpc)
