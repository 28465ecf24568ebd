"""Providers of models: `[model_providers.<id>]` of config.toml, and the built-in ones.

Source: docs/config.md, "Models".
"""

import os
from collections.abc import Iterable

from app_server.accounts.account_settings import chatgpt_base_url
from app_server.config.effective import OFFLINE, OPENAI, OPENAI_KEY, default_provider_id
from app_server.config.values import Config, ConfigView
from app_server.models.interface import WIRE_APIS, Provider

OPENAI_BASE_URL = "https://api.openai.com/v1"

OFFLINE_MODEL = "offline"
DEFAULT_MODEL = "gpt-6.1-sol"

MAX_RETRIES = 100


class ProviderNotFound(Exception):
    """No provider has this id."""


def credential_variables(providers: Iterable[Provider]) -> frozenset[str]:
    """Return the names of variables that hold what requests to models are authorised with."""
    names: set[str] = set()
    for provider in providers:
        names.update(filter(None, (provider.env_key, provider.spare_env_key)))
        names.update(provider.env_http_headers.values())
    return frozenset(names)


def read_providers(config: Config) -> dict[str, Provider]:
    """Read the providers by id, the built-in ones included.

    Raises:
        ConfigError: a value has the wrong type.
    """
    openai_url = config.view().string("openai_base_url") or os.environ.get("OPENAI_BASE_URL")
    chatgpt_url = f"{chatgpt_base_url(config)}/codex"
    providers = {
        OPENAI: Provider(
            OPENAI,
            "OpenAI",
            openai_url or OPENAI_BASE_URL,
            requires_openai_auth=True,
            chatgpt_url=None if openai_url else chatgpt_url,
            spare_env_key=OPENAI_KEY,
        ),
    }
    for provider_id, view in config.view().at("model_providers").tables():
        spare_url = openai_url if provider_id == OPENAI else None
        providers[provider_id] = _read_provider(provider_id, view, spare_url, chatgpt_url)
    providers[OFFLINE] = Provider(OFFLINE, "Offline stand-in", None)
    return providers


def chosen_provider(config: Config) -> Provider:
    """Return the provider of threads that name none.

    Raises:
        ConfigError: there is none of the id that is set; or a value has the wrong type.
    """
    chosen, providers = default_provider_id(config), read_providers(config)
    if chosen not in providers:
        known = ", ".join(sorted(providers))
        text = f"there is no provider `{chosen}`; there are {known}"
        raise config.error(("model_provider",), text)
    return providers[chosen]


def spare_key_is_set(provider: Provider) -> bool:
    """Whether the environment has the key with which a provider works without a sign-in."""
    return provider.spare_env_key is not None and bool(os.environ.get(provider.spare_env_key))


def default_model(config: Config, provider_id: str) -> str:
    """Choose the model of threads that name none."""
    chosen = config.view().string("model")
    return chosen or (OFFLINE_MODEL if provider_id == OFFLINE else DEFAULT_MODEL)


def _read_provider(
    provider_id: str, view: ConfigView, spare_url: str | None, chatgpt_url: str
) -> Provider:
    idle_ms = view.integer("stream_idle_timeout_ms")
    base_url = view.string("base_url") or spare_url
    return Provider(
        id=provider_id,
        name=view.string("name") or provider_id,
        base_url=base_url or OPENAI_BASE_URL,
        wire_api="chat" if view.choice("wire_api", WIRE_APIS) == "chat" else "responses",
        env_key=view.string("env_key"),
        bearer_token=view.string("experimental_bearer_token"),
        http_headers=view.string_map("http_headers") or {},
        env_http_headers=view.string_map("env_http_headers") or {},
        query_params=view.string_map("query_params") or {},
        request_max_retries=_retries(view, "request_max_retries", 4),
        stream_max_retries=_retries(view, "stream_max_retries", 5),
        stream_idle_timeout_s=300.0 if idle_ms is None else idle_ms / 1000,
        requires_openai_auth=view.boolean("requires_openai_auth", default=False),
        chatgpt_url=None if base_url else chatgpt_url,
    )


def _retries(view: ConfigView, key: str, default: int) -> int:
    value = view.integer(key)
    return default if value is None else min(value, MAX_RETRIES)
