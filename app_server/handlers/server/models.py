"""model/list, modelProvider/*, experimentalFeature/*, collaborationMode/list: what can be chosen.

What is listed is what this server does, and nothing that it would only accept. No credential is
shown, and none is written: a provider names the variable that has its key.
Source: docs/config.md, "Models", "Features", "Providers over the wire"; observed behaviour of
Codex's `model/list`.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from app_server.config.effective import OFFLINE, OPENAI, default_provider_id
from app_server.config.values import Config, ConfigView
from app_server.handlers.errors import config_failures, loaded_thread
from app_server.handlers.server.config_changes import change_config, config_refusal
from app_server.handlers.server.feature_table import FEATURES
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.views.pages import page
from app_server.models.catalogue.models import (
    ENTRIES,
    IMAGE,
    OFFLINE_ENTRY,
    TEXT,
    CatalogueEntry,
    ListedModel,
    find_entry,
)
from app_server.models.catalogue.providers import default_model, read_providers
from app_server.models.interface import Provider
from app_server.threads.operations import is_again
from protocol.jsonrpc.errors import invalid_request
from protocol.server.models import (
    CollaborationModeListParams,
    CollaborationModeListResponse,
    CollaborationModeMask,
    CustomGatewayProviderSettings,
    CustomGatewayProviderSettingsPatch,
    EnvironmentVariableGatewayAuth,
    ExperimentalFeature,
    ExperimentalFeatureEnablementSetParams,
    ExperimentalFeatureEnablementSetResponse,
    ExperimentalFeatureListParams,
    ExperimentalFeatureListResponse,
    ExternallyConfiguredGatewayAuth,
    GatewayAuth,
    Model,
    ModelListParams,
    ModelListResponse,
    ModelProviderCapabilitiesReadParams,
    ModelProviderCapabilitiesReadResponse,
    ModelProviderConfigWriteParams,
    ModelProviderConfigWriteResponse,
    ModelProviderListParams,
    ModelProviderListResponse,
    ModelProviderSummary,
    ModelServiceTier,
    ModelUpgradeInfo,
    NoneGatewayAuth,
    OpenaiProviderSettings,
    ReasoningEffortOption,
)


@serves("model/list")
async def list_models(context: RequestContext, params: ModelListParams) -> ModelListResponse:
    """List the models of one provider, the hidden ones only if they are asked for."""
    with config_failures():
        config = await context.services.configuration.read()
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
    listed = await context.services.model_lists.models(provider)
    models = shown_models(chosen, provider.name, listed)
    offered = [model for model in models if params.include_hidden or not model.hidden]
    data, next_cursor = page(offered, params.cursor, params.limit, "models")
    return ModelListResponse(data=data, next_cursor=next_cursor)


MODES = (
    CollaborationModeMask(name="Plan", mode="plan", reasoning_effort="medium"),
    CollaborationModeMask(name="Default", mode="default"),
)
"""Presets for `collaborationMode` (docs/tools.md, "Plan mode")."""


@serves("experimentalFeature/list")
async def list_features(
    context: RequestContext, params: ExperimentalFeatureListParams
) -> ExperimentalFeatureListResponse:
    """List the features, enabled as the configuration, or that of a loaded thread, has them."""
    with config_failures():
        if params.thread_id is None:
            config = await context.services.configuration.read()
        else:
            config = loaded_thread(context.services.sessions, params.thread_id).servers.config
        features = list(_shown_features(config.view().at("features")))
    data, next_cursor = page(features, params.cursor, params.limit, "feature flags")
    return ExperimentalFeatureListResponse(data=data, next_cursor=next_cursor)


@serves("experimentalFeature/enablement/set")
async def enable_features(
    context: RequestContext, params: ExperimentalFeatureEnablementSetParams
) -> ExperimentalFeatureEnablementSetResponse:
    """Switch features until the server ends; the settings of files win.

    Answers with those that are now what was asked for. Unknown names are left out.
    """
    names = {alias: feature.names[0] for feature in FEATURES for alias in feature.names}
    wanted = {names[name]: enabled for name, enabled in params.enablement.items() if name in names}
    with config_failures():
        await context.services.configuration.read()
        context.services.configuration.switch_features(wanted)
        config = await context.services.configuration.read()
    shown = {
        feature.name: feature.enabled for feature in _shown_features(config.view().at("features"))
    }
    context.after_answer(context.services.sessions.reload_servers, config)
    return ExperimentalFeatureEnablementSetResponse(
        enablement={name: on for name, on in wanted.items() if shown[name] == on}
    )


@serves("collaborationMode/list")
async def list_collaboration_modes(
    context: RequestContext, params: CollaborationModeListParams
) -> CollaborationModeListResponse:
    """List the modes that a thread can be put into."""
    return CollaborationModeListResponse(data=list(MODES))


def _shown_features(table: ConfigView) -> Iterator[ExperimentalFeature]:
    for feature in FEATURES:
        key = next((name for name in feature.names if name in table), feature.names[0])
        yield ExperimentalFeature(
            name=feature.names[0],
            stage=feature.stage,
            display_name=feature.display_name,
            description=feature.description,
            announcement=feature.announcement,
            enabled=_is_on(table, key, default=feature.default),
            default_enabled=feature.default,
        )


def _is_on(table: ConfigView, key: str, *, default: bool) -> bool:
    """Read a feature: a boolean, or a table of its settings, which is on unless it says not."""
    if isinstance(table.table.get(key), dict):
        return table.at(key).boolean("enabled", default=True)
    return table.boolean(key, default=default)


BUILT_IN = frozenset({OPENAI, OFFLINE})

MAX_NAME_CHARS = 128

MAX_URL_CHARS = 2048

MAX_PROVIDERS = 256

TABLE = "model_providers"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@serves("modelProvider/list")
async def list_providers(
    context: RequestContext, params: ModelProviderListParams
) -> ModelProviderListResponse:
    """List the providers by id, the built-in ones included."""
    with config_failures():
        config = await context.services.configuration.read()
        providers = read_providers(config)
        default = default_provider_id(config)
    return ModelProviderListResponse(
        data=[_shown_provider(providers[provider_id]) for provider_id in sorted(providers)],
        default_provider_id=default,
        can_change_default=not _is_overridden(config),
    )


@serves("modelProvider/capabilities/read")
async def read_provider_capabilities(
    context: RequestContext, params: ModelProviderCapabilitiesReadParams
) -> ModelProviderCapabilitiesReadResponse:
    """Return the default provider's capabilities beside text, as far as turns here use them."""
    with config_failures():
        config = await context.services.configuration.read()
        is_offline = default_provider_id(config) == OFFLINE
    return ModelProviderCapabilitiesReadResponse(image_generation=False, web_search=not is_offline)


