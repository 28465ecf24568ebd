"""The apps that a plugin declares, as its methods show them.

Source: docs/plugins.md, "Apps".
"""

import logging
from collections.abc import Sequence

from app_server.apps.errors import AppsUnavailable
from app_server.apps.inventory.names import install_url
from app_server.handlers.apps.port import AppsPort
from app_server.handlers.apps.terms import AppTerms, apps_failures, read_terms
from app_server.handlers.services import Services
from protocol.integrations.plugins import AppSummary

logger = logging.getLogger(__name__)


async def declared_apps(services: Services, app_ids: Sequence[str]) -> list[AppSummary]:
    """Show apps, sorted by name; none where there are no apps. Asks nobody."""
    if not app_ids or services.apps is None:
        return []
    with apps_failures():
        terms = await read_terms(services, services.apps, None)
    return await _shown(services.apps, terms, app_ids)


async def apps_needing_auth(services: Services, app_ids: Sequence[str]) -> list[AppSummary]:
    """Show the apps that the account has not linked; none if that cannot be known."""
    if not app_ids or services.apps is None:
        return []
    try:
        terms = await read_terms(services, services.apps, None)
        if terms.backend is None:
            return []
        snapshot = await services.apps.snapshot_allowing_cached(terms.config)
    except AppsUnavailable as exc:
        logger.warning("which apps of a plugin need a sign-in is not known: %s", exc)
        return []
    if snapshot is None:
        logger.warning("which apps of a plugin need a sign-in is not known")
        return []
    try:
        missing = snapshot.missing(app_ids)
    finally:
        snapshot.release()
    return await _shown(services.apps, terms, missing)


async def _shown(apps: AppsPort, terms: AppTerms, app_ids: Sequence[str]) -> list[AppSummary]:
    if terms.backend is None:
        return []
    directory = await apps.backend.known_directory(terms.backend)
    known = {app.id: app for app in (directory.apps if directory is not None else ())}
    shown = []
    for id_ in app_ids:
        app = known.get(id_)
        name = id_ if app is None else app.name
        description = None if app is None else app.description
        url = install_url(name, id_)
        shown.append(AppSummary(id=id_, name=name, description=description, install_url=url))
    return sorted(shown, key=lambda app: (app.name, app.id))
