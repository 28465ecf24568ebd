"""Messages on their way to clients: one event rendered once a form, and the queue of one client.

A client that falls behind first gets the deltas of one item merged. One that falls behind further
is given up: nothing more is taken, and its connection closes with 1013.
Source: docs/wire.md, "Bounds".
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from operator import attrgetter
from typing import Any, Protocol, TypeAlias, cast

import anyio
from pydantic_core import to_json

from app_server.rpc.message_stream import OutboxLimits
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

    @property
    def is_delta(self) -> bool:
        """Whether this is a piece of a text."""

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
            if self.is_delta:
                text = _render_delta(self.key, self.at_ms, self.seq, form, self.piece)
            else:
                experimental, jsonrpc, numbered = form
                has_output = _OUTPUT in self.event.__dict__
                text = (_render_output if has_output else render_notification)(
                    self.method,
                    self.event,
                    self.at_ms,
                    jsonrpc=jsonrpc,
                    experimental=experimental,
                    seq=self.seq if numbered else None,
                )
            self._texts[form] = text
        return text

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
    """Write a delta as `render_notification` would, in a third of the time."""
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
    text = render_notification(method, event, 0, jsonrpc=jsonrpc, experimental=experimental)
    head, _, tail = text.partition(_EMPTY)
    return head, tail.removesuffix("0}")


_OUTPUT = "delta_base64"
"""The member that has a piece of a program's output, encoded by this server."""

_EMPTY_OUTPUT = '"deltaBase64":""'


def _render_output(
    method: str,
    event: WireModel,
    at_ms: int,
    *,
    jsonrpc: bool,
    experimental: bool,
    seq: int | None,
) -> str:
    """Write an event around its base64, in which nothing is to be escaped.

    Looking for it, as `render_notification` would, takes half as long as encoding does.
    """
    bare = event.model_copy(update={_OUTPUT: ""})
    text = render_notification(
        method, bare, at_ms, jsonrpc=jsonrpc, experimental=experimental, seq=seq
    )
    head, _, tail = text.partition(_EMPTY_OUTPUT)
    return f'{head}"deltaBase64":"{event.__dict__[_OUTPUT]}"{tail}'


@dataclass(slots=True)
class _Joined:
    """Pieces of one text that wait together."""

    pieces: list[str]
    newest: Delta

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def render(self) -> str:
        return self.newest.render("".join(self.pieces))


@dataclass(slots=True)
class _Large:
    """An answer that has what the client has asked for by its size."""

    text: str

    def __len__(self) -> int:
        return len(self.text)


class Outbox:
    """First in, first out; adding never waits. One message is on its way at a time.

    Whoever holds the right to send sends: the task that takes, or a task that found nothing waiting
    and may send its own message without a detour (`claim`). Both `release` it afterwards.
    `overflowed` turns true once, when the client let too much pile up; from then on nothing is
    added.
    """

    def __init__(self, limits: OutboxLimits) -> None:
        self._limits = limits
        self._waiting: deque[str | _Joined | _Large] = deque()
        self.chars = 0
        """Of all that waits, without large answers."""
        self._large_chars = 0
        self._closed = False
        self._claimed = False
        self.overflowed = False
        # asyncio's events can be used again; a new one of anyio for each wait takes 1.5 µs.
        self._added = asyncio.Event()
        self._taken = asyncio.Event()

    @property
    def messages(self) -> int:
        """Number of messages that wait."""
        return len(self._waiting)

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is taken."""
        return self._closed

    @property
    def is_full(self) -> bool:
        """Whether deltas are merged from now on."""
        return len(self._waiting) >= self._limits.merge_above

    def add(self, *texts: str, delta: Delta | None = None) -> None:
        """Queue messages; `delta` is the mergeable form of the only one."""
        if self.overflowed or self._closed:
            return
        if delta is not None and self.is_full:
            self._merge(delta)
            self.chars += len(delta.piece)
        else:
            self._waiting.extend(texts)
            self.chars += sum(map(len, texts))
        if self.chars > self._limits.max_chars or len(self._waiting) > self._limits.max_messages:
            self.overflowed = True
        self._added.set()

    async def add_large(self, text: str) -> None:
        """Queue an answer whose size the client has asked for; waits for room among its kind."""
        while self._large_chars and self._large_chars + len(text) > self._limits.max_large_chars:
            await self._next_taken()
        if self.overflowed or self._closed:
            return
        self._waiting.append(_Large(text))
        self._large_chars += len(text)
        self._added.set()

    def claim(self) -> bool:
        """Take the right to send if nothing waits and nothing is on its way."""
        if self._claimed or self._waiting or self._closed or self.overflowed:
            return False
        self._claimed = True
        return True

    def release(self) -> None:
        """Release the right to send; wake `take` if messages wait or the outbox is closed."""
        self._claimed = False
        if self._waiting or self._closed:
            self._added.set()

    def _merge(self, delta: Delta) -> None:
        last = self._waiting[-1]
        if isinstance(last, _Joined) and last.newest.key == delta.key:
            last.pieces.append(delta.piece)
            last.newest = delta
        else:
            self._waiting.append(_Joined([delta.piece], delta))

    def give_up(self) -> None:
        """Take no more, as the client has missed what can no longer be sent."""
        self.overflowed = True
        self._added.set()

    def close(self) -> None:
        """Take no more; what waits is still given out."""
        self._closed = True
        self._added.set()

    def abandon(self) -> None:
        """Close the outbox and drop the messages that wait."""
        self._closed = True
        self._waiting.clear()
        self.chars = self._large_chars = 0
        self._added.set()
        self._taken.set()

    async def take(self) -> str:
        """Wait for the oldest message and the right to send it. Cancelling loses nothing.

        Raises:
            anyio.EndOfStream: closed, and nothing waits.
        """
        while self._claimed or not self._waiting:
            if self._closed and not self._claimed:
                raise anyio.EndOfStream
            self._added.clear()
            await self._added.wait()
        self._claimed = True
        self._taken.set()
        return self._pop()

    def take_waiting(self, max_chars: int) -> list[str]:
        """Take more messages that wait already; for who has taken one and has not released it.

        They have at most `max_chars` characters together, so that little is on its way at a time.
        """
        texts: list[str] = []
        left = max_chars
        while self._waiting and (left := left - len(self._waiting[0])) >= 0:
            texts.append(self._pop())
        return texts

    def _pop(self) -> str:
        entry = self._waiting.popleft()
        if type(entry) is str:
            self.chars -= len(entry)
            return entry
        if isinstance(entry, _Large):
            self._large_chars -= len(entry)
            return entry.text
        self.chars -= len(entry)
        return entry if isinstance(entry, str) else entry.render()

    @property
    def has_no_room(self) -> bool:
        """Whether more than `merge_above` messages wait."""
        return len(self._waiting) > self._limits.merge_above

    async def wait_for_room(self) -> None:
        """Wait until there is room, or it does not matter any more."""
        while self.has_no_room:
            await self._next_taken()

    async def _next_taken(self) -> None:
        self._taken.clear()
        await self._taken.wait()
