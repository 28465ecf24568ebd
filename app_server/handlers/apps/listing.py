"""One app/list at work: two sources at once, and what clients are sent before both are there.

Source: docs/apps.md, "For clients".
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import anyio
import anyio.to_thread

from app_server.apps.errors import AppsUnavailable
from app_server.apps.inventory.directory import accessible_apps, merge_apps, with_declared
from app_server.apps.upstream.backend import KnownDirectory
from app_server.apps.upstream.outbound import Backend
from app_server.handlers.apps.port import AppsPort, AppsSnapshot
from app_server.handlers.apps.terms import AppTerms
from protocol.integrations.apps import AppInfo

MAX_TOLD_CHARS = 900_000
"""Of a list that clients are sent; a longer one is not sent, but can be listed by pages."""


class ListFailed(Exception):
    """A source of the list failed; the text is what the client is shown."""


@dataclass(frozen=True, slots=True)
class _Accessible:
    """The apps that the account can use, as one snapshot had them."""

    apps: Sequence[AppInfo]
    is_live: bool


class AppListing:
    """The list as far as it is known, for one request."""

    def __init__(
        self,
        apps: AppsPort,
        terms: AppTerms,
        backend: Backend,
        send: Callable[[list[AppInfo]], None],
        *,
        refetch: bool,
    ) -> None:
        """`send` is called with every list that is worth it, with none twice in a row."""
        self._apps = apps
        self._terms = terms
        self._backend = backend
        self._send = send
        self._refetch = refetch
        self._known_accessible: _Accessible | None = None
        self._known_directory: KnownDirectory | None = None
        self._accessible: _Accessible | None = None
        self._directory: Sequence[AppInfo] | None = None
        self._merged: list[AppInfo] = []
        self._last_sent: list[AppInfo] | None = None
        self._merging = anyio.Lock()

    @property
    def may_be_stale(self) -> bool:
        """Whether the apps that can be used are those that the disk kept."""
        return self._accessible is not None and not self._accessible.is_live

    @property
    def is_outdated(self) -> bool:
        """Whether somebody else is signed in now, or nobody: then nothing is sent any more."""
        account = self._apps.account()
        return account is None or account.identity != self._backend.account.identity

    async def load(self) -> list[AppInfo]:
        """Ask both sources and return the list; what is known before is sent meanwhile.

        Raises:
            ListFailed: a source failed.
        """
        await self._look_around()
        failures: list[ListFailed] = []

        async def ask(source: Callable[[], Awaitable[None]], doing: str) -> None:
            try:
                await source()
            except AppsUnavailable as exc:
                # Raised here it would come out of the task group wrapped in a group.
                failures.append(ListFailed(f"failed to {doing}: {exc}"))
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, self._load_accessible, "load accessible apps")
            tasks.start_soon(ask, self._load_directory, "list apps")
        if failures:
            raise failures[0]
        return self._merged

    async def follow_up(self) -> None:
        """Wait until the apps that can be used are live ones, and send the list if that changes it.

        Raises:
            AppsUnavailable: they cannot be fetched now.
        """
        self._accessible = _taken(await self._apps.snapshot(self._terms.config))
        await self._update()

    async def _look_around(self) -> None:
        current = self._apps.current_snapshot(self._terms.config)
        self._known_accessible = None if current is None else _taken(current)
        self._known_directory = await self._apps.backend.known_directory(self._backend)
        if self._known_accessible is not None or self._known_directory is not None:
            await self._update()

    async def _load_accessible(self) -> None:
        config, known = self._terms.config, self._known_accessible
        if self._refetch:
            self._accessible = _taken(await self._apps.refresh_snapshot(config))
        elif known is None:
            self._accessible = _taken(await self._apps.snapshot_allowing_cached(config))
        elif known.is_live:
            self._accessible = _taken(await self._apps.snapshot(config))
        else:
            self._accessible = known
        await self._update()

    async def _load_directory(self) -> None:
        self._directory = await self._apps.backend.directory(self._backend, refetch=self._refetch)
        await self._update()

    @property
    def _is_complete(self) -> bool:
        return self._accessible is not None and self._directory is not None

    async def _update(self) -> None:
        """Send what is known now, if it is worth it and not what was sent last."""
        async with self._merging:
            self._merged = apps = await self._merge()
            worth_it = self._is_complete or any(app.is_accessible for app in apps)
            if not worth_it or apps == self._last_sent:
                return
            if await anyio.to_thread.run_sync(_fits, apps) and not self.is_outdated:
                self._last_sent = apps
                self._send(apps)

    async def _merge(self) -> list[AppInfo]:
        """Merge beside the event loop: a directory has thousands of apps."""
        known = self._known_directory
        stands_in = self._refetch and not self._is_complete
        if self._directory is not None and not (stands_in and known is not None):
            directory, is_loaded = self._directory, True
        elif known is not None:
            directory, is_loaded = known.apps, known.is_fresh
        else:
            directory, is_loaded = (), False
        accessible = self._accessible or (None if self._refetch else self._known_accessible)
        return await anyio.to_thread.run_sync(
            partial(
                merge_apps,
                with_declared(directory, self._terms.plugin_names),
                () if accessible is None else accessible.apps,
                directory_loaded=is_loaded,
                is_enabled=self._terms.policy.app_enabled,
                plugin_names=self._terms.plugin_names,
            )
        )


def size_of(app: AppInfo) -> int:
    """Return the characters that an app takes on the wire."""
    return len(app.model_dump_json())


def _fits(apps: Sequence[AppInfo]) -> bool:
    return all(size <= MAX_TOLD_CHARS for size in accumulate(map(size_of, apps)))


def _taken(snapshot: AppsSnapshot | None) -> _Accessible:
    """Take the apps out of a snapshot and give it back; no snapshot has none."""
    if snapshot is None:
        return _Accessible((), True)
    try:
        return _Accessible(accessible_apps(snapshot.apps), snapshot.is_live)
    finally:
        snapshot.release()
