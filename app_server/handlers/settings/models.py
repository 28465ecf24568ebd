"""model/list: the models that can be chosen."""

from app_server.config.default_provider import default_provider_id
from app_server.handlers.errors import config_failures
from app_server.handlers.services import Services
from app_server.handlers.views.model_entries import shown_models
from app_server.handlers.views.pages import page
from app_server.models.catalogue.providers import default_model, read_providers
from app_server.rpc.context import RequestContext, Routes
from protocol.jsonrpc.errors import invalid_request
from protocol.server.models import ModelListParams, ModelListResponse


class ModelHandlers:
    """The model/* methods."""

    def __init__(self, services: Services) -> None:
        self._configuration = services.configuration
        self._lists = services.model_lists
        self.routes: Routes = {"model/list": self.list_models}

    async def list_models(
        self, context: RequestContext, params: ModelListParams
    ) -> ModelListResponse:
        """List the models of one provider, the hidden ones only if they are asked for."""
        with config_failures():
            config = await self._configuration.read()
            providers, default_id = read_providers(config), default_provider_id(config)
        provider_id = params.model_provider or default_id
        provider = providers.get(provider_id)
        if provider is None:
            raise invalid_request(
                f"Model provider `{provider_id}` is not configured",
                "modelProviderNotConfigured",
                type="modelProviderNotConfigured",
                modelProvider=provider_id,
            )
        chosen = default_model(config, provider_id)
        listed = await self._lists.models(provider)
        models = shown_models(chosen, provider.name, listed)
        offered = [model for model in models if params.include_hidden or not model.hidden]
        data, next_cursor = page(offered, params.cursor, params.limit, "models")
        return ModelListResponse(data=data, next_cursor=next_cursor)
