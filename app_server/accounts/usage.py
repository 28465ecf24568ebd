"""Questions to the hosted backend about an account's use, asked as the account.

Source: docs/accounts.md, "Usage".
"""

import logging
from typing import Annotated, TypeVar

import anyio
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, Strict, ValidationError

from app_server.accounts.account_errors import AccountError, BackendRefused, RefreshFailed
from app_server.accounts.accounts import Accounts
from app_server.accounts.credentials import Credentials
from app_server.accounts.web import AccountWeb, WebAnswer, open_hosted_web
from protocol.model import JsonObject

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
    """Spending limit of one user; amounts are texts."""

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
    """Count of credits that can reset a limit."""

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
    """`GET profiles/me`; the profile itself is not read."""

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
    """Usage of one thread."""

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
    """Parse an answer of the backend.

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


logger = logging.getLogger(__name__)

UNAUTHORIZED = 401
UNKNOWN_THREAD = (403, 404)
"""Statuses for a thread whose use the account may not, or cannot, read."""

RESERVE_HEADER = "x-openai-codex-luna-reserve"


def usage_url(base_url: str) -> str:
    """Say where the questions go; ChatGPT's own backend has them in another place."""
    return f"{base_url}/wham" if "/backend-api" in base_url else f"{base_url}/api/codex"


class AccountUsage:
    """The account's use, asked for anew each time."""

    def __init__(self, accounts: Accounts, base_url: str) -> None:
        """Ask below `base_url`, which has no slash at its end."""
        self._accounts = accounts
        self._url = usage_url(base_url)

    async def limits(
        self, who: Credentials, *, with_credits: bool, takes_reserve: bool
    ) -> tuple[UsageAnswer, ResetCreditsAnswer | None]:
        """Ask where the account stands with its limits, and for the credits that reset them.

        Credits that cannot be had are None: the limits count without them.

        Raises:
            AccountError: there is no answer, or not one that makes sense.
        """
        headers = {RESERVE_HEADER: "1"} if takes_reserve else {}
        async with open_hosted_web() as web:
            found: list[ResetCreditsAnswer] = []

            async def ask_credits() -> None:
                try:
                    answer = await self._ask(web, who, "rate-limit-reset-credits")
                    found.append(read_answer(answer, ResetCreditsAnswer))
                except AccountError as exc:
                    logger.info("the credits that reset limits were not read: %s", exc)

            async with anyio.create_task_group() as tasks:
                if with_credits:
                    tasks.start_soon(ask_credits)
                usage: WebAnswer | AccountError
                try:
                    usage = await self._ask(web, who, "usage", more=headers)
                except AccountError as exc:
                    # Raised here, it would come out in a group.
                    usage = exc
            if isinstance(usage, AccountError):
                raise usage
        return read_answer(usage, UsageAnswer), found[0] if found else None

    async def profile(self, who: Credentials) -> ProfileAnswer:
        """Ask how many tokens the account has used.

        Raises:
            AccountError: see `limits`.
        """
        async with open_hosted_web() as web:
            return read_answer(await self._ask(web, who, "profiles/me"), ProfileAnswer)

    async def thread(self, who: Credentials, thread_id: str) -> ThreadUse | None:
        """Return the usage of a thread; None where the account cannot know.

        Raises:
            AccountError: see `limits`.
        """
        async with open_hosted_web() as web:
            body: JsonObject = {"thread_ids": [thread_id]}
            answer = await self._ask(web, who, "usage/thread_usage/query", body)
        if answer.status in UNKNOWN_THREAD:
            return None
        threads = read_answer(answer, ThreadsAnswer).threads
        if [thread.thread_id for thread in threads] != [thread_id]:
            text = "the hosted backend's answer is about other threads"
            raise BackendRefused(text, answer.status)
        return threads[0]

    async def _ask(
        self,
        web: AccountWeb,
        who: Credentials,
        path: str,
        body: JsonObject | None = None,
        more: dict[str, str] | None = None,
    ) -> WebAnswer:
        """Ask once, and once more with another token if the one was refused."""
        url = f"{self._url}/{path}"
        answer = await web.ask(url, body, {**who.headers(), **(more or {})})
        if answer.status != UNAUTHORIZED:
            return answer
        try:
            renewed = (await self._accounts.replace(who)).credentials
        except RefreshFailed:
            raise
        except AccountError as exc:
            logger.info("a token that the hosted backend refused was not renewed: %s", exc)
            return answer
        if renewed is None or not renewed.is_same_account(who):
            return answer
        return await web.ask(url, body, {**renewed.headers(), **(more or {})})
