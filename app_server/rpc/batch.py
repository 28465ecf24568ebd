"""The answers of one batch: collected, and sent as one array when the last has come.

Source: JSON-RPC 2.0, section 6; docs/wire.md, "Bounds".
"""

from typing import Any

from app_server.rpc.context import RequestContext
from protocol.jsonrpc.envelope import Batch, Invalid, Request, RequestId, render_batch, render_error
from protocol.jsonrpc.errors import MAX_ANSWER_CHARS, answer_too_large


class BatchAnswers:
    """Collects answers for one array of at most MAX_ANSWER_CHARS.

    The space that an error needs is kept for every request that is not answered yet. An answer that
    does not fit into the rest gives way to that error.
    """

    def __init__(self, batch: Batch) -> None:
        self._missing = 0
        self._free = MAX_ANSWER_CHARS - len("[]")
        for message in batch.messages:
            if isinstance(message, Request | Invalid):
                self._missing += 1
                self._free -= _reserved(message.id)
        self._answers: list[str] = []
        self._contexts: list[RequestContext[Any]] = []
        """Of the requests whose answers came."""

    @property
    def fits(self) -> bool:
        """Whether there is space for an error to every request."""
        return self._free >= 0

    @property
    def is_complete(self) -> bool:
        """Whether no answer is missing."""
        return len(self._answers) == self._missing

    def add(
        self,
        request_id: RequestId | None,
        text: str,
        context: RequestContext[Any] | None,
        *,
        jsonrpc: bool,
    ) -> None:
        """Add one answer; `context` is None for what was refused unread."""
        more = len(text) + len(",") - _reserved(request_id)
        if more > self._free:
            text = _too_large(request_id, len(text), jsonrpc=jsonrpc)
            more = 0
        self._free -= more
        self._answers.append(text)
        if context is not None:
            self._contexts.append(context)

    def text(self) -> str:
        """Render the array."""
        return render_batch(self._answers)

    def answered(self) -> None:
        """Run what was waiting for the answers, once the array is queued or will never be sent."""
        contexts, self._contexts = self._contexts, []
        for context in contexts:
            context.answered()


def _reserved(request_id: RequestId | None) -> int:
    # The longest form: with `jsonrpc`, and with as many digits as a size may have.
    return len(_too_large(request_id, 10**9, jsonrpc=True)) + len(",")


def _too_large(request_id: RequestId | None, size: int, *, jsonrpc: bool) -> str:
    return render_error(request_id, answer_too_large(size).to_wire(), jsonrpc=jsonrpc)
