"""account/*: signing in and out, who is signed in, what the hosted backend says of the account.

A change of the account is announced after the answer to who asked for it; one that nobody asked
for, as when renewing a token brings another plan, is announced by itself.
Source: docs/accounts.md; docs/accounts.md, "Usage".
"""

import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
from pydantic import BaseModel

from app_server.accounts.account_errors import AccountError, IssuerUnavailable
from app_server.accounts.account_settings import (
    AccountSettings,
    chatgpt_base_url,
    read_account_settings,
)
from app_server.accounts.credentials import (
    MAX_TOKEN_CHARS,
    UNKNOWN_PLAN,
    AuthState,
    Credentials,
    InvalidToken,
    is_sendable,
    plan_name,
)
from app_server.accounts.issuer import Issuer
from app_server.accounts.login import BrowserWishes, CallbackPorts, Flow, LoginAttempts
from app_server.accounts.store import Tokens, external_credentials
from app_server.accounts.usage import (
    AccountUsage,
    FurtherLimit,
    Limit,
    ResetCreditsAnswer,
    UsageAnswer,
    Window,
)
from app_server.config.effective import OPENAI, chooses_no_provider, default_provider_id
from app_server.handlers.errors import config_failures
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.models.catalogue.providers import read_providers, spare_key_is_set
from app_server.models.interface import Provider
from app_server.rpc.context import ConnectionId
from app_server.runtime.loader import load
from protocol.contract.specs import NoParams
from protocol.jsonrpc.errors import internal_error, invalid_request
from protocol.model import WireModel
from protocol.server.account import (
    Account,
    AccountLoginCompletedNotification,
    AccountTokenUsageDailyBucket,
    AccountTokenUsageSummary,
    AccountUpdatedNotification,
    ApiKeyAccount,
    ApiKeyLoginAccountParams,
    ApiKeyLoginAccountResponse,
    CancelLoginAccountParams,
    CancelLoginAccountResponse,
    ChatgptAccount,
    ChatgptAuthTokensLoginAccountParams,
    ChatgptAuthTokensLoginAccountResponse,
    ChatgptAuthTokensRefreshParams,
    ChatgptAuthTokensRefreshResponse,
    ChatgptDeviceCodeLoginAccountParams,
    ChatgptLoginAccountParams,
    CreditsSnapshot,
    GetAccountParams,
    GetAccountRateLimitsParams,
    GetAccountRateLimitsResponse,
    GetAccountResponse,
    GetAccountTokenUsageParams,
    GetAccountTokenUsageResponse,
    LoginAccountParams,
    LoginAccountResponse,
    LogoutAccountResponse,
    RateLimitResetCredit,
    RateLimitResetCreditsSummary,
    RateLimitSnapshot,
    RateLimitWindow,
    SpendControlLimitSnapshot,
    ThreadUsage,
)

if TYPE_CHECKING:
    from app_server.accounts.login import BrowserLogin, DeviceLogin

REFRESH_METHOD = "account/chatgptAuthTokens/refresh"

SUPPLY_S = 10.0
"""For a client to supply another token."""

EXTERNAL_ACTIVE = (
    "External auth is active. Use account/login/start (chatgptAuthTokens) to update it or"
    " account/logout to clear it."
)


