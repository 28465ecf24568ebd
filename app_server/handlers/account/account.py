"""account/*: signing in and out, what has been used, and news of both.

A change of the account is announced after the answer to who asked for it; one that nobody asked
for, as when renewing a token brings another plan, is announced by itself.
Source: docs/accounts.md.
"""

import json
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio

from app_server.accounts.claims import InvalidToken
from app_server.accounts.credentials import (
    MAX_TOKEN_CHARS,
    AuthState,
    Credentials,
    is_sendable,
)
from app_server.accounts.errors import AccountError, IssuerUnavailable
from app_server.accounts.issuer import Issuer
from app_server.accounts.login.attempt import BrowserWishes, Flow, LoginAttempts
from app_server.accounts.record import Tokens, external_credentials
from app_server.accounts.settings import AccountSettings, read_account_settings
from app_server.handlers.errors import config_failures
from app_server.handlers.services import Services
from app_server.rpc.context import ConnectionId, RequestContext, Routes
from app_server.runtime.loader import load
from protocol.contract.specs import NoParams
from protocol.jsonrpc.errors import internal_error, invalid_request
from protocol.server.account import (
    AccountLoginCompletedNotification,
    AccountUpdatedNotification,
    ApiKeyLoginAccountParams,
    ApiKeyLoginAccountResponse,
    CancelLoginAccountParams,
    CancelLoginAccountResponse,
    ChatgptAuthTokensLoginAccountParams,
    ChatgptAuthTokensLoginAccountResponse,
    ChatgptAuthTokensRefreshParams,
    ChatgptAuthTokensRefreshResponse,
    ChatgptDeviceCodeLoginAccountParams,
    ChatgptLoginAccountParams,
    LoginAccountParams,
    LoginAccountResponse,
    LogoutAccountResponse,
)

if TYPE_CHECKING:
    from app_server.accounts.login.browser import BrowserLogin
    from app_server.accounts.login.device_code import DeviceLogin

REFRESH_METHOD = "account/chatgptAuthTokens/refresh"

SUPPLY_S = 10.0
"""For a client to supply another token."""

EXTERNAL_ACTIVE = (
    "External auth is active. Use account/login/start (chatgptAuthTokens) to update it or"
    " account/logout to clear it."
)


