"""The apps of one account at one endpoint: fetched, kept on disk, served, and fetched again.

At most one fetch runs at a time; whoever wants one that has begun joins it. What was published
stays until something newer is: a fetch that fails takes nothing away.
Source: docs/apps.md, "The service", "Discovery".
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVarTuple
from urllib.parse import urlsplit

import anyio
import anyio.abc

from app_server.apps.account import AppsUnavailable, AuthPort, AuthState, Signed
from app_server.apps.files.environments import EnvironmentFiles, Machines
from app_server.apps.files.files import FileSupport
from app_server.apps.files.upload import Uploads, UploadTarget
from app_server.apps.inventory.cache import CacheIdentity, InventoryCache
from app_server.apps.inventory.fetch import FetchFailed
from app_server.apps.inventory.inventory import Connector, InconsistentInventory
from app_server.apps.measured import CACHE_WRITE, FETCH, LIST, measured
from app_server.apps.presentation import ApprovalTemplates
from app_server.apps.published import NoPort, Published, Publishing
from app_server.apps.routes.generation import Generation, GenerationPorts
from app_server.apps.settings import AppsSettings
from app_server.apps.upstream.bearer import SIGN_IN_CHANGED, Bearer
from app_server.apps.upstream.endpoint import UpstreamTarget, debug_token, upstream_target
from app_server.apps.upstream.sessions import UpstreamPool
from app_server.observability.log_context import start_apart
from protocol.model import JsonObject

logger = logging.getLogger(__name__)

Arguments = TypeVarTuple("Arguments")

FRESH_S = 3600.0
"""Seconds until an inventory is stale; it is served on while it is fetched again."""

COOLDOWNS_S: Sequence[float] = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""After the second failure in a row, the third, and so on; the last one for all that follow."""


@dataclass(frozen=True, slots=True)
class Timer:
    """The time of the event loop, in seconds, and waits in it; tests have their own."""

    now_s: Callable[[], float] = anyio.current_time
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep


@dataclass(frozen=True, slots=True)
class ConnectionPorts:
    """The resources that all connections share."""

    tasks: anyio.abc.TaskGroup
    """Owns generations, pools and fetches."""
    network: anyio.Lock
    """Held by the one that fetches."""
    templates: ApprovalTemplates
    published: Callable[[], None]
    """Called when there is something new to contribute."""
    served: set[Generation]
    """All generations that have not ended, those too that others have replaced."""
    timer: Timer


