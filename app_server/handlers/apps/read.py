"""app/read and app/installed: details of some apps, and which apps there are tools of."""

from collections.abc import Sequence

from app_server.apps.inventory.directory import installed_apps
from app_server.apps.inventory.inventory import Connector
from app_server.apps.measured import READ, measured
from app_server.handlers.apps.port import AppsPort
from app_server.handlers.apps.terms import AppTerms, apps_failures, read_terms
from app_server.handlers.services import Services
from app_server.rpc.context import RequestContext, Routes
from protocol.integrations.apps import (
    AppsInstalledParams,
    AppsInstalledResponse,
    AppsReadParams,
    AppsReadResponse,
)
from protocol.jsonrpc.errors import invalid_params

MAX_IDS = 100
"""Of one app/read, repeated ones included."""


class AppReadHandlers:
    """The methods app/read and app/installed."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.routes: Routes = {"app/read": self.read, "app/installed": self.list_installed}

    async def read(self, context: RequestContext, params: AppsReadParams) -> AppsReadResponse:
        """Read about apps, in the order of the ids; those of which nothing is known are named."""
        if len(params.app_ids) > MAX_IDS:
            rule = f"at most {MAX_IDS}"
            raise invalid_params(
                f"app/read accepts at most {MAX_IDS} appIds", field="appIds", rule=rule
            )
        ids = list(dict.fromkeys(params.app_ids))
        apps = self._services.apps
        if apps is None:
            return AppsReadResponse(apps=[], missing_app_ids=ids)
        with apps_failures():
            terms = await read_terms(self._services, apps, params.thread_id)
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

    async def list_installed(
        self, context: RequestContext, params: AppsInstalledParams
    ) -> AppsInstalledResponse:
        """List the apps that have tools here, as last fetched; only `forceRefresh` fetches."""
        apps = self._services.apps
        if apps is None:
            return AppsInstalledResponse(apps=[])
        with apps_failures():
            terms = await read_terms(self._services, apps, params.thread_id)
        allowed = terms.backend is not None
        if allowed and params.force_refresh:
            connectors = await _fetched(apps, terms)
        else:
            with apps_failures():
                connectors = await apps.known_connectors(terms.config)
        return AppsInstalledResponse(apps=installed_apps(connectors, terms.policy, allowed=allowed))


async def _fetched(apps: AppsPort, terms: AppTerms) -> Sequence[Connector]:
    with apps_failures("failed to refresh apps"):
        snapshot = await apps.refresh_snapshot(terms.config)
    if snapshot is None:
        return ()
    try:
        return tuple(snapshot.apps)
    finally:
        snapshot.release()