@serves("modelProvider/config/write")
async def write_provider_config(
    context: RequestContext, params: ModelProviderConfigWriteParams
) -> ModelProviderConfigWriteResponse:
    """Add a provider to config.toml, or change one; threads that start later know it."""
    patch = params.settings
    if not isinstance(patch, CustomGatewayProviderSettingsPatch):
        raise config_refusal(f"This server does not reach providers of type `{patch.type}`.")
    _check(patch)
    written: list[Provider] = []

    def changed(edit: Any, found: Config) -> str:
        providers = read_providers(found)
        provider_id = patch.provider_id or _made(edit, found, patch) or _new_id(patch, providers)
        if provider_id in BUILT_IN:
            raise config_refusal("A custom provider or gateway cannot use a built-in provider ID.")
        if patch.provider_id is not None and provider_id not in providers:
            raise config_refusal("Unknown provider ID.", "configPathNotFound")
        text = _patched(edit, found.text, provider_id, patch)
        written.append(read_providers(Config(tomllib.loads(text)))[provider_id])
        return str(text)

    await change_config(context.services.config_file, changed)
    return ModelProviderConfigWriteResponse(provider=_shown_provider(written[-1]))


def _patched(
    edit: Any, text: str, provider_id: str, patch: CustomGatewayProviderSettingsPatch
) -> str:
    for key, value in _members(patch):
        path = (TABLE, provider_id, key)
        text = edit.remove(text, path) if value is None else edit.set_value(text, path, value)
    return text


