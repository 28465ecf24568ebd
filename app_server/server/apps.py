"""Serves the apps of the account, or those of the demo, for as long as a server lives.

Source: docs/apps.md, "Accounts".
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from app_server.accounts.account_errors import AccountError
from app_server.accounts.accounts import Accounts
from app_server.accounts.credentials import AuthState, Credentials
from app_server.apps.account import FixedAccount
from app_server.apps.lazy import LazyApps
from app_server.config.effective import Configuration
from app_server.config.values import ConfigError
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.runtime.loader import RETRY_FIRST_S, RETRY_MOST_S, load_module

logger = logging.getLogger(__name__)

PAUSE_S = 60.0
"""Seconds for which a renewed token is not renewed again when it is refused as well."""


async def serve_apps(
    apps: LazyApps,
    registry: ExtensionRegistry,
    accounts: Accounts,
    configuration: Configuration,
    *,
    retry_first_s: float = RETRY_FIRST_S,
) -> None:
    """Serve apps until cancelled; without them the server goes on.

    What fails is tried again, after `retry_first_s` and then twice as long each time up to
    RETRY_MOST_S.
    """
    wait_s = retry_first_s
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


@dataclass(frozen=True, slots=True)
class SignIn:
    """Credentials, and a number that grows with every sign-in and sign-out."""

    credentials: Credentials | None
    revision: int


class AppsAccount:
    """The AuthPort (app_server/apps/account.py) of the account that is signed in."""

    def __init__(self, accounts: Accounts, now_s: Callable[[], float] = anyio.current_time) -> None:
        self._accounts = accounts
        self._now_s = now_s
        self._replaced: str | None = None
        self._pause_ends_s = 0.0

    def current(self) -> SignIn:
        """Return what holds now; never waits."""
        return _sign_in(self._accounts.current())

    def subscribe(self, listener: Callable[[SignIn], None], /) -> Callable[[], None]:
        """Call a function at every change; returns what ends that."""
        return self._accounts.subscribe(lambda state: listener(_sign_in(state)))

    @property
    def is_recent(self) -> bool:
        """Whether `look` would return what is known, and look at nothing."""
        return self._accounts.is_recent

    async def look(self) -> SignIn:
        """Return what holds, also when another process has changed it."""
        return _sign_in(await self._accounts.look())

    async def fresh(self) -> SignIn:
        """Return the credentials, after renewing a token near its end if that can be done."""
        return _sign_in(await self._accounts.fresh())

    async def renewed(self, refused: str, /) -> SignIn:
        """Have a token that a server refused renewed, unless that was done; see AuthPort.

        What came for a refused token is left alone for PAUSE_S: a server that refuses every token
        must not have the issuer asked with every request.
        """
        worn = self._accounts.current().credentials
        is_paused = refused == self._replaced and self._now_s() < self._pause_ends_s
        if worn is None or worn.token != refused or is_paused:
            return self.current()
        try:
            found = (await self._accounts.replace(worn)).credentials
        except AccountError as exc:
            logger.warning("the token was not renewed: %s", exc)
            found = worn
        self._replaced = None if found is None else found.token
        self._pause_ends_s = self._now_s() + PAUSE_S
        return self.current()


def _sign_in(state: AuthState) -> SignIn:
    return SignIn(state.credentials, state.sign_in)
