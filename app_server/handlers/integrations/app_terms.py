"""Under which settings, and for which account, a request about apps is answered."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from app_server.apps.account import AppsUnavailable
from app_server.apps.policy import AppsPolicy
from app_server.apps.settings import AppsSettings
from app_server.apps.upstream.outbound import Backend
from app_server.config.values import Config
from app_server.handlers.errors import config_failures, loaded_thread
from app_server.handlers.integrations.apps_port import AppsPort
from app_server.handlers.services import Services
from protocol.jsonrpc.errors import internal_error


@dataclass(frozen=True, slots=True)
class AppTerms:
    """One request's settings and account."""

    config: Mapping[str, Any]
    """The settings in force, as config.toml has them."""
    policy: AppsPolicy
    plugin_names: Mapping[str, Sequence[str]]
    backend: Backend | None
    """None: apps are off, no account is signed in, or the workspace does not allow them."""


@contextmanager
def apps_failures(doing: str | None = None) -> Iterator[None]:
    """Translate that apps cannot be had now, while something is done that the text may name."""
    try:
        yield
    except AppsUnavailable as exc:
        text = str(exc) if doing is None else f"{doing}: {exc}"
        raise internal_error(text, "appsUnavailable") from exc


async def read_terms(services: Services, apps: AppsPort, thread_id: str | None) -> AppTerms:
    """Find out the terms; a loaded thread's own settings lie on top of the file's.

    Raises:
        RpcError: there is no such thread in memory, or the settings make no sense.
        AppsUnavailable: it cannot be found out now whose apps they are.
    """
    with config_failures():
        config = await services.configuration.read()
        if thread_id is not None:
            config = _of_thread(services, thread_id, config)
        settings = AppsSettings.read(config.document)
        demands = config.requirements.document if config.requirements is not None else None
        policy = AppsPolicy.read(config.document, demands)
    if settings.enabled:
        await apps.settled()
    backend = None
    if settings.enabled and (account := apps.account()) is not None:
        backend = Backend(apps.base_url or settings.base_url, account, settings.sku)
        if not await apps.backend.workspace_allows(backend):
            backend = None
    names = apps.plugin_names(config.document, thread_id)
    return AppTerms(config.document, policy, names, backend)


def _of_thread(services: Services, thread_id: str, config: Config) -> Config:
    of_thread = loaded_thread(services.sessions, thread_id).servers.config
    enabled = AppsSettings.read(of_thread.document).enabled
    return (
        config.with_projects(of_thread.projects)
        .with_layers(of_thread.layers)
        .override({"features.apps": enabled})
    )