def _made(edit: Any, found: Config, patch: CustomGatewayProviderSettingsPatch) -> str | None:
    """Return the provider that this request has made already, before it was cut off."""
    if not is_again():
        return None
    own = (each for each in read_providers(found) if each not in BUILT_IN)
    return next(
        (each for each in own if _patched(edit, found.text, each, patch) == found.text), None
    )


def _shown_provider(provider: Provider) -> ModelProviderSummary:
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


EFFORTS = {
    "none": "no thinking",
    "minimal": "as little thinking as possible",
    "low": "quick answers",
    "medium": "a balance of speed and depth",
    "high": "thorough thinking",
    "xhigh": "very thorough thinking",
    "max": "as much thinking as it takes",
}

ASSUMED_EFFORTS = ("minimal", "low", "medium", "high")
"""Reasoning efforts listed for a model whose own are not known."""

ASSUMED_EFFORT = "medium"

TIERS = {"priority": ModelServiceTier(id="priority", name="Fast", description="Answers sooner.")}

TIER_WORDS = {"priority": "fast"}
"""The older names of tiers."""


def shown_models(
    chosen: str, provider_name: str, listed: Sequence[ListedModel] | None
) -> list[Model]:
    """Return what can be chosen of a provider; `chosen` is the model of threads that name none.

    That are the models that the provider lists, those of the catalogue first; the catalogue, if it
    lists none. The chosen one is always there, and comes first if it is in neither.
    """
    if listed is None:
        models = [_known(entry, entry.name) for entry in ENTRIES if entry is not OFFLINE_ENTRY]
    else:
        models = sorted((_listed(model, provider_name) for model in listed), key=_rank)
    if all(model.model != chosen for model in models):
        entry = find_entry(chosen)
        if entry is None or entry.name != chosen:
            models.insert(0, _unknown(chosen, provider_name))
        else:
            models.insert(0, _known(entry, chosen))
    for model in models:
        if model.model == chosen:
            model.is_default, model.hidden = True, False
    return models


def _rank(model: Model) -> int:
    names = [entry.name for entry in ENTRIES]
    return names.index(model.model) if model.model in names else len(names)


def _listed(model: ListedModel, provider_name: str) -> Model:
    entry = find_entry(model.name)
    if entry is not None and entry.name == model.name:
        shown = _known(entry, model.name)
    else:
        shown = _unknown(model.name, provider_name)
    shown.hidden = shown.hidden or model.hidden
    if model.display_name is not None:
        shown.display_name = model.display_name
    if model.inputs is not None:
        shown.input_modalities = [kind for kind in (TEXT, IMAGE, "audio") if kind in model.inputs]
    return shown


def _known(entry: CatalogueEntry, name: str) -> Model:
    return Model(
        id=name,
        model=name,
        upgrade=entry.upgrade,
        upgrade_info=None if entry.upgrade is None else ModelUpgradeInfo(model=entry.upgrade),
        display_name=entry.display_name,
        description=entry.description,
        model_specialty=entry.specialty,
        hidden=entry.hidden,
        supported_reasoning_efforts=_options(entry.efforts),
        default_reasoning_effort=entry.default_effort or ASSUMED_EFFORT,
        input_modalities=list(entry.inputs),
        additional_speed_tiers=[TIER_WORDS[tier] for tier in entry.service_tiers],
        service_tiers=[TIERS[tier] for tier in entry.service_tiers],
        default_service_tier=entry.default_service_tier,
        is_default=False,
    )


def _unknown(name: str, provider_name: str) -> Model:
    return Model(
        id=name,
        model=name,
        display_name=name,
        description=f"A model of {provider_name}.",
        hidden=False,
        supported_reasoning_efforts=_options(ASSUMED_EFFORTS),
        default_reasoning_effort=ASSUMED_EFFORT,
        is_default=False,
    )


def _options(efforts: Sequence[str]) -> list[ReasoningEffortOption]:
    return [
        ReasoningEffortOption(reasoning_effort=effort, description=EFFORTS.get(effort, effort))
        for effort in efforts
    ]
