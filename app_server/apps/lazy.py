"""Apps service, loaded with the first account that has apps. Imports none of the rest.

The rest of this package brings the MCP SDK and a web server; most processes never need them.
Source: docs/apps.md, "The service".
"""

import gc
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from app_server.apps.account import AppsUnavailable, AuthPort, AuthState, PluginPort
from app_server.apps.settings import AppsSettings
from app_server.config.values import ConfigError
from app_server.extensions.contract.registration import ContributionContext
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.runtime.exception_groups import only_member
from app_server.runtime.loader import RETRY_FIRST_S, RETRY_MOST_S, Lazy, LoadFailed, load

if TYPE_CHECKING:
    from app_server.apps.files.environments import Machines
    from app_server.apps.service import AppsService
    from app_server.apps.upstream.backend import AppsBackend
    from app_server.apps.upstream.outbound import Account

logger = logging.getLogger(__name__)

LOAD_S = 30.0
"""For the rest of this package to be imported, when a request needs it."""


class LazyApps:
    """The service, started when there is a reason to; a LateContributor and an InstallCheck."""

    id = "codex_apps"

    def __init__(self, home: Path, machines: "Machines", plugins: PluginPort) -> None:
        """`machines` are where files of calls are read."""
        self._home = home
        self._plugins = plugins
        self._machines = machines
        self._known = anyio.Event()
        self._wanted = anyio.Event()
        self._service_type = Lazy("the apps", _load)
        self._attempted = anyio.Event()
        """Set once they are served, or `_failure` says why not."""
        self._failure: Exception | None = None
        self._is_asked = anyio.Event()
        """Set when a request needs them that could not be served before."""
        self._auth: AuthPort | None = None
        self._backend: AppsBackend | None = None
        self._service: AppsService | None = None
        self.base_url: str | None = None
        """Stands over the configured address; None without."""

    async def run(
        self, auth: AuthPort, registry: ExtensionRegistry, base_url: str | None = None
    ) -> None:
        """Wait for the first reason, then serve until cancelled.

        While the service runs it is in `registry`, with its part in turns.

        `base_url` stands over the configured address. What cannot be loaded or served is tried
        again: with the next request that needs it, and by itself after RETRY_FIRST_S, then twice as
        long each time up to RETRY_MOST_S.
        """
        self._auth, self.base_url, self._failure = auth, base_url, None
        self._known.set()
        unsubscribe = auth.subscribe(self._signed_in_or_out)
        self._signed_in_or_out(auth.current())
        try:
            await self._wanted.wait()
        finally:
            unsubscribe()
        wait_s = RETRY_FIRST_S
        while True:
            service_type = await self._service_type.get_at_last()
            try:
                await self._serve(
                    service_type(
                        self._home, auth, self._plugins, self._machines, base_url=base_url
                    ),
                    registry,
                )
            except Exception as exc:
                logger.exception("the apps cannot be served")
                self._failure = exc
                self._attempted.set()
            with anyio.move_on_after(wait_s):
                await self._is_asked.wait()
            self._is_asked = anyio.Event()
            wait_s = min(2 * wait_s, RETRY_MOST_S)

    async def _serve(self, service: "AppsService", registry: ExtensionRegistry) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(service.run)
                try:
                    with registry.joined(service, service):
                        self._service, self._failure = service, None
                        self._attempted.set()
                        await anyio.sleep_forever()
                finally:
                    self._service = None
                    service.begin_shutdown()
        finally:
            self._service = None

    @property
    def _is_signed_in(self) -> bool:
        who = None if self._auth is None else self._auth.current().credentials
        return who is not None and who.is_chatgpt

    def _signed_in_or_out(self, state: AuthState) -> None:
        if state.credentials is not None and state.credentials.is_chatgpt:
            self._wanted.set()

    # For requests of clients, see handlers/integrations/apps_port.py.

    async def settled(self) -> None:
        """Wait until it is known whose apps they are, for at most LOAD_S.

        Raises:
            AppsUnavailable: it is not known by then, or cannot be found out now.
        """
        if self._known.is_set() and self._auth is not None and self._auth.is_recent:
            return
        with anyio.move_on_after(LOAD_S):
            await self._known.wait()
            if self._auth is not None:
                await self._auth.look()
            elif self._failure is not None:
                raise _unavailable(self._failure) from self._failure
            return
        raise AppsUnavailable(f"it is not known after {LOAD_S:g} s whose apps they are")

    def give_up(self, failure: Exception | None = None) -> None:
        """Release all waiters: there are no apps, or `failure` rules them out before `run`."""
        self._failure = failure
        self._known.set()

    @property
    def value(self) -> "AppsService | None":
        """The service if it runs now; never waits."""
        return self._service

    async def get(self) -> "AppsService | None":
        """Start the service if needed, and return it; None without an account that has apps.

        Raises:
            AppsUnavailable: they are not served within LOAD_S, or cannot be now.
        """
        await self.settled()
        if not self._is_signed_in:
            return None
        self._wanted.set()
        with anyio.move_on_after(LOAD_S):
            try:
                await self._service_type.get()
            except LoadFailed as exc:
                raise _unavailable(exc) from exc
            if self._failure is not None:
                self._failure, self._attempted = None, anyio.Event()
                self._is_asked.set()
            await self._attempted.wait()
        if self._service is None:
            if self._failure is not None:
                raise _unavailable(self._failure) from self._failure
            raise AppsUnavailable(f"the apps are not loaded after {LOAD_S:g} s")
        return self._service

    @property
    def backend(self) -> "AppsBackend":
        """Return the client of ChatGPT's backend."""
        if self._backend is None:
            # Whoever asks has imported it: nothing is read from disk here.
            from app_server.apps.upstream.backend import AppsBackend

            self._backend = AppsBackend(self._home)
        return self._backend

    def account(self) -> "Account | None":
        """Return the account that is signed in; None unless it is one of ChatGPT."""
        if self._auth is None or not self._is_signed_in:
            return None
        # As above.
        from app_server.apps.upstream.outbound import account_of

        return account_of(self._auth)

    def plugin_names(
        self, config: Mapping[str, Any], thread_id: str | None = None
    ) -> Mapping[str, Sequence[str]]:
        """Return the plugins in force that declare a connector, by its id."""
        return self._plugins.app_names(config, thread_id)

    async def prepare_mcp_servers(self, config: Mapping[str, Any]) -> None:
        """Have servers to register, if there are any for these settings and they can be had."""
        try:
            if (apps := await self.get()) is not None:
                await apps.prepare_mcp_servers(config)
        except (AppsUnavailable, ConfigError) as exc:
            # Other servers are there without them.
            logger.warning("there are no MCP servers of apps: %s", exc)

    # For threads.

    async def join(self, context: ContributionContext) -> None:
        """Wait until the service runs, if these settings have servers of apps; see LateContributor.

        Raises:
            AppsUnavailable: see `get`.
        """
        try:
            serves = AppsSettings.read(context.config).serves_mcp
        except ConfigError:
            # `contribute` says so.
            return
        if serves:
            await self.get()

    async def verify_install(
        self, app_ids: Sequence[str], context: ContributionContext
    ) -> bool | None:
        """Look for the apps that a plugin declares, and fetch anew if one is missing.

        None where these settings have no apps; see InstallCheck.
        """
        if not AppsSettings.read(context.config).enabled:
            return None
        try:
            if (apps := await self.get()) is None:
                return False
            for look in (apps.snapshot_allowing_cached, apps.refresh_snapshot):
                snapshot = await look(context.config)
                if snapshot is None:
                    return False
                with snapshot:
                    if not snapshot.missing(app_ids):
                        return True
        except AppsUnavailable as exc:
            logger.warning("whether the apps of a plugin are there is not known: %s", exc)
        return False


def _unavailable(failure: Exception) -> AppsUnavailable:
    return AppsUnavailable(f"the apps cannot be served now: {only_member(failure)}")


async def _load() -> "type[AppsService]":
    return await load(_import)


def _import() -> "type[AppsService]":
    from app_server.apps.service import AppsService

    # What was imported stays: collections that a large inventory sets off need not look at it, each
    # time with the event loop standing still. A full one now would do that itself.
    gc.collect(1)
    gc.freeze()
    return AppsService
