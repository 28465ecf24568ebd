"""The ledger of usage: what the records of threads add up to, by day, model, origin and folder.

A thread has sums, which its row in lists has too; whoever asks about many threads adds up rows.
Source: docs/usage.md, "Ledger". No I/O.
"""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, fields
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypeAlias

from pydantic_core import from_json, to_json

from protocol.log.rollout import UsageRecorded

MAX_SUMS = 256
"""Of one thread; beyond it the two oldest days of one model, origin and folder become one."""

MAX_TOKENS = 1 << 40
"""Of one request, whatever a model reports."""

NO_USAGE = "[]"
"""A ledger without sums, as rows have it."""


@dataclass(slots=True)
class Usage:
    """Tokens, requests and milliseconds."""

    requests: int = 0
    unreported_requests: int = 0
    """Of these, requests whose tokens the model has not reported."""
    input_tokens: int = 0
    cached_input_tokens: int = 0
    """Part of the input."""
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    """Part of the output."""
    model_ms: int = 0
    tool_ms: int = 0

    @property
    def tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    def add(self, other: "Usage") -> None:
        """Add another usage to this one."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_COUNTS = [count.name for count in fields(Usage)]


class UsageKey(NamedTuple):
    """Day, model, origin and folder of one sum of a thread."""

    day: str
    """`YYYY-MM-DD`, in UTC."""
    model: str
    provider: str
    origin: str
    folder: str


def day_of(at_ms: int) -> str:
    """Return the day of a time, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def usage_of(record: UsageRecorded) -> Usage:
    """Return the usage in one record."""
    asked, reported = record.request_id is not None, record.usage
    usage = Usage(
        requests=int(asked),
        unreported_requests=int(asked and reported is None),
        model_ms=record.model_ms,
        tool_ms=record.tool_ms,
    )
    if reported is not None:
        usage.input_tokens = _counted(reported.input_tokens)
        usage.cached_input_tokens = min(_counted(reported.cached_input_tokens), usage.input_tokens)
        usage.output_tokens = _counted(reported.output_tokens)
        usage.reasoning_output_tokens = _counted(reported.reasoning_output_tokens)
    return usage


def _counted(tokens: int) -> int:
    return min(max(tokens, 0), MAX_TOKENS)


@dataclass(slots=True)
class UsageLedger:
    """The usage of one thread."""

    sums: dict[UsageKey, Usage] = field(default_factory=dict)
    turns: int = 0
    """Turns that have asked a model."""
    last_turn_id: str | None = None
    """The last of these."""

    def apply(self, record: UsageRecorded) -> None:
        """Take one more record into account."""
        if record.request_id is not None and record.turn_id != self.last_turn_id:
            self.last_turn_id = record.turn_id
            self.turns += 1
        self._add(
            UsageKey(
                day_of(record.at_ms),
                record.model,
                record.model_provider,
                record.origin,
                record.cwd,
            ),
            usage_of(record),
        )

    def _add(self, key: UsageKey, usage: Usage) -> None:
        known = self.sums.get(key)
        if known is not None:
            known.add(usage)
            return
        self.sums[key] = usage
        if len(self.sums) > MAX_SUMS:
            self._join_oldest()

    def _join_oldest(self) -> None:
        later: dict[tuple[str, ...], UsageKey] = {}
        oldest: tuple[UsageKey, UsageKey] | None = None
        for key in sorted(self.sums, reverse=True):
            if (after := later.get(key[1:])) is not None:
                oldest = key, after
            later[key[1:]] = key
        if oldest is not None:
            before, after = oldest
            self.sums[after].add(self.sums.pop(before))

    def total(self) -> Usage:
        """Return the sum of all."""
        total = Usage()
        for usage in self.sums.values():
            total.add(usage)
        return total

    def render(self) -> str:
        """Write the sums as JSON, as rows have them."""
        if not self.sums:
            return NO_USAGE
        return to_json([[*key, *astuple(usage)] for key, usage in self.sums.items()]).decode()


UsageGroup: TypeAlias = Literal["thread", "turn", "model", "day", "origin", "folder"]

ModelName: TypeAlias = tuple[str, str]
"""The provider of a model, and its name there."""

UsageSums: TypeAlias = dict[str, dict[ModelName, Usage]]
"""Usage by group, and of each group by model, as prices are those of models."""


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Which usage, and what is summed up."""

    group_by: UsageGroup
    thread_id: str | None = None
    """None: of all threads."""
    since: str | None = None
    """The first day."""
    until: str | None = None
    """The last day."""

    def has(self, day: str) -> bool:
        """Whether a day is asked for."""
        return (self.since or day) <= day <= (self.until or day)


def sum_of_rows(rows: Iterable[tuple[str, str]], query: UsageQuery) -> UsageSums:
    """Sum up ids of threads and what `UsageLedger.render` has written of each."""
    sums: UsageSums = {}
    for thread_id, text in rows:
        for *words, requests, unreported, given, cached, out, reasoning, model, tool in from_json(
            text
        ):
            key = UsageKey(*words)
            if query.has(key.day):
                group = _group(query.group_by, thread_id, key)
                usage = Usage(requests, unreported, given, cached, out, reasoning, model, tool)
                _add(sums, group, (key.provider, key.model), usage)
    return sums


def sum_of_turns(records: Iterable[UsageRecorded], query: UsageQuery) -> UsageSums:
    """Sum up the records of one thread by its turns."""
    sums: UsageSums = {}
    for record in records:
        if query.has(day_of(record.at_ms)):
            name = record.model_provider, record.model
            _add(sums, record.turn_id, name, usage_of(record))
    return sums


def _group(group_by: UsageGroup, thread_id: str, key: UsageKey) -> str:
    words: Mapping[UsageGroup, str] = {
        "thread": thread_id,
        "model": key.model,
        "day": key.day,
        "origin": key.origin,
        "folder": key.folder,
    }
    return words[group_by]


def _add(sums: UsageSums, group: str, name: ModelName, usage: Usage) -> None:
    of_group = sums.setdefault(group, {})
    if (known := of_group.get(name)) is None:
        of_group[name] = usage
    else:
        known.add(usage)