class AccountHandlers:
    """The account/* methods."""

    def __init__(self, services: Services) -> None:
        self._configuration = services.configuration
        self._accounts = services.accounts
        self._clients = services.hub
        self._attempts = LoginAttempts(services.tasks, self._keep, self._notify_end)
        self._asked_for = 0
        self._announced = _news(self._accounts.current())
        self._accounts.subscribe(self._changed)
        self.routes: Routes = {
            "account/login/cancel": self.cancel_login,
            "account/login/start": self.start_login,
            "account/logout": self.logout,
        }

    async def start_login(
        self, context: RequestContext, params: LoginAccountParams
    ) -> LoginAccountResponse:
        """Sign in, or begin to."""
        with config_failures():
            settings = read_account_settings(await self._configuration.read())
            current = (await self._accounts.look()).credentials
        if isinstance(params, ChatgptAuthTokensLoginAccountParams):
            return await self._use_supplied(context, params, settings)
        if current is not None and current.kind == "chatgptAuthTokens":
            raise invalid_request(EXTERNAL_ACTIVE, "externalAuthActive")
        if isinstance(params, ApiKeyLoginAccountParams):
            return await self._sign_in_with_key(context, params, settings)
        if isinstance(params, ChatgptLoginAccountParams | ChatgptDeviceCodeLoginAccountParams):
            return await self._wait_for_user(context, params, settings)
        raise invalid_request(
            "Amazon Bedrock login is not offered by this server.", "loginNotOffered"
        )

    async def cancel_login(
        self, context: RequestContext, params: CancelLoginAccountParams
    ) -> CancelLoginAccountResponse:
        """Give up a sign-in that waits for its user."""
        try:
            login_id = str(uuid.UUID(params.login_id))
        except ValueError:
            raise invalid_request(
                f"invalid login id: {params.login_id}", "invalidLoginId"
            ) from None
        found = await self._attempts.cancel(login_id, context.after_answer)
        return CancelLoginAccountResponse(status="canceled" if found else "notFound")

    async def logout(self, context: RequestContext, params: NoParams) -> LogoutAccountResponse:
        """Forget the account, and give its tokens back."""
        await self._attempts.give_up()
        with self._changing("logout failed", context, self._notify_account):
            await self._accounts.sign_out()
        return LogoutAccountResponse()

    async def _sign_in_with_key(
        self, context: RequestContext, params: ApiKeyLoginAccountParams, settings: AccountSettings
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
        await self._attempts.give_up()
        with self._changing("failed to save api key", context, self._notify_sign_in):
            await self._accounts.sign_in_with_key(params.api_key)
        return ApiKeyLoginAccountResponse()

    async def _use_supplied(
        self,
        context: RequestContext,
        params: ChatgptAuthTokensLoginAccountParams,
        settings: AccountSettings,
    ) -> LoginAccountResponse:
        if settings.forced_method == "api":
            raise invalid_request(
                "External ChatGPT auth is disabled. Use API key login instead.", "loginDisabled"
            )
        await self._attempts.give_up()
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
        supplier = partial(self._ask_for_token, context.connection_id, settings)
        with self._changing("failed to set external auth", context, self._notify_sign_in):
            await self._accounts.use_supplied(credentials, supplier)
        return ChatgptAuthTokensLoginAccountResponse()

    async def _ask_for_token(
        self, connection_id: ConnectionId, settings: AccountSettings, previous: str | None
    ) -> Credentials:
        params = ChatgptAuthTokensRefreshParams(reason="unauthorized", previous_account_id=previous)
        try:
            with anyio.fail_after(SUPPLY_S):
                answer = await self._clients.ask_client(REFRESH_METHOD, params, connection_id)
        except TimeoutError:
            raise IssuerUnavailable(
                f"auth refresh request timed out after {SUPPLY_S:.0f}s"
            ) from None
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
        self,
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
            )
            open_flow = partial(browser.open, wishes)
        attempt = await self._attempts.start(open_flow)
        context.after_answer(attempt.answered.set)
        return attempt.flow.response(attempt.id)

    async def _keep(self, tokens: Tokens, issuer: Issuer) -> None:
        with self._quietly():
            await self._accounts.sign_in_with_tokens(tokens, issuer)

    def _notify_end(self, login_id: str, error: str | None) -> None:
        self._clients.broadcast(
            AccountLoginCompletedNotification(login_id=login_id, success=error is None, error=error)
        )
        if error is None:
            self._notify_account()

    def _notify_sign_in(self) -> None:
        self._clients.broadcast(AccountLoginCompletedNotification(success=True))
        self._notify_account()

    def _notify_account(self) -> None:
        state = self._accounts.current()
        self._announced = _news(state)
        credentials = state.credentials
        self._clients.broadcast(
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
            self._notify_account()
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
    def _changing(
        self, failed: str, context: RequestContext, notify: Callable[[], None]
    ) -> Iterator[None]:
        """Notify of a change that works out, once the request was answered; or say what failed."""
        try:
            with config_failures(), self._quietly():
                yield
        except AccountError as exc:
            raise internal_error(f"{failed}: {exc}", "accountFailed") from exc
        context.after_answer(notify)


def _news(state: AuthState) -> tuple[str | None, ...]:
    """Return what makes a change worth a notification."""
    found = state.credentials
    if found is None:
        return ()
    return found.kind, found.account_id, found.chatgpt_user_id, found.plan


def _login_flows() -> "tuple[type[BrowserLogin], type[DeviceLogin]]":
    from app_server.accounts.login.browser import BrowserLogin
    from app_server.accounts.login.device_code import DeviceLogin

    return BrowserLogin, DeviceLogin