class AccountNews:
    """Announces changes of the account: of a request after its answer, of a renewal by itself."""

    def __init__(self, services: Services) -> None:
        self._accounts = services.accounts
        self._hub = services.hub
        self._asked_for = 0
        self.supply_s = SUPPLY_S
        """Seconds for a client to supply another token."""
        self._announced = _news(self._accounts.current())
        self.attempts = LoginAttempts(services.tasks, self.keep, self.notify_end)
        """The sign-ins that wait for their users."""
        self.callback = CallbackPorts()
        """Of sign-ins in a browser that start from now on."""
        self._accounts.subscribe(self._changed)

    async def keep(self, tokens: Tokens, issuer: Issuer) -> None:
        """Keep the tokens of a sign-in that its user has ended."""
        with self._quietly():
            await self._accounts.sign_in_with_tokens(tokens, issuer)

    def notify_end(self, login_id: str, error: str | None) -> None:
        """Notify clients of the end of a sign-in that waited for its user."""
        self._hub.broadcast(
            AccountLoginCompletedNotification(login_id=login_id, success=error is None, error=error)
        )
        if error is None:
            self.notify_account()

    def notify_sign_in(self) -> None:
        """Notify clients of a sign-in that needed no user."""
        self._hub.broadcast(AccountLoginCompletedNotification(success=True))
        self.notify_account()

    def notify_account(self) -> None:
        """Notify clients of the account as it is now."""
        state = self._accounts.current()
        self._announced = _news(state)
        credentials = state.credentials
        self._hub.broadcast(
            AccountUpdatedNotification(
                auth_mode=None if credentials is None else credentials.kind,
                plan_type=None if credentials is None else credentials.plan,
            )
        )

    def _changed(self, state: AuthState) -> None:
        if self._asked_for:
            return
        # What is found when the store is opened is no news.
        if self._accounts.is_loaded and _news(state) != self._announced:
            self.notify_account()
        self._announced = _news(state)

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Send no notification by itself: who makes the change does."""
        self._asked_for += 1
        try:
            yield
        finally:
            self._asked_for -= 1

    @contextmanager
    def changing(
        self, failed: str, context: RequestContext, notify: Callable[[], None]
    ) -> Iterator[None]:
        """Notify of a change that works out, once the request was answered; or say what failed."""
        try:
            with config_failures(), self._quietly():
                yield
        except AccountError as exc:
            raise internal_error(f"{failed}: {exc}", "accountFailed") from exc
        context.after_answer(notify)


@serves("account/login/start")
async def start_login(context: RequestContext, params: LoginAccountParams) -> LoginAccountResponse:
    """Sign in, or begin a sign-in that the user completes."""
    with config_failures():
        settings = read_account_settings(await context.services.configuration.read())
        current = (await context.services.accounts.look()).credentials
    if isinstance(params, ChatgptAuthTokensLoginAccountParams):
        return await _use_supplied(context, params, settings)
    if current is not None and current.kind == "chatgptAuthTokens":
        raise invalid_request(EXTERNAL_ACTIVE, "externalAuthActive")
    if isinstance(params, ApiKeyLoginAccountParams):
        return await _sign_in_with_key(context, params, settings)
    if isinstance(params, ChatgptLoginAccountParams | ChatgptDeviceCodeLoginAccountParams):
        return await _wait_for_user(context, params, settings)
    raise invalid_request("Amazon Bedrock login is not offered by this server.", "loginNotOffered")


@serves("account/login/cancel")
async def cancel_login(
    context: RequestContext, params: CancelLoginAccountParams
) -> CancelLoginAccountResponse:
    """Cancel a sign-in that waits for its user."""
    try:
        login_id = str(uuid.UUID(params.login_id))
    except ValueError:
        raise invalid_request(f"invalid login id: {params.login_id}", "invalidLoginId") from None
    found = await context.services.part(AccountNews).attempts.cancel(login_id, context.after_answer)
    return CancelLoginAccountResponse(status="canceled" if found else "notFound")


@serves("account/logout")
async def log_out(context: RequestContext, params: NoParams) -> LogoutAccountResponse:
    """Sign out: remove the account, and revoke its tokens."""
    await context.services.part(AccountNews).attempts.give_up()
    with context.services.part(AccountNews).changing(
        "logout failed", context, context.services.part(AccountNews).notify_account
    ):
        await context.services.accounts.sign_out()
    return LogoutAccountResponse()


async def _sign_in_with_key(
    context: RequestContext, params: ApiKeyLoginAccountParams, settings: AccountSettings
) -> LoginAccountResponse:
    if settings.forced_method == "chatgpt":
        raise invalid_request(
            "API key login is disabled. Use ChatGPT login instead.", "loginDisabled"
        )
    if not is_sendable(params.api_key):
        raise invalid_request(
            f"the API key must be at most {MAX_TOKEN_CHARS} printable characters",
            "invalidApiKey",
        )
    await context.services.part(AccountNews).attempts.give_up()
    with context.services.part(AccountNews).changing(
        "failed to save api key", context, context.services.part(AccountNews).notify_sign_in
    ):
        await context.services.accounts.sign_in_with_key(params.api_key)
    return ApiKeyLoginAccountResponse()


async def _use_supplied(
    context: RequestContext,
    params: ChatgptAuthTokensLoginAccountParams,
    settings: AccountSettings,
) -> LoginAccountResponse:
    if settings.forced_method == "api":
        raise invalid_request(
            "External ChatGPT auth is disabled. Use API key login instead.", "loginDisabled"
        )
    await context.services.part(AccountNews).attempts.give_up()
    if not settings.permits_workspace(params.chatgpt_account_id):
        allowed = json.dumps(settings.workspaces)
        raise invalid_request(
            f"External auth must use one of workspace(s) {allowed},"
            f" but received {json.dumps(params.chatgpt_account_id)}.",
            "workspaceNotAllowed",
        )
    try:
        credentials = external_credentials(
            params.access_token, params.chatgpt_account_id, params.chatgpt_plan_type
        )
    except InvalidToken as exc:
        raise internal_error(f"failed to set external auth: {exc}", "invalidToken") from exc
    supplier = partial(_ask_for_token, context.services, context.connection_id, settings)
    with context.services.part(AccountNews).changing(
        "failed to set external auth", context, context.services.part(AccountNews).notify_sign_in
    ):
        await context.services.accounts.use_supplied(credentials, supplier)
    return ChatgptAuthTokensLoginAccountResponse()


async def _ask_for_token(
    services: Services, connection_id: ConnectionId, settings: AccountSettings, previous: str | None
) -> Credentials:
    params = ChatgptAuthTokensRefreshParams(reason="unauthorized", previous_account_id=previous)
    supply_s = services.part(AccountNews).supply_s
    try:
        with anyio.fail_after(supply_s):
            answer = await services.hub.ask_client(REFRESH_METHOD, params, connection_id)
    except TimeoutError:
        raise IssuerUnavailable(f"auth refresh request timed out after {supply_s:.0f}s") from None
    if not isinstance(answer, ChatgptAuthTokensRefreshResponse):
        raise IssuerUnavailable("auth refresh request failed")
    if not settings.permits_workspace(answer.chatgpt_account_id):
        raise IssuerUnavailable("auth refresh returned a workspace that is not allowed")
    try:
        return external_credentials(
            answer.access_token, answer.chatgpt_account_id, answer.chatgpt_plan_type
        )
    except InvalidToken as exc:
        raise IssuerUnavailable(str(exc)) from exc


async def _wait_for_user(
    context: RequestContext,
    params: ChatgptLoginAccountParams | ChatgptDeviceCodeLoginAccountParams,
    settings: AccountSettings,
) -> LoginAccountResponse:
    if settings.forced_method == "api":
        raise invalid_request(
            "ChatGPT login is disabled. Use API key login instead.", "loginDisabled"
        )
    # With it comes httpx, which those who only look should not wait for.
    browser, device = await load(_login_flows)
    open_flow: Callable[[], Awaitable[Flow]] = device.open
    if isinstance(params, ChatgptLoginAccountParams):
        brand = params.app_brand or "codex"
        wishes = BrowserWishes(
            originator=context.client.info.name,
            workspaces=settings.workspaces,
            hosted_page=brand if params.use_hosted_login_success_page else None,
            callback=context.services.part(AccountNews).callback,
        )
        open_flow = partial(browser.open, wishes)
    attempt = await context.services.part(AccountNews).attempts.start(open_flow)
    context.after_answer(attempt.answered.set)
    return attempt.flow.response(attempt.id)


def _news(state: AuthState) -> tuple[str | None, ...]:
    """Return what makes a change worth a notification."""
    found = state.credentials
    if found is None:
        return ()
    return found.kind, found.account_id, found.chatgpt_user_id, found.plan


def _login_flows() -> "tuple[type[BrowserLogin], type[DeviceLogin]]":
    from app_server.accounts.login import BrowserLogin, DeviceLogin

    return BrowserLogin, DeviceLogin


logger = logging.getLogger(__name__)


@serves("account/read")
async def read_account(context: RequestContext, params: GetAccountParams) -> GetAccountResponse:
    """Return the signed-in account, and whether the chosen provider requires one."""
    # Whoever has read the account is notified of every later change.
    context.services.part(AccountNews)
    provider, credentials = await look_at_account(context.services, refreshed=params.refresh_token)
    if provider is None or not provider.requires_openai_auth:
        return GetAccountResponse(requires_openai_auth=False)
    if credentials is None:
        return GetAccountResponse(requires_openai_auth=not spare_key_is_set(provider))
    return GetAccountResponse(
        account=_account(credentials),
        user_id=credentials.chatgpt_user_id,
        requires_openai_auth=True,
    )


async def look_at_account(
    services: Services, *, refreshed: bool
) -> tuple[Provider | None, Credentials | None]:
    """Return the chosen provider and the account, whose token is renewed first if `refreshed`.

    As in the reference, an account that cannot be used any more is none.
    """
    with config_failures():
        if refreshed:
            try:
                await services.accounts.refresh()
            except AccountError as exc:
                logger.warning("the token was not renewed: %s", exc)
        state = await services.accounts.look()
        config = await services.configuration.read()
        # Who chose nothing may want to sign in; the offline model is there all the same.
        chosen = OPENAI if chooses_no_provider(config) else default_provider_id(config)
        provider = read_providers(config).get(chosen)
    return provider, None if services.accounts.refusal is not None else state.credentials


def _account(credentials: Credentials) -> Account:
    if not credentials.is_chatgpt:
        return ApiKeyAccount()
    return ChatgptAccount(email=credentials.email, plan_type=credentials.plan or UNKNOWN_PLAN)


Shown = TypeVar("Shown", bound=WireModel)

DEFAULT_LIMIT = "codex"
"""Id of the limit that every account has."""

CREDIT_TYPES = {"codex_rate_limits": "codexRateLimits"}

CREDIT_STATUSES = ("available", "redeeming", "redeemed")

UNKNOWN = "unknown"


@serves("account/rateLimits/read")
async def read_rate_limits(
    context: RequestContext, params: GetAccountRateLimitsParams | None
) -> GetAccountRateLimitsResponse:
    """Return the rate limits of the account."""
    wanted = params or GetAccountRateLimitsParams()
    usage, who = await _usage(context.services, "rate limits")
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


@serves("account/usage/read")
async def read_usage(
    context: RequestContext, params: GetAccountTokenUsageParams | None
) -> GetAccountTokenUsageResponse:
    """Return the tokens that the account has used, or those of a thread."""
    usage, who = await _usage(context.services, "token usage")
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


async def _usage(services: Services, what: str) -> tuple[AccountUsage, Credentials]:
    with config_failures():
        credentials = (await services.accounts.fresh()).credentials
        base_url = chatgpt_base_url(await services.configuration.read())
    if credentials is None:
        raise invalid_request(
            f"codex account authentication required to read {what}", "notSignedIn"
        )
    if not credentials.is_chatgpt:
        raise invalid_request(f"chatgpt authentication required to read {what}", "notSignedIn")
    return AccountUsage(services.accounts, base_url), credentials


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
