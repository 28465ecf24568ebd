"""modelProvider/*: the providers of models that the settings have, and changing them.

No credential is shown, and none is written: a provider names the variable that has its key.
Source: docs/config.md, "Providers over the wire".
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from app_server.config.default_provider import OFFLINE, OPENAI, default_provider_id
from app_server.config.values import Config
from app_server.handlers.errors import config_failures
from app_server.handlers.services import Services
from app_server.handlers.settings.file_changes import change_config, config_refusal
from app_server.models.catalogue.providers import read_providers
from app_server.models.provider import Provider
from app_server.rpc.context import RequestContext, Routes
from protocol.server.models import (
    CustomGatewayProviderSettings,
    CustomGatewayProviderSettingsPatch,
    EnvironmentVariableGatewayAuth,
    ExternallyConfiguredGatewayAuth,
    GatewayAuth,
    ModelProviderCapabilitiesReadParams,
    ModelProviderCapabilitiesReadResponse,
    ModelProviderConfigWriteParams,
    ModelProviderConfigWriteResponse,
    ModelProviderListParams,
    ModelProviderListResponse,
    ModelProviderSummary,
    NoneGatewayAuth,
    OpenaiProviderSettings,
)

BUILT_IN = frozenset({OPENAI, OFFLINE})
MAX_NAME_CHARS = 128
MAX_URL_CHARS = 2048
MAX_PROVIDERS = 256

TABLE = "model_providers"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class ProviderHandlers:
    """The modelProvider/* methods."""

    def __init__(self, services: Services) -> None:
        self._configuration = services.configuration
        self._file = services.config_file
        self.routes: Routes = {
            "modelProvider/capabilities/read": self.read_capabilities,
            "modelProvider/config/write": self.write,
            "modelProvider/list": self.list_providers,
        }

    async def list_providers(
        self, context: RequestContext, params: ModelProviderListParams
    ) -> ModelProviderListResponse:
        """List the providers by id, the built-in ones included."""
        with config_failures():
            config = await self._configuration.read()
            providers = read_providers(config)
            default = default_provider_id(config)
        return ModelProviderListResponse(
            data=[_shown(providers[provider_id]) for provider_id in sorted(providers)],
            default_provider_id=default,
            can_change_default=not _is_overridden(config),
        )

    async def read_capabilities(
        self, context: RequestContext, params: ModelProviderCapabilitiesReadParams
    ) -> ModelProviderCapabilitiesReadResponse:
        """Say what the default provider can do beside text, as far as turns here use it."""
        with config_failures():
            config = await self._configuration.read()
            is_offline = default_provider_id(config) == OFFLINE
        return ModelProviderCapabilitiesReadResponse(
            image_generation=False, web_search=not is_offline
        )

    async def write(
        self, context: RequestContext, params: ModelProviderConfigWriteParams
    ) -> ModelProviderConfigWriteResponse:
        """Add a provider to config.toml, or change one; threads that start later know it."""
        patch = params.settings
        if not isinstance(patch, CustomGatewayProviderSettingsPatch):
            raise config_refusal(f"This server does not reach providers of type `{patch.type}`.")
        _check(patch)
        written: list[Provider] = []

        def changed(edit: Any, found: Config) -> str:
            providers = read_providers(found)
            provider_id = patch.provider_id or _new_id(patch, providers)
            if provider_id in BUILT_IN:
                raise config_refusal(
                    "A custom provider or gateway cannot use a built-in provider ID."
                )
            if patch.provider_id is not None and provider_id not in providers:
                raise config_refusal("Unknown provider ID.", "configPathNotFound")
            text = found.text
            for key, value in _members(patch):
                path = (TABLE, provider_id, key)
                if value is None:
                    text = edit.remove(text, path)
                else:
                    text = edit.set_value(text, path, value)
            written.append(read_providers(Config(tomllib.loads(text)))[provider_id])
            return str(text)

        await change_config(self._file, changed)
        return ModelProviderConfigWriteResponse(provider=_shown(written[-1]))


def _shown(provider: Provider) -> ModelProviderSummary:
    if provider.id == OPENAI:
        settings: OpenaiProviderSettings | CustomGatewayProviderSettings = OpenaiProviderSettings()
    else:
        settings = CustomGatewayProviderSettings(auth=_auth(provider))
    return ModelProviderSummary(
        id=provider.id,
        name=provider.name,
        can_edit=provider.id not in BUILT_IN,
        base_url=_shown_url(provider),
        settings=settings,
    )


def _shown_url(provider: Provider) -> str | None:
    url = None if provider.id in BUILT_IN else provider.base_url
    return url if url is not None and _is_plain(url) else None


def _auth(provider: Provider) -> GatewayAuth:
    elsewhere = (
        provider.bearer_token is not None
        or provider.requires_openai_auth
        or provider.http_headers
        or provider.env_http_headers
        or provider.query_params
    )
    if elsewhere:
        return ExternallyConfiguredGatewayAuth(env_key=provider.env_key)
    if provider.env_key is not None:
        return EnvironmentVariableGatewayAuth(env_key=provider.env_key)
    return NoneGatewayAuth()


def _check(patch: CustomGatewayProviderSettingsPatch) -> None:
    given = patch.model_fields_set
    if (patch.provider_id is None or "name" in given) and not patch.name.strip():
        raise config_refusal("Enter a provider name.")
    if len(patch.name) > MAX_NAME_CHARS:
        raise config_refusal(f"A provider name has at most {MAX_NAME_CHARS} characters.")
    if patch.base_url is None and patch.provider_id is None:
        raise config_refusal("A base URL is required to create a custom provider.")
    if patch.base_url is not None and not _is_plain(patch.base_url):
        raise config_refusal(
            "Enter an HTTP(S) base URL without credentials, a query, or a fragment."
        )
    if patch.env_key is not None and _VARIABLE.fullmatch(patch.env_key) is None:
        raise config_refusal("Enter the name of an environment variable, not a key.")


def _is_plain(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    has_secrets = "@" in parts.netloc or parts.query or parts.fragment
    is_web = parts.scheme in ("http", "https") and bool(host)
    return is_web and not has_secrets and len(url) <= MAX_URL_CHARS


def _members(patch: CustomGatewayProviderSettingsPatch) -> Sequence[tuple[str, str | None]]:
    """Return keys and values to write; None removes a key. What was not given stays."""
    given = patch.model_fields_set
    members = [
        (name, getattr(patch, name)) for name in ("name", "base_url", "env_key") if name in given
    ]
    return members if patch.provider_id is not None else [*members, ("wire_api", "responses")]


def _new_id(patch: CustomGatewayProviderSettingsPatch, providers: Mapping[str, Provider]) -> str:
    """Make an id from the name, which no provider has."""
    if len(providers) >= MAX_PROVIDERS:
        raise config_refusal(f"There are {MAX_PROVIDERS} providers already.")
    words = re.findall(r"[a-z0-9]+", patch.name.lower())
    stem = "-".join(words) or "provider"
    numbered = (f"{stem}-{number}" for number in range(2, MAX_PROVIDERS + 3))
    return next(each for each in (stem, *numbered) if each not in providers)


def _is_overridden(config: Config) -> bool:
    return any("model_provider" in layer for layer in config.layers)
