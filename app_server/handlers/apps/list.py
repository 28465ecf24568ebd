"""app/list and app/list/updated: the apps that exist, those that the account can use first."""

import logging

import anyio
import anyio.to_thread

from app_server.apps.errors import AppsUnavailable
from app_server.handlers.apps.listing import AppListing, ListFailed, size_of
from app_server.handlers.apps.terms import apps_failures, read_terms
from app_server.handlers.services import Services
from app_server.handlers.views.pages import cursor_number, fitting, page
from app_server.observability.log_context import start_apart
from app_server.rpc.context import RequestContext, Routes
from protocol.integrations.apps import (
    AppInfo,
    AppListUpdatedNotification,
    AppsListParams,
    AppsListResponse,
)
from protocol.jsonrpc.errors import RpcError, internal_error

logger = logging.getLogger(__name__)

LOAD_S = 90.0
"""For both sources of a list, and for what goes on after the answer."""

MAX_ATTEMPTS = 3
"""At one list, when the account changes meanwhile."""

MAX_FOLLOW_UPS = 16
"""That go on after their answers at a time; a list beyond that is not followed up."""

MAX_PAGE_CHARS = 900_000
"""Characters of one page; a message to a client stays below 1 MiB."""


class AppListHandlers:
    """The method app/list."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._follow_ups = 0
        self.routes: Routes = {"app/list": self.list_apps}

    async def list_apps(self, context: RequestContext, params: AppsListParams) -> AppsListResponse:
        """Merge the directory with what the account can use; clients are notified as it comes."""
        apps = self._services.apps
        if apps is None:
            return AppsListResponse(data=[])
        for _ in range(MAX_ATTEMPTS):
            with apps_failures():
                terms = await read_terms(self._services, apps, params.thread_id)
            if terms.backend is None:
                return AppsListResponse(data=[])
            listing = AppListing(
                apps, terms, terms.backend, self._notify, refetch=params.force_refetch
            )
            answer = await self._answer(listing, params)
            if not listing.is_outdated:
                break
        else:
            raise _unavailable("the account changes while its apps are listed")
        if listing.may_be_stale and not params.force_refetch:
            context.after_answer(self._begin_follow_up, listing)
        return answer

    async def _answer(self, listing: AppListing, params: AppsListParams) -> AppsListResponse:
        if params.cursor is not None:
            cursor_number(params.cursor)
        asked, following = page(await self._load(listing), params.cursor, params.limit, "apps")
        data = await anyio.to_thread.run_sync(fitting, asked, MAX_PAGE_CHARS, size_of)
        if len(data) < len(asked):
            following = str(int(params.cursor or "0") + len(data))
        return AppsListResponse(data=data, next_cursor=following)

    async def _load(self, listing: AppListing) -> list[AppInfo]:
        try:
            with anyio.fail_after(LOAD_S):
                return await listing.load()
        except ListFailed as exc:
            raise _unavailable(str(exc)) from exc
        except TimeoutError as exc:
            text = f"timed out waiting for app lists after {LOAD_S:g} seconds"
            raise _unavailable(text) from exc

    def _notify(self, apps: list[AppInfo]) -> None:
        self._services.hub.broadcast(AppListUpdatedNotification(data=apps))

    def _begin_follow_up(self, listing: AppListing) -> None:
        if self._follow_ups < MAX_FOLLOW_UPS:
            self._follow_ups += 1
            start_apart(self._services.tasks, self._follow_up, listing)

    async def _follow_up(self, listing: AppListing) -> None:
        try:
            with anyio.move_on_after(LOAD_S):
                await listing.follow_up()
        except AppsUnavailable as exc:
            logger.warning("the list of apps stays as it was kept: %s", exc)
        finally:
            self._follow_ups -= 1


def _unavailable(text: str) -> RpcError:
    return internal_error(text, "appsUnavailable")
