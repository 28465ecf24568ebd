"""Serves the apps of the account, or those of the demo, for as long as a server lives."""

import logging

import anyio

from app_server.accounts.accounts import Accounts
from app_server.apps.account import FixedAccount
from app_server.apps.lazy import LazyApps
from app_server.config.effective import Configuration
from app_server.config.values import ConfigError
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.runtime.loader import RETRY_FIRST_S, RETRY_MOST_S, load_module
from app_server.server.apps_account import AppsAccount

logger = logging.getLogger(__name__)


async def serve_apps(
    apps: LazyApps,
    registry: ExtensionRegistry,
    accounts: Accounts,
    configuration: Configuration,
) -> None:
    """Serve apps until cancelled; without them the server goes on.

    What fails is tried again, after RETRY_FIRST_S and then twice as long each time up to
    RETRY_MOST_S.
    """
    wait_s = RETRY_FIRST_S
    while True:
        try:
            await _run_apps(apps, registry, accounts, configuration)
        except ConfigError as exc:
            # The check of the configuration says so, and it may be corrected.
            apps.give_up(exc)
        except Exception as exc:
            logger.exception("apps are not served")
            apps.give_up(exc)
        else:
            apps.give_up()
            return
        await anyio.sleep(wait_s)
        wait_s = min(2 * wait_s, RETRY_MOST_S)


async def _run_apps(
    apps: LazyApps,
    registry: ExtensionRegistry,
    accounts: Accounts,
    configuration: Configuration,
) -> None:
    """Serve the apps from when there is a reason to."""
    config = await configuration.read()
    is_demo = config.view().at("apps_service").boolean("demo", default=False)
    await accounts.load()
    if not is_demo:
        await apps.run(AppsAccount(accounts), registry)
        return
    # The demo is a client, above this package: it is named, not imported.
    hosted = await load_module("app_server.clients.demo.hosted.endpoint")
    endpoint = hosted.HostedEndpoint()
    async with endpoint.serve():
        account = FixedAccount(endpoint.token.get_secret_value(), endpoint.account_id)
        await apps.run(account, registry, endpoint.base_url)
