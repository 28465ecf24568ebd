"""account/*: who is signed in. Nobody can sign in yet; keys come from the environment."""

from collections.abc import Mapping

from app_server.handlers.configuration import Configuration
from app_server.handlers.failures import config_failures
from app_server.rpc.context import Handler, RequestContext
from app_server.turns.providers import default_provider_id, read_providers
from protocol.account import GetAccountParams, GetAccountResponse


class AccountHandlers:
    """The account/* methods."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {"account/read": self.read}

    async def read(self, context: RequestContext, params: GetAccountParams) -> GetAccountResponse:
        """Say that nobody is signed in, and whether the chosen provider wants somebody to be."""
        with config_failures():
            config = await self._configuration.read()
            provider = read_providers(config).get(default_provider_id(config))
        return GetAccountResponse(
            requires_openai_auth=provider is not None and provider.requires_openai_auth
        )
