"""account/rateLimits/read and account/usage/read: what the hosted backend says of the account.

Source: docs/accounts.md, "Usage".
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from pydantic import BaseModel

from app_server.accounts.claims import plan_name
from app_server.accounts.credentials import Credentials
from app_server.accounts.errors import AccountError
from app_server.accounts.settings import chatgpt_base_url
from app_server.accounts.usage import AccountUsage
from app_server.accounts.usage_answers import (
    FurtherLimit,
    Limit,
    ResetCreditsAnswer,
    UsageAnswer,
    Window,
)
from app_server.handlers.errors import config_failures
from app_server.handlers.services import Services
from app_server.rpc.context import RequestContext, Routes
from protocol.jsonrpc.errors import internal_error, invalid_request
from protocol.model import WireModel
from protocol.server.account import (
    AccountTokenUsageDailyBucket,
    AccountTokenUsageSummary,
    CreditsSnapshot,
    GetAccountRateLimitsParams,
    GetAccountRateLimitsResponse,
    GetAccountTokenUsageParams,
    GetAccountTokenUsageResponse,
    RateLimitResetCredit,
    RateLimitResetCreditsSummary,
    RateLimitSnapshot,
    RateLimitWindow,
    SpendControlLimitSnapshot,
    ThreadUsage,
)

Shown = TypeVar("Shown", bound=WireModel)

DEFAULT_LIMIT = "codex"
"""Id of the limit that every account has."""

CREDIT_TYPES = {"codex_rate_limits": "codexRateLimits"}
CREDIT_STATUSES = ("available", "redeeming", "redeemed")
UNKNOWN = "unknown"


class AccountUsageHandlers:
    """The methods that ask the hosted backend about the account."""

    def __init__(self, services: Services) -> None:
        self._accounts = services.accounts
        self._configuration = services.configuration
        self.routes: Routes = {
            "account/rateLimits/read": self.read_rate_limits,
            "account/usage/read": self.read_usage,
        }

    async def read_rate_limits(
        self, context: RequestContext, params: GetAccountRateLimitsParams | None
    ) -> GetAccountRateLimitsResponse:
        """Say where the account stands with its usage limits."""
        wanted = params or GetAccountRateLimitsParams()
        usage, who = await self._usage("rate limits")
        with _backend_failures("codex rate limits"):
            answer, reset_credits = await usage.limits(
                who,
                with_credits=not wanted.exclude_reset_credit_details,
                takes_reserve=wanted.supports_luna_reserve,
            )
        limits = _limits(answer)
        return GetAccountRateLimitsResponse(
            rate_limits=limits[0],
            # A further limit of the same id counts here, as in the reference.
            rate_limits_by_limit_id={limit.limit_id or "": limit for limit in limits},
            rate_limit_reset_credits=_reset_credits(answer, reset_credits),
            account_id=answer.account_id,
        )

    async def read_usage(
        self, context: RequestContext, params: GetAccountTokenUsageParams | None
    ) -> GetAccountTokenUsageResponse:
        """Say how many tokens the account has used, or what a thread has."""
        usage, who = await self._usage("token usage")
        if params is not None and params.thread_id is not None:
            return await _thread_usage(usage, who, params.thread_id)
        with _backend_failures("token usage profile"):
            stats = (await usage.profile(who)).stats
        days = stats.daily_usage_buckets
        return GetAccountTokenUsageResponse(
            summary=_shown(AccountTokenUsageSummary, stats),
            daily_usage_buckets=None
            if days is None
            else [_shown(AccountTokenUsageDailyBucket, day) for day in days],
        )

    async def _usage(self, what: str) -> tuple[AccountUsage, Credentials]:
        with config_failures():
            credentials = (await self._accounts.fresh()).credentials
            base_url = chatgpt_base_url(await self._configuration.read())
        if credentials is None:
            raise invalid_request(
                f"codex account authentication required to read {what}", "notSignedIn"
            )
        if not credentials.is_chatgpt:
            raise invalid_request(f"chatgpt authentication required to read {what}", "notSignedIn")
        return AccountUsage(self._accounts, base_url), credentials


@contextmanager
def _backend_failures(what: str) -> Iterator[None]:
    """Translate that the hosted backend does not answer, or makes no sense."""
    try:
        yield
    except AccountError as exc:
        raise internal_error(f"failed to fetch {what}: {exc}", "backendFailed") from exc


def _shown(kind: type[Shown], answer: BaseModel) -> Shown:
    """Make the wire's form of a part of an answer that has members of the same names."""
    return kind.model_validate(answer, from_attributes=True)


