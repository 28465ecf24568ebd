"""One event on its way to any number of clients: rendered once a form, not once a client."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from operator import attrgetter
from typing import Any, Protocol, TypeAlias, cast

from pydantic_core import to_json

from protocol.jsonrpc.envelope import render_notification
from protocol.model import WireModel
from protocol.turns.items import (
    AgentMessageDeltaNotification,
    PlanDeltaNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningTextDeltaNotification,
)

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
    """Notification for any client."""

    @property
    def method(self) -> str:
        """Of the notification."""

    def text(self, form: Form) -> str:
        """Render the whole message."""

    def delta(self, form: Form) -> Delta | None:
        """Give a delta in the form that can be joined with others; None for other events."""


class Outgoing:
    """An event, when it happened, and its place in the stream of its thread."""

    __slots__ = (
        "_deltas", "_key", "_piece", "_texts", "at_ms", "event", "is_delta", "method", "seq"
    )  # fmt: skip

    def __init__(self, method: str, event: WireModel, at_ms: int, seq: int | None = None) -> None:
        """`seq` None is for what stands in no stream."""
        self.method = method
        self.event = event
        self.at_ms = at_ms
        self.seq = seq
        self.is_delta = type(event) in DELTAS
        """Whether this is a piece of a text."""
        self._key: Hashable = None
        self._piece: str | None = None
        """Text of the delta, where it is another than the event's."""
        self._texts: dict[Form, str] = {}
        self._deltas: dict[Form, Delta] = {}

    @property
    def key(self) -> Hashable:
        """Whose piece a delta is."""
        if self._key is None:
            event_type = type(self.event)
            self._key = self.method, event_type, _values_of(event_type)(self.event)
        return self._key

    @property
    def piece(self) -> str:
        """The text of a delta."""
        return cast(str, self.event.__dict__["delta"]) if self._piece is None else self._piece

    def followed_by(self, piece: str, seq: int | None) -> "Outgoing":
        """Return the next piece of a delta's text, which comes at the same time."""
        following = Outgoing(self.method, self.event, self.at_ms, seq)
        following._key = self.key
        following._piece = piece
        return following

    def text(self, form: Form) -> str:
        """Render the whole message."""
        text = self._texts.get(form)
        if text is None:
            text = self._texts[form] = self._rendered(form)
        return text

    def _rendered(self, form: Form) -> str:
        if self.is_delta:
            return _render_delta(self.key, self.at_ms, self.seq, form, self.piece)
        render = _render_output if _OUTPUT in self.event.__dict__ else _render
        return render(self.method, self.event, self.at_ms, self.seq, form)

    def delta(self, form: Form) -> Delta | None:
        """Give a delta in the form that can be joined with others; None for other events."""
        delta = self._deltas.get(form)
        if delta is None and self.is_delta:
            # Not of this object: it would be freed by the garbage collector alone.
            render = partial(_render_delta, self.key, self.at_ms, self.seq, form)
            delta = self._deltas[form] = Delta(self.key, self.piece, render)
        return delta


_EMPTY = '"delta":""'
"""No text in JSON has this in it, as its quotes would be escaped."""


@cache
def _values_of(event_type: type[WireModel]) -> Callable[[WireModel], tuple[Any, ...]]:
    """Return what reads the members of a delta that say whose piece it is."""
    return attrgetter(*_members_of(event_type))


@cache
def _members_of(event_type: type[WireModel]) -> tuple[str, ...]:
    return tuple(name for name in event_type.model_fields if name != "delta")


def _render_delta(key: Hashable, at_ms: int, seq: int | None, form: Form, text: str) -> str:
    """Write a delta as `_render` would, in a third of the time: there is one for each token."""
    experimental, jsonrpc, numbered = form
    head, tail = _around(key, experimental, jsonrpc)
    number = f',"seq":{seq}' if numbered and seq is not None else ""
    return f'{head}"delta":{to_json(text).decode()}{tail}{at_ms}{number}}}'


@lru_cache(maxsize=256)
def _around(key: Any, experimental: bool, jsonrpc: bool) -> tuple[str, str]:
    """Render what stands before and behind the text in all deltas of one text."""
    method, event_type, values = key
    members = dict(zip(_members_of(event_type), values, strict=True))
    event = event_type.model_construct(**members, delta="")
    text = _render(method, event, 0, None, (experimental, jsonrpc, False))
    head, _, tail = text.partition(_EMPTY)
    return head, tail.removesuffix("0}")


_OUTPUT = "delta_base64"
"""The member that has a piece of a program's output, encoded by this server."""

_EMPTY_OUTPUT = '"deltaBase64":""'


def _render_output(method: str, event: WireModel, at_ms: int, seq: int | None, form: Form) -> str:
    """Write an event around its base64, in which nothing is to be escaped.

    Looking for it, as `_render` would, takes half as long as encoding does.
    """
    bare = event.model_copy(update={_OUTPUT: ""})
    head, _, tail = _render(method, bare, at_ms, seq, form).partition(_EMPTY_OUTPUT)
    return f'{head}"deltaBase64":"{event.__dict__[_OUTPUT]}"{tail}'


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
