"""What the hosted backend says of an account's use, as it says it. Members it adds are left out.

Source: docs/accounts.md, "Usage"; the answers were compared with what Codex 0.169.0 takes.
"""

from typing import Annotated, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, Strict, ValidationError

from app_server.accounts.errors import BackendRefused
from app_server.accounts.web import WebAnswer

MAX_LIMITS = 64
"""Further limits of one answer."""
MAX_CREDITS = 256
MAX_DAYS = 4096
MAX_GROUPS = 1024

Number = Annotated[int, Strict(), Field(ge=-(1 << 63), lt=1 << 63)]
Percent = Annotated[int, Strict(), Field(ge=-(1 << 31), lt=1 << 31)]
Moment = Annotated[AwareDatetime, Strict()]
Text = Annotated[str, Strict(), Field(max_length=4096)]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Window(_Answer):
    """Use of a limit within a period."""

    used_percent: Percent
    limit_window_seconds: Number | None = None
    reset_at: Number | None = None
    """Unix seconds."""


class Limit(_Answer):
    """The periods of one limit."""

    primary_window: Window | None = None
    secondary_window: Window | None = None


class FurtherLimit(_Answer):
    """A limit beside the one that all accounts have."""

    limit_name: Text | None = None
    metered_feature: Text
    """Its id."""
    normal_model_slug: Text | None = None
    rate_limit: Limit | None = None


class Credits(_Answer):
    """Credits of the account."""

    has_credits: bool
    unlimited: bool
    balance: Text | None = None


class SpendingLimit(_Answer):
    """What one user may spend; amounts are texts."""

    limit: Text
    used: Text
    remaining_percent: Percent
    reset_at: Number
    """Unix seconds."""


class SpendControl(_Answer):
    """Whether spending is stopped."""

    reached: bool | None = None
    individual_limit: SpendingLimit | None = None


class Reached(_Answer):
    """Which kind of limit is reached."""

    type: Text


class CreditCount(_Answer):
    """How many credits could reset a limit."""

    available_count: Number


class UsageAnswer(_Answer):
    """`GET usage`."""

    account_id: Text | None = None
    plan_type: Text
    rate_limit: Limit | None = None
    additional_rate_limits: list[FurtherLimit] | None = Field(default=None, max_length=MAX_LIMITS)
    credits: Credits | None = None
    spend_control: SpendControl | None = None
    rate_limit_reached_type: Reached | None = None
    rate_limit_reset_credits: CreditCount | None = None


class ResetCredit(_Answer):
    """One credit that resets a limit."""

    id: Text
    reset_type: Text
    status: Text
    granted_at: Moment
    expires_at: Moment | None = None
    title: Text | None = None
    description: Text | None = None


class ResetCreditsAnswer(CreditCount):
    """`GET rate-limit-reset-credits`."""

    credits: list[ResetCredit] = Field(max_length=MAX_CREDITS)


class Day(_Answer):
    """Tokens of one day."""

    start_date: Text
    tokens: Number


class Stats(_Answer):
    """Token use of the account."""

    lifetime_tokens: Number | None = None
    peak_daily_tokens: Number | None = None
    longest_running_turn_sec: Number | None = None
    current_streak_days: Number | None = None
    longest_streak_days: Number | None = None
    daily_usage_buckets: list[Day] | None = Field(default=None, max_length=MAX_DAYS)


class ProfileAnswer(_Answer):
    """`GET profiles/me`; of the profile itself nothing is read."""

    stats: Stats


class Group(_Answer):
    """Share of a thread's use."""

    model: Text | None = None
    reasoning_effort: Text | None = None
    speed: Text | None = None
    estimated_usage_credits_micros: Number
    net_new_input_tokens: Number | None = None
    cached_input_tokens: Number | None = None
    input_tokens: Number | None = None
    output_tokens: Number | None = None
    total_tokens: Number | None = None


class ThreadUse(_Answer):
    """What a thread has used."""

    thread_id: Text
    estimated_usage_credits_micros: Number
    estimated_usage_usd_micros: Number | None = None
    native_usage_usd_micros: Number | None = None
    groups: list[Group] = Field(default=[], max_length=MAX_GROUPS)


class ThreadsAnswer(_Answer):
    """`POST usage/thread_usage/query`."""

    threads: list[ThreadUse] = Field(max_length=100)


T = TypeVar("T", bound=_Answer)


def read_answer(answer: WebAnswer, kind: type[T]) -> T:
    """Read what was answered.

    Raises:
        BackendRefused: it is a refusal, or not of this kind; the text names the member.
    """
    if not answer.ok:
        text = f"the hosted backend answered {answer.shown_status}"
        raise BackendRefused(text, answer.status)
    try:
        return kind.model_validate_json(answer.body)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        where = f"`{place}`: " if place else ""
        text = f"the hosted backend's answer makes no sense: {where}{first['msg']}"
        raise BackendRefused(text, answer.status) from None