async def _thread_usage(
    usage: AccountUsage, who: Credentials, thread_id: str
) -> GetAccountTokenUsageResponse:
    try:
        asked = str(uuid.UUID(thread_id))
    except ValueError:
        text = f"invalid thread id: {thread_id}"
        raise invalid_request(text, "invalidThreadId", threadId=thread_id) from None
    with _backend_failures("thread usage"):
        found = await usage.thread(who, asked)
    thread = None if found is None else _shown(ThreadUsage, found)
    # Without figures of the account, as in the reference.
    return GetAccountTokenUsageResponse(summary=AccountTokenUsageSummary(), thread_usage=thread)


def _limits(answer: UsageAnswer) -> list[RateLimitSnapshot]:
    """Make the limits of an answer, the one of every account first."""
    plan = plan_name(answer.plan_type)
    spend, held = answer.spend_control, answer.credits
    primary, secondary = _windows(answer.rate_limit)
    spending = None if spend is None else spend.individual_limit
    reached = answer.rate_limit_reached_type
    main = RateLimitSnapshot(
        limit_id=DEFAULT_LIMIT,
        primary=primary,
        secondary=secondary,
        credits=None if held is None else _shown(CreditsSnapshot, held),
        individual_limit=None
        if spending is None
        else SpendControlLimitSnapshot(
            limit=spending.limit,
            used=spending.used,
            remaining_percent=spending.remaining_percent,
            resets_at=spending.reset_at,
        ),
        spend_control_reached=None if spend is None else spend.reached,
        plan_type=plan,
        rate_limit_reached_type=None if reached is None else reached.type,
    )
    return [main, *(_further(limit, plan) for limit in answer.additional_rate_limits or ())]


def _further(limit: FurtherLimit, plan: str) -> RateLimitSnapshot:
    primary, secondary = _windows(limit.rate_limit)
    return RateLimitSnapshot(
        limit_id=limit.metered_feature,
        limit_name=limit.limit_name,
        normal_model_slug=limit.normal_model_slug,
        primary=primary,
        secondary=secondary,
        plan_type=plan,
    )


def _windows(limit: Limit | None) -> tuple[RateLimitWindow | None, RateLimitWindow | None]:
    if limit is None:
        return None, None
    return _window(limit.primary_window), _window(limit.secondary_window)


def _window(window: Window | None) -> RateLimitWindow | None:
    if window is None:
        return None
    seconds = window.limit_window_seconds
    return RateLimitWindow(
        used_percent=window.used_percent,
        # A part of a minute counts as one.
        window_duration_mins=None if not seconds or seconds < 0 else -(-seconds // 60),
        resets_at=window.reset_at,
    )


def _reset_credits(
    answer: UsageAnswer, found: ResetCreditsAnswer | None
) -> RateLimitResetCreditsSummary | None:
    if found is None:
        counted = answer.rate_limit_reset_credits
        if counted is None:
            return None
        return RateLimitResetCreditsSummary(available_count=counted.available_count)
    return RateLimitResetCreditsSummary(
        available_count=found.available_count,
        credits=[
            RateLimitResetCredit(
                id=credit.id,
                reset_type=CREDIT_TYPES.get(credit.reset_type, UNKNOWN),
                status=credit.status if credit.status in CREDIT_STATUSES else UNKNOWN,
                granted_at=int(credit.granted_at.timestamp()),
                expires_at=None
                if credit.expires_at is None
                else int(credit.expires_at.timestamp()),
                title=credit.title,
                description=credit.description,
            )
            for credit in found.credits
        ],
    )
