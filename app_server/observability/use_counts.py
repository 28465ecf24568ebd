"""Counts of use, fed with the events of threads.

Turns, items, tokens and questions are counted on this machine alone; nothing is sent. Knows: types
of events. Does not know: who emits them, clients, what anything was about.
Source: docs/operations.md, "Counts of use".
"""

from collections import Counter
from collections.abc import Mapping

from protocol.model import UnknownVariant, WireModel
from protocol.turns.auto_review import ItemGuardianApprovalReviewCompletedNotification
from protocol.turns.items import ItemCompletedNotification, McpToolCallThreadItem
from protocol.turns.notifications import (
    ThreadTokenUsageUpdatedNotification,
    TurnCompletedNotification,
)

MAX_COUNTERS = 512
"""Names that are counted; what comes under further ones is counted as `OTHER`."""

MAX_NAME_CHARS = 128

OTHER = "other"

_ENDED = "completed"
"""Status of items that have none of their own."""


class UseCounts:
    """The counters of one server since its start."""

    def __init__(self) -> None:
        self._counters: Counter[str] = Counter()

    def read(self) -> Mapping[str, int]:
        """Return the counters by name."""
        return dict(self._counters)

    def observe(self, event: WireModel) -> None:
        """Count an event of a thread without waiting; other kinds are ignored."""
        match event:
            case ItemCompletedNotification(item=item) if not isinstance(item, UnknownVariant):
                status = getattr(item, "status", _ENDED)
                self._add(f"items.{item.type}.{status}")
                if isinstance(item, McpToolCallThreadItem):
                    self._add(f"mcpServers.{item.server}.{status}")
            case TurnCompletedNotification(turn=turn):
                self._add(f"turns.{turn.status}")
            case ThreadTokenUsageUpdatedNotification(token_usage=usage):
                self._add("modelCalls")
                self._add("tokens.input", usage.last.input_tokens)
                self._add("tokens.cachedInput", usage.last.cached_input_tokens)
                self._add("tokens.output", usage.last.output_tokens)
                self._add("tokens.reasoningOutput", usage.last.reasoning_output_tokens)
            case ItemGuardianApprovalReviewCompletedNotification(review=review):
                self._add(f"reviews.{review.status}")

    def asking(self, *_: object) -> None:
        """Ignore a question that is open."""

    def asked(self, thread_id: str, request_id: str | int, method: str, *, answered: bool) -> None:
        """Count a question to clients that is settled; one that was withdrawn has no answer."""
        self._add(f"questions.{method}.{'answered' if answered else 'withdrawn'}")

    def _add(self, name: str, count: int = 1) -> None:
        name = name[:MAX_NAME_CHARS]
        if name not in self._counters and len(self._counters) >= MAX_COUNTERS:
            name = OTHER
        self._counters[name] += count
