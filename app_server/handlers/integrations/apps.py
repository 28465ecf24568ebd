"""app/list, app/read, app/installed: the apps that there are, their details, those with tools here.

A list has two sources, which are read at once; clients are sent what is there before both are.
Source: docs/apps.md, "For clients".
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import anyio
import anyio.to_thread

from app_server.apps.account import AppsUnavailable
from app_server.apps.inventory.directory import (
    accessible_apps,
    installed_apps,
    merge_apps,
    with_declared,
)
from app_server.apps.inventory.inventory import Connector
from app_server.apps.measured import READ, measured
from app_server.apps.upstream.backend import KnownDirectory
from app_server.apps.upstream.outbound import Backend
from app_server.handlers.integrations.app_terms import AppTerms, apps_failures, read_terms
from app_server.handlers.integrations.apps_port import AppsPort, AppsSnapshot
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.views.pages import cursor_number, fitting, page
from app_server.observability.log_context import start_apart
from app_server.rpc.hub import Hub
from protocol.integrations.apps import (
    AppInfo,
    AppListUpdatedNotification,
    AppsInstalledParams,
    AppsInstalledResponse,
    AppsListParams,
    AppsListResponse,
    AppsReadParams,
    AppsReadResponse,
)
from protocol.jsonrpc.errors import RpcError, internal_error, invalid_params

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
        """Whether the accessible apps come from the disk, not from a live fetch."""
        return self._accessible is not None and not self._accessible.is_live

    @property
    def is_outdated(self) -> bool:
        """Whether the account has changed or signed out: then no more is sent."""
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
        apps = await self._apps.get()
        self._accessible = _taken(None if apps is None else await apps.snapshot(self._terms.config))
        await self._update()

    async def _look_around(self) -> None:
        apps = self._apps.value
        current = None if apps is None else apps.current_snapshot(self._terms.config)
        self._known_accessible = None if current is None else _taken(current)
        self._known_directory = await self._apps.backend.known_directory(self._backend)
        if self._known_accessible is not None or self._known_directory is not None:
            await self._update()

    async def _load_accessible(self) -> None:
        config, known = self._terms.config, self._known_accessible
        if known is not None and not known.is_live and not self._refetch:
            self._accessible = known
        elif (apps := await self._apps.get()) is None:
            self._accessible = _taken(None)
        elif self._refetch:
            self._accessible = _taken(await apps.refresh_snapshot(config))
        elif known is None:
            self._accessible = _taken(await apps.snapshot_allowing_cached(config))
        else:
            self._accessible = _taken(await apps.snapshot(config))
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


logger = logging.getLogger(__name__)

LOAD_S = 90.0
"""For both sources of a list, and for what goes on after the answer."""

MAX_ATTEMPTS = 3
"""At one list, when the account changes meanwhile."""

MAX_FOLLOW_UPS = 16
"""Lists followed up after their answers at a time; one more is not followed up."""

MAX_PAGE_CHARS = 900_000
"""Characters of one page; a message to a client stays below 1 MiB."""


class FollowUps:
    """Bounds and runs what goes on after the answers of app/list."""

    def __init__(self, services: Services) -> None:
        self._tasks = services.tasks
        self._count = 0
        self.max_count = MAX_FOLLOW_UPS
        """Lists that are followed up at a time."""

    def begin(self, listing: AppListing) -> None:
        """Follow a list up beside later requests; not if `max_count` go on already."""
        if self._count < self.max_count:
            self._count += 1
            start_apart(self._tasks, self._run, listing)

    async def _run(self, listing: AppListing) -> None:
        try:
            with anyio.move_on_after(LOAD_S):
                await listing.follow_up()
        except AppsUnavailable as exc:
            logger.warning("the list of apps stays as it was kept: %s", exc)
        finally:
            self._count -= 1


@serves("app/list")
async def list_apps(context: RequestContext, params: AppsListParams) -> AppsListResponse:
    """Merge the directory with what the account can use; clients are notified as it comes."""
    apps = context.services.apps
    if apps is None:
        return AppsListResponse(data=[])
    for _ in range(MAX_ATTEMPTS):
        with apps_failures():
            terms = await read_terms(context.services, apps, params.thread_id)
        if terms.backend is None:
            return AppsListResponse(data=[])
        listing = AppListing(
            apps,
            terms,
            terms.backend,
            partial(_notify, context.services.hub),
            refetch=params.force_refetch,
        )
        answer = await _answer(listing, params)
        if not listing.is_outdated:
            break
    else:
        raise _unavailable("the account changes while its apps are listed")
    if listing.may_be_stale and not params.force_refetch:
        context.after_answer(context.services.part(FollowUps).begin, listing)
    return answer


async def _answer(listing: AppListing, params: AppsListParams) -> AppsListResponse:
    if params.cursor is not None:
        cursor_number(params.cursor)
    asked, following = page(await _load(listing), params.cursor, params.limit, "apps")
    data = await anyio.to_thread.run_sync(fitting, asked, MAX_PAGE_CHARS, size_of)
    if len(data) < len(asked):
        following = str(int(params.cursor or "0") + len(data))
    return AppsListResponse(data=data, next_cursor=following)


async def _load(listing: AppListing) -> list[AppInfo]:
    try:
        with anyio.fail_after(LOAD_S):
            return await listing.load()
    except ListFailed as exc:
        raise _unavailable(str(exc)) from exc
    except TimeoutError as exc:
        text = f"timed out waiting for app lists after {LOAD_S:g} seconds"
        raise _unavailable(text) from exc


def _notify(hub: Hub, apps: list[AppInfo]) -> None:
    hub.broadcast(AppListUpdatedNotification(data=apps))


def _unavailable(text: str) -> RpcError:
    return internal_error(text, "appsUnavailable")


MAX_IDS = 100
"""Of one app/read, repeated ones included."""


@serves("app/read")
async def read_apps(context: RequestContext, params: AppsReadParams) -> AppsReadResponse:
    """Return details of apps, in the order of the ids; unknown ids are named."""
    if len(params.app_ids) > MAX_IDS:
        rule = f"at most {MAX_IDS}"
        raise invalid_params(
            f"app/read accepts at most {MAX_IDS} appIds", field="appIds", rule=rule
        )
    ids = list(dict.fromkeys(params.app_ids))
    apps = context.services.apps
    if apps is None:
        return AppsReadResponse(apps=[], missing_app_ids=ids)
    with apps_failures():
        terms = await read_terms(context.services, apps, params.thread_id)
    if terms.backend is None:
        return AppsReadResponse(apps=[], missing_app_ids=ids)
    with measured(READ) as tags:
        with apps_failures("failed to read app metadata"):
            found = await apps.backend.details(terms.backend, ids, tools=params.include_tools)
        tags |= {"apps": str(len(ids)), "found": str(len(found))}
    return AppsReadResponse(
        apps=[
            found[id_].shown(
                tools=params.include_tools, plugin_names=terms.plugin_names.get(id_, ())
            )
            for id_ in ids
            if id_ in found
        ],
        missing_app_ids=[id_ for id_ in ids if id_ not in found],
    )


@serves("app/installed")
async def list_installed_apps(
    context: RequestContext, params: AppsInstalledParams
) -> AppsInstalledResponse:
    """List the apps that have tools here, as last fetched; only `forceRefresh` fetches."""
    apps = context.services.apps
    if apps is None:
        return AppsInstalledResponse(apps=[])
    with apps_failures():
        terms = await read_terms(context.services, apps, params.thread_id)
    allowed = terms.backend is not None
    if allowed and params.force_refresh:
        connectors = await _fetched(apps, terms)
    else:
        with apps_failures():
            service = await apps.get()
            connectors = () if service is None else await service.known_connectors(terms.config)
    return AppsInstalledResponse(apps=installed_apps(connectors, terms.policy, allowed=allowed))


async def _fetched(apps: AppsPort, terms: AppTerms) -> Sequence[Connector]:
    with apps_failures("failed to refresh apps"):
        service = await apps.get()
        snapshot = None if service is None else await service.refresh_snapshot(terms.config)
    if snapshot is None:
        return ()
    try:
        return tuple(snapshot.apps)
    finally:
        snapshot.release()
