"""One event on its way to any number of clients: rendered once a form, not once a client."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias, cast

from protocol.envelope import render_notification
from protocol.items import (
    AgentMessageDeltaNotification,
    PlanDeltaNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningTextDeltaNotification,
)
from protocol.model import WireModel

Form: TypeAlias = tuple[bool, bool, bool]
"""With experimental members; with `jsonrpc`; with the event's number."""

DELTAS = (
    AgentMessageDeltaNotification,
    PlanDeltaNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningTextDeltaNotification,
)


@dataclass(slots=True)
class Delta:
    """A piece of text that may be sent together with the pieces before it; it never changes.

    It is not frozen, as making one would take three times as long, and there is one for each.
    """

    key: Hashable
    """Equal for pieces of one text."""
    piece: str
    render: Callable[[str], str]
    """From the text of several pieces, of which this is the last, to the message."""


class Message(Protocol):
    """What can be sent to any client."""

    @property
    def method(self) -> str:
        """Of the notification."""

    def text(self, form: Form) -> str:
        """Render the whole message."""

    def delta(self, form: Form) -> Delta | None:
        """Give a delta in the form that can be joined with others; None for other events."""


class Outgoing:
    """An event, when it happened, and its place in the stream of its thread."""

    __slots__ = ("_deltas", "_key", "_texts", "at_ms", "event", "is_delta", "method", "seq")

    def __init__(self, method: str, event: WireModel, at_ms: int, seq: int | None = None) -> None:
        """`seq` None is for what stands in no stream."""
        self.method = method
        self.event = event
        self.at_ms = at_ms
        self.seq = seq
        self.is_delta = isinstance(event, DELTAS)
        """Whether this is a piece of a text."""
        self._key: Hashable = None
        self._texts: dict[Form, str] = {}
        self._deltas: dict[Form, Delta] = {}

    @property
    def key(self) -> Hashable:
        """Whose piece a delta is."""
        if self._key is None:
            values = dict(self.event.__dict__)
            del values["delta"]
            self._key = (self.method, *values.values())
        return self._key

    @property
    def piece(self) -> str:
        """The text of a delta."""
        return cast(str, self.event.__dict__["delta"])

    def text(self, form: Form) -> str:
        """Render the whole message."""
        text = self._texts.get(form)
        if text is None:
            text = self._texts[form] = _render(self.method, self.event, self.at_ms, self.seq, form)
        return text

    def delta(self, form: Form) -> Delta | None:
        """Give a delta in the form that can be joined with others; None for other events."""
        delta = self._deltas.get(form)
        if delta is None and self.is_delta:
            # Not of this object: it would be freed by the garbage collector alone.
            render = partial(_render_joined, self.method, self.event, self.at_ms, self.seq, form)
            delta = self._deltas[form] = Delta(self.key, self.piece, render)
        return delta


def _render_joined(
    method: str, event: WireModel, at_ms: int, seq: int | None, form: Form, joined: str
) -> str:
    return _render(method, event.model_copy(update={"delta": joined}), at_ms, seq, form)


def _render(method: str, event: WireModel, at_ms: int, seq: int | None, form: Form) -> str:
    experimental, jsonrpc, numbered = form
    return render_notification(
        method,
        event,
        at_ms,
        jsonrpc=jsonrpc,
        experimental=experimental,
        seq=seq if numbered else None,
    )
