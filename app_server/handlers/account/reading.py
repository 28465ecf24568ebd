"""account/read and the older getAuthStatus: who is signed in, and whether somebody has to be.

Source: docs/accounts.md.
"""

import logging

from app_server.accounts.claims import UNKNOWN_PLAN
from app_server.accounts.credentials import Credentials
from app_server.accounts.errors import AccountError
from app_server.config.default_provider import OPENAI, chooses_no_provider, default_provider_id
from app_server.handlers.errors import config_failures
from app_server.handlers.services import Services
from app_server.models.catalogue.providers import read_providers, spare_key_is_set
from app_server.models.provider import Provider
from app_server.rpc.context import RequestContext, Routes
from protocol.older_interface.queries import GetAuthStatusParams, GetAuthStatusResponse
from protocol.server.account import (
    Account,
    ApiKeyAccount,
    ChatgptAccount,
    GetAccountParams,
    GetAccountResponse,
)

logger = logging.getLogger(__name__)


class AccountReadHandlers:
    """The methods that only read the account."""

    def __init__(self, services: Services) -> None:
        self._accounts = services.accounts
        self._configuration = services.configuration
        self.routes: Routes = {"account/read": self.read, "getAuthStatus": self.read_auth_status}

    async def read(self, context: RequestContext, params: GetAccountParams) -> GetAccountResponse:
        """Say who is signed in, and whether the chosen provider wants somebody to be."""
        provider, credentials = await self._look(refreshed=params.refresh_token)
        if provider is None or not provider.requires_openai_auth:
            return GetAccountResponse(requires_openai_auth=False)
        if credentials is None:
            return GetAccountResponse(requires_openai_auth=not spare_key_is_set(provider))
        return GetAccountResponse(
            account=_account(credentials),
            user_id=credentials.chatgpt_user_id,
            requires_openai_auth=True,
        )

    async def read_auth_status(
        self, context: RequestContext, params: GetAuthStatusParams
    ) -> GetAuthStatusResponse:
        """Say how the server signs in; the token only if the client asks for it."""
        provider, credentials = await self._look(refreshed=bool(params.refresh_token))
        if provider is None or not provider.requires_openai_auth:
            return GetAuthStatusResponse(requires_openai_auth=False)
        if credentials is None:
            return GetAuthStatusResponse(requires_openai_auth=True)
        return GetAuthStatusResponse(
            auth_method=credentials.kind,
            auth_token=credentials.token if params.include_token else None,
            requires_openai_auth=True,
        )

    async def _look(self, *, refreshed: bool) -> tuple[Provider | None, Credentials | None]:
        """Return the chosen provider and the account, whose token is renewed first if `refreshed`.

        As in the reference, an account that cannot be used any more is none.
        """
        with config_failures():
            if refreshed:
                try:
                    await self._accounts.refresh()
                except AccountError as exc:
                    logger.warning("the token was not renewed: %s", exc)
            state = await self._accounts.look()
            config = await self._configuration.read()
            # Who chose nothing may want to sign in; the offline model is there all the same.
            chosen = OPENAI if chooses_no_provider(config) else default_provider_id(config)
            provider = read_providers(config).get(chosen)
        return provider, None if self._accounts.refusal is not None else state.credentials


def _account(credentials: Credentials) -> Account:
    if not credentials.is_chatgpt:
        return ApiKeyAccount()
    return ChatgptAccount(email=credentials.email, plan_type=credentials.plan or UNKNOWN_PLAN)
