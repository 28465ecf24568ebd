"""Signals as a router sends them: read with tolerance, and within bounds. No I/O.

Source: docs/receiver.md, "Envelopes".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pydantic_core import from_json, to_json

from protocol.model import Json, JsonObject
from protocol.signals.delivery import MAX_PAYLOAD_BYTES, MAX_SUMMARY_BYTES

SOURCE = "Prism"
"""Source of all signals of a router."""

MAX_WORD_CHARS = 200
"""Of an id, a type or a name."""

Mode: TypeAlias = Literal["passive", "wake"]

MODES: Mapping[Json, Mode] = {"sync": "wake", "async": "passive"}
"""Meanings of `delivery_class`."""

_KNOWN = frozenset(
    {
        "signal_id",
        "signal_type",
        "from",
        "to",
        "payload",
        "created_at",
        "ttl_s",
        "delivery_class",
    }
)

_TELLING = ("summary", "message", "text", "question", "title")
"""Members of a payload that say what it is about, the best first."""


class BadEnvelope(Exception):
    """Invalid envelope; the text names the member without its value."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One signal. Its id names it for ever."""

    id: str
    type: str
    sender: str
    to: str | None = None
    payload: Json = field(default=None, repr=False)
    """At most 256 KiB as JSON; unknown members included."""
    created_at: int | None = None
    """Unix seconds."""
    ttl_s: int | None = None
    mode: Mode = "passive"

    @property
    def expires_at(self) -> int | None:
        """Until when it may be shown, Unix seconds; None means always."""
        if self.created_at is None or self.ttl_s is None:
            return None
        return self.created_at + self.ttl_s

    @property
    def summary(self) -> str:
        """Return a summary of at most 4 KiB of UTF-8."""
        return _cut(_summary_of(self.payload), MAX_SUMMARY_BYTES)

    def to_wire(self) -> JsonObject:
        """Render as a router sends it."""
        members: JsonObject = {
            "signal_id": self.id,
            "signal_type": self.type,
            "from": self.sender,
            "to": self.to,
            "payload": self.payload,
            "created_at": self.created_at,
            "ttl_s": self.ttl_s,
            "delivery_class": "sync" if self.mode == "wake" else "async",
        }
        return {name: value for name, value in members.items() if value is not None}


def parse_envelope(value: Json, modes: Mapping[str, Mode] | None = None) -> Envelope:
    """Read a signal. `modes` overrules its `delivery_class` for some types.

    Raises:
        BadEnvelope: a member is missing, of the wrong kind, or too large.
    """
    if not isinstance(value, dict):
        raise BadEnvelope("it is no object")
    signal_type = _word(value, "signal_type")
    mode = (modes or {}).get(signal_type) or MODES.get(_text(value, "delivery_class"), "passive")
    payload = _payload(value)
    if len(to_json(payload)) > MAX_PAYLOAD_BYTES:
        raise BadEnvelope(f"`payload` is larger than {MAX_PAYLOAD_BYTES} bytes")
    return Envelope(
        id=_word(value, "signal_id"),
        type=signal_type,
        sender=_word(value, "from"),
        to=_text(value, "to"),
        payload=payload,
        created_at=_seconds(value, "created_at"),
        ttl_s=_seconds(value, "ttl_s"),
        mode=mode,
    )


def parse_body(body: bytes) -> Envelope:
    """Read a signal that was rendered by `render_body`."""
    return parse_envelope(from_json(body))


def render_body(envelope: Envelope) -> bytes:
    """Write a signal for the ledger; equal signals give equal bytes."""
    return to_json(envelope.to_wire())


def _payload(value: JsonObject) -> Json:
    payload: Json = value.get("payload")
    unknown = {name: member for name, member in value.items() if name not in _KNOWN}
    if not unknown:
        return payload
    if isinstance(payload, dict):
        return {**unknown, **payload}
    return {**unknown, "payload": payload}


def _word(value: JsonObject, name: str) -> str:
    text = _text(value, name)
    if not text or len(text) > MAX_WORD_CHARS or not text.isprintable():
        raise BadEnvelope(f"`{name}` must be 1 to {MAX_WORD_CHARS} printable characters")
    return text


def _text(value: JsonObject, name: str) -> str | None:
    text = value.get(name)
    if text is not None and not isinstance(text, str):
        raise BadEnvelope(f"`{name}` must be a string")
    return text


def _seconds(value: JsonObject, name: str) -> int | None:
    number = value.get(name)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 2**53:
        raise BadEnvelope(f"`{name}` must be a number of seconds")
    return int(number)


def _summary_of(payload: Json) -> str:
    if isinstance(payload, str):
        return payload
    if isinstance(payload, dict):
        for name in _TELLING:
            text = payload.get(name)
            if isinstance(text, str) and text.strip():
                return text
    return "" if payload is None else to_json(payload).decode()


def _cut(text: str, limit_bytes: int) -> str:
    encoded = text.encode(errors="replace")
    if len(encoded) <= limit_bytes:
        return encoded.decode()
    mark = "…"
    return encoded[: limit_bytes - len(mark.encode())].decode(errors="ignore") + mark
