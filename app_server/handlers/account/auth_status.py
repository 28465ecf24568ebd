"""getAuthStatus: how the server signs in, for clients from before account/read.

Source: docs/accounts.md.
"""

import logging
from collections.abc import Mapping

from app_server.accounts.errors import AccountError
from app_server.config.default_provider import OPENAI, chooses_no_provider, default_provider_id
from app_server.handlers.errors import config_failures
from app_server.handlers.services import Services
from app_server.rpc.context import Handler, RequestContext
from app_server.turns.model.catalogue.providers import read_providers
from protocol.legacy import GetAuthStatusParams, GetAuthStatusResponse

logger = logging.getLogger(__name__)


class AuthStatusHandlers:
    """The method getAuthStatus."""

    def __init__(self, services: Services) -> None:
        self._accounts = services.accounts
        self._configuration = services.configuration

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {"getAuthStatus": self.read}

    async def read(
        self, context: RequestContext, params: GetAuthStatusParams
    ) -> GetAuthStatusResponse:
        """Say how the server signs in; the token only if the client asks for it."""
        with config_failures():
            if params.refresh_token:
                try:
                    await self._accounts.refresh()
                except AccountError as exc:
                    logger.warning("the token was not renewed: %s", exc)
            state = await self._accounts.look()
            config = await self._configuration.read()
            chosen = OPENAI if chooses_no_provider(config) else default_provider_id(config)
            provider = read_providers(config).get(chosen)
        if provider is None or not provider.requires_openai_auth:
            return GetAuthStatusResponse(requires_openai_auth=False)
        credentials = None if self._accounts.refusal is not None else state.credentials
        if credentials is None:
            return GetAuthStatusResponse(requires_openai_auth=True)
        return GetAuthStatusResponse(
            auth_method=credentials.kind,
            auth_token=credentials.token if params.include_token else None,
            requires_openai_auth=True,
        )
