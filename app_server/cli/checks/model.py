"""Whether the model provider of new threads answers, and takes the credentials."""

import anyio

from app_server.accounts.accounts import Accounts
from app_server.accounts.settings import AccountSettings, read_account_settings
from app_server.cli.checks.machine import Machine
from app_server.config.default_provider import OFFLINE
from app_server.config.values import ConfigError
from app_server.models.catalogue.providers import chosen_provider
from app_server.models.client import ModelClient
from app_server.models.interface import ModelFailure
from app_server.models.provider import Provider
from app_server.threads.repair import Check

CLOSE_S = 2.0

UNAUTHORIZED = (401, 403)
WITHOUT_LIST = (404, 405, 501)
"""Answers of a provider that is there and serves no list of models."""
FIRST_SERVER_ERROR = 500


async def check_model(machine: Machine) -> Check:
    """Ask the provider for its models, as the server does; no model is used."""
    check = Check("model")
    as_written = machine.configuration()

    async def account_settings() -> AccountSettings:
        return read_account_settings(await as_written.read())

    accounts = Accounts(machine.home, account_settings, lambda: round(machine.now_s() * 1000))

    async def is_signed_in() -> bool:
        return (await accounts.look()).credentials is not None

    try:
        config = await machine.configuration(is_signed_in).read()
        provider = chosen_provider(config)
    except ConfigError as exc:
        check.add("error", f"unknown: {str(exc).strip()}")
        check.advise("correct that setting, then look again")
        return check
    if provider.id == OFFLINE:
        check.message = "the offline model answers: no provider is configured, nobody is signed in"
        return check
    check.message = f"provider `{provider.id}`"
    client = ModelClient(_no_offline_model, accounts)
    try:
        body = await client.list_models(provider)
    except ModelFailure as exc:
        _judge(exc, provider, check)
    else:
        check.message += f": answers ({len(body)} bytes of models)"
    finally:
        with anyio.move_on_after(CLOSE_S, shield=True):
            await client.aclose()
    return check


def _judge(failure: ModelFailure, provider: Provider, check: Check) -> None:
    status = failure.http_status
    variable = provider.env_key or provider.spare_env_key
    key = f"the key in {variable}" if variable else "the credentials"
    if status in WITHOUT_LIST:
        check.message += ": answers, and has no list of models"
        return
    check.add("error", failure.message)
    if status in UNAUTHORIZED:
        check.advise(f"the provider refuses {key}: renew it, or sign in again")
    elif failure.message.startswith("Missing environment variable"):
        check.advise(f"set {variable} to the key of this provider before the server is started")
    elif status is not None and status >= FIRST_SERVER_ERROR:
        check.advise("the provider has trouble of its own: try again later")
    elif status is not None:
        check.advise(f"look at base_url of [model_providers.{provider.id}] in config.toml")
    else:
        check.advise(
            f"look at base_url of [model_providers.{provider.id}] in config.toml, at the network "
            "and at the proxy (HTTPS_PROXY, NO_PROXY)"
        )


async def _no_offline_model() -> str:
    raise AssertionError
