"""usage/read: what models and tools have used, by thread, turn, model, day, origin or folder."""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Int64, UInt32, WireModel, absent_if_none
from protocol.thread_ids import ThreadIdParam
from protocol.threads.thread import MoneyAmount

UsageGroupBy = TypeAliasType(
    "UsageGroupBy", Literal["thread", "turn", "model", "day", "origin", "folder"]
)
"""What usage is summed up by; `turn` needs a thread."""


class UsageReadParams(WireModel):
    """Sum up the usage of all threads, or of one."""

    thread_id: ThreadIdParam | None = None
    """Null: of all threads that are stored."""
    since: str | None = None
    """The first day, `YYYY-MM-DD` in UTC."""
    until: str | None = None
    """The last day; it counts too."""
    group_by: UsageGroupBy = "thread"
    cursor: str | None = None
    limit: UInt32 | None = None
    """Groups a page; null lets the server choose."""


class UsageFigures(WireModel):
    """Tokens, requests, time and cost."""

    input_tokens: Int64
    cached_input_tokens: Int64
    """Part of `inputTokens`."""
    output_tokens: Int64
    reasoning_output_tokens: Int64
    """Part of `outputTokens`."""
    requests: Int64
    """Requests that were sent to models, those that failed too."""
    unreported_requests: Int64
    """Of these, requests whose tokens the model has not reported."""
    model_ms: Int64
    tool_ms: Int64
    """Without the time in which the user was asked something."""
    cost: list[MoneyAmount]
    """A sum for each currency, as far as prices are known."""
    unpriced_tokens: Int64
    """Tokens of models without a price, which `cost` does not have."""


class UsageRow(WireModel):
    """The usage of one group."""

    group: str
    """A thread's or turn's id, a model, a day, an origin or a folder."""
    usage: UsageFigures


class UsageReadResponse(WireModel):
    """One page of groups, in their order."""

    data: list[UsageRow]
    total: UsageFigures
    """Of all groups, on this page or not."""
    prices_source: str | None = absent_if_none()
    """The file that has the prices; absent where there are none."""
    next_cursor: str | None = None
    """Null at the end."""