@dataclass(slots=True)
class _Attempt:
    """One fetch, or one start from the cache, with its waiters."""

    began_s: float
    live: bool = False
    """Whether the inventory on disk is unusable."""
    tried: anyio.Event = field(default_factory=anyio.Event)
    """Set once it has succeeded, or failed for the first time."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    failure: AppsUnavailable | None = None


class Connection:
    """The apps of one account, from the first attempt to the sign-out."""

    def __init__(
        self,
        target: UpstreamTarget,
        guard: Signed,
        cache: InventoryCache | None,
        files: FileSupport | None,
        ports: ConnectionPorts,
    ) -> None:
        """Prepare; the first request is made by `start`.

        Without `cache` nothing is kept on disk; without `files` no argument carries one.
        """
        parts = urlsplit(target.url)
        self.origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        """Of the endpoint."""
        self._is_cooling = False
        """Whether it is too early for another attempt in the background."""
        self.is_live = False
        """Whether the published inventory was fetched since this began, and not read from disk."""
        self.pool = UpstreamPool(target)
        start_apart(ports.tasks, self.pool.run)
        means = GenerationPorts(self.pool, guard, files, self.refresh)
        self.publishing = Publishing(ports.tasks, means, ports.templates, ports.served)
        self._guard = guard
        self._cache = cache
        self._ports = ports
        self._failures = 0
        self._fetched_s = float("-inf")
        self._attempt: _Attempt | None = None
        self._cooldowns = 0
        self._has_looked = False
        self._scopes: set[anyio.CancelScope] = set()
        self._over = False
        self._is_kept = False
        """Whether the published inventory is on disk."""

    @property
    def published(self) -> Published | None:
        """The published inventory; None before the first one and after the end."""
        return self.publishing.current

    @property
    def is_stale(self) -> bool:
        """Whether the published inventory is due to be fetched again."""
        return self._ports.timer.now_s() - self._fetched_s >= FRESH_S

    def start(self) -> None:
        """Begin an attempt in the background, unless one runs or it is too early; never waits."""
        if not self._is_cooling:
            self._begin()

    def _begin(self, *, live: bool = False) -> _Attempt:
        if self._attempt is None:
            attempt = self._attempt = _Attempt(self._ports.timer.now_s(), live)
            self._is_cooling = False
            start_apart(self._ports.tasks, self._while_wanted, self._run, attempt)
        return self._attempt

    async def _while_wanted(
        self, work: Callable[[*Arguments], Awaitable[None]], *arguments: *Arguments
    ) -> None:
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self._over:
                scope.cancel()
            try:
                await work(*arguments)
            finally:
                self._scopes.discard(scope)

    async def looked(self) -> None:
        """Wait until the first attempt has succeeded, or failed once; it begins now unless it has.

        What is tried again after a failure is not waited for.
        """
        if self._is_unlooked:
            await self._begin().tried.wait()

    @property
    def looking_since_s(self) -> float | None:
        """Start of the first attempt in seconds of the timer; None once it was `looked`."""
        return self._attempt.began_s if self._is_unlooked and self._attempt is not None else None

    @property
    def _is_unlooked(self) -> bool:
        return self.published is None and not self._has_looked

    async def first(self) -> Published:
        """Return the published inventory, waiting for the first attempt if there is none.

        Raises:
            AppsUnavailable: the attempt failed.
        """
        return self.published or await self._joined(self._begin())

    async def fresh(self) -> Published:
        """Return the published inventory, fetched lately; after a failure the former one.

        Raises:
            AppsUnavailable: nothing is published, and the attempt failed.
        """
        await self.first()
        if self.is_stale:
            try:
                await self._joined(self._begin())
            except AppsUnavailable as exc:
                logger.warning("the apps cannot be fetched again: %s", exc)
        return self._require()

    async def refresh(self) -> Published:
        """Fetch, in any case: one that runs already is waited for first.

        Those who wait meanwhile share the fetch that comes next.

        Raises:
            AppsUnavailable: it failed; what is published stays.
        """
        before = self._attempt
        while (now := self._attempt) is not None and (now is before or not now.live):
            await now.ended.wait()
        return await self._joined(self._begin(live=True))

    async def known(self) -> Sequence[Connector]:
        """Return the connectors with a real tool, as published or cached; sends no request."""
        if self.published is not None:
            return self.published.generation.inventory.installed
        return () if self._cache is None else await self._cache.installed()

    async def _joined(self, attempt: _Attempt) -> Published:
        await attempt.ended.wait()
        if attempt.failure is not None:
            raise attempt.failure
        return self._require()

    def _require(self) -> Published:
        if self.published is None:
            raise AppsUnavailable(SIGN_IN_CHANGED)
        return self.published

    async def _run(self, attempt: _Attempt) -> None:
        is_kept = False
        try:
            with measured(LIST, cache="miss") as tags:
                if self.published is None and not attempt.live:
                    is_kept = await self._publish_cached()
                if is_kept:
                    tags["cache"] = "hit"
                else:
                    await self._fetch_twice(attempt)
        except AppsUnavailable as exc:
            attempt.failure = exc
            self._cool_down()
        except Exception:
            logger.exception("the apps could not be served")
            attempt.failure = AppsUnavailable("they could not be served")
            self._cool_down()
        finally:
            self._attempt = None
            self._note_tried(attempt)
            attempt.ended.set()
        if is_kept:
            self._begin()

    async def _publish_cached(self) -> bool:
        if self._cache is None or (tools := await self._cache.read()) is None:
            return False
        try:
            await self._publish(tools)
        except InconsistentInventory:
            logger.warning("what is kept of the apps contradicts itself; it is fetched anew")
            return False
        return True

    def _note_tried(self, attempt: _Attempt) -> None:
        self._has_looked = True
        attempt.tried.set()

    async def _fetch_twice(self, attempt: _Attempt) -> None:
        try:
            await self._fetch()
        except AppsUnavailable:
            if self._failures > 1:
                raise
            self._note_tried(attempt)
            await self._fetch()

    async def _fetch(self) -> None:
        try:
            async with self._ports.network:
                with measured(FETCH):
                    tools = await self.pool.fetch_tools()
            if not self._guard.holds():
                raise AppsUnavailable(SIGN_IN_CHANGED)
            is_other = await self._publish(tools)
        except (FetchFailed, InconsistentInventory) as exc:
            self._failures += 1
            raise AppsUnavailable(str(exc)) from exc
        self._failures = 0
        self.is_live = True
        self._fetched_s = self._ports.timer.now_s()
        if self._cache is not None and (is_other or not self._is_kept):
            with measured(CACHE_WRITE):
                self._is_kept = await self._cache.write(tools)

    async def _publish(self, tools: Sequence[JsonObject]) -> bool:
        before = self.published
        try:
            is_other = await self.publishing.publish(tools)
        except NoPort:
            self._failures += 1
            raise
        if self.published is not None and self.published is not before:
            self._ports.published()
        return is_other

    def _cool_down(self) -> None:
        wait_s = COOLDOWNS_S[min(max(self._failures, 2), len(COOLDOWNS_S) + 1) - 2]
        self._is_cooling = True
        self._cooldowns += 1
        number = self._cooldowns
        self._ports.tasks.start_soon(self._while_wanted, self._wait_out, wait_s, number)

    async def _wait_out(self, wait_s: float, number: int) -> None:
        await self._ports.timer.sleep(wait_s)
        if self._is_cooling and number == self._cooldowns:
            self._is_cooling = False
            self._ports.published()

    def end(self) -> None:
        """Release everything; a generation lives on while it is leased."""
        self._over = True
        for scope in self._scopes:
            scope.cancel()
        self.publishing.end()


MAX_CONNECTIONS = 8
"""Of one sign-in, for settings that differ; the one that was longest without use makes room."""


@dataclass(frozen=True, slots=True)
class ConnectionKey:
    """The settings and the account of a connection; another key opens another connection."""

    url: str
    sku: str | None
    elicitation: bool
    identity: CacheIdentity
    revision: int
    """Of the credentials."""


class AppsConnections:
    """Connections by their key, the one that was used last at the end."""

    def __init__(
        self,
        home: Path,
        auth: AuthPort,
        machines: Machines | None,
        base_url: str | None,
        environ: Mapping[str, str],
    ) -> None:
        """Make none yet; see AppsService.

        Raises:
            BadDebugToken: the variable with the debug token makes no sense.
        """
        self._home = home
        self._auth = auth
        self._files = None if machines is None else EnvironmentFiles(machines)
        self._base_url = base_url
        self._debug_token = debug_token(environ)
        self._by_key: OrderedDict[ConnectionKey, Connection] = OrderedDict()

    def find(
        self, settings: AppsSettings, ports: ConnectionPorts, *, make: bool
    ) -> Connection | None:
        """Find or make the connection for settings and the present sign-in; None without apps."""
        state = self._auth.current()
        who = state.credentials
        if not settings.enabled or who is None or not who.is_chatgpt:
            return None
        base_url = self._base_url or settings.base_url
        target = upstream_target(
            base_url,
            self._debug_token or Bearer(self._auth, state.revision),
            account_id=who.account_id,
            sku=settings.sku,
            elicitation=settings.auth_elicitation,
        )
        identity = CacheIdentity(who.account_id, who.chatgpt_user_id, who.is_workspace)
        key = ConnectionKey(
            target.url, settings.sku, settings.auth_elicitation, identity, state.revision
        )
        if key in self._by_key:
            self._by_key.move_to_end(key)
            return self._by_key[key]
        if not make:
            return None
        cache = InventoryCache(self._home, identity, target.url, settings.sku)
        files: FileSupport | None = None
        if self._files is not None:
            store = UploadTarget(base_url.rstrip("/"), target.headers, target.tokens)
            files = FileSupport(self._files, Uploads(store))
        connection = self._by_key[key] = Connection(
            target,
            Signed(self._auth, state.revision),
            cache if self._debug_token is None else None,
            files,
            ports,
        )
        if len(self._by_key) > MAX_CONNECTIONS:
            self._by_key.popitem(last=False)[1].end()
        return connection

    def has(self, connection: Connection) -> bool:
        """Whether a connection is still in use."""
        return connection in self._by_key.values()

    def signed_in_or_out(self, state: AuthState) -> None:
        """End the connections of sign-ins before this one."""
        for key in [key for key in self._by_key if key.revision < state.revision]:
            self._by_key.pop(key).end()

    def end_all(self) -> None:
        """End every connection."""
        while self._by_key:
            self._by_key.popitem()[1].end()
