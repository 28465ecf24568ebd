"""Which servers a thread has: what is configured and what extensions register, resolved by name.

Tiers, low to high: plugins, plugins chosen for the thread, config.toml, registered at run time. The
highest tier that has a name wins it; in the plugin tiers the first, at run time the last. What is
switched off in config.toml, or by an installed plugin that config.toml says nothing about, stays
off: nothing registered at run time takes its name. `[mcp_switches]` is put over servers that
config.toml has no table of.
Source: docs/extensions.md, "Which server wins".
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from weakref import WeakKeyDictionary

import anyio.to_thread

from app_server.config.requirements import ServerIdentity, requirements_of
from app_server.config.values import Config, ConfigError
from app_server.extensions.contract.registration import (
    ContributionContext,
    Manifest,
    Mode,
    Registration,
    Tier,
)
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.mcp.bounds import ListTooLarge, bytes_of, check_bytes, check_count
from app_server.mcp.catalog.config import HttpTransport, McpSettings, ServerConfig
from app_server.mcp.catalog.tables import parse_server
from app_server.mcp.tools.listing import Listing

logger = logging.getLogger(__name__)

_CONFIGURED_ALONE = {Tier.CONFIGURED}

FEW = 4
"""Registrations that are read on the event loop; more of them in a worker thread."""


def resolve_servers(
    configured: Mapping[str, ServerConfig],
    registrations: Sequence[Registration],
    config: Config | None = None,
) -> Mapping[str, ServerConfig]:
    """Choose one server for each name, sorted by it; what makes no sense is left out, and logged.

    `config` are the settings in force: what is registered below the runtime tier is bound by an
    administrator's demands, and signed in to, as if it were configured.
    """
    demanded = None if config is None else requirements_of(config).servers
    tiers: dict[str, dict[Tier, ServerConfig]] = {
        name: {Tier.CONFIGURED: config} for name, config in configured.items()
    }
    for registration in registrations:
        try:
            if registration.tier is Tier.RUNTIME:
                server = _read_at_run_time(registration)
            else:
                server = _effective(registration, demanded, config)
        except ConfigError as exc:
            logger.warning("a registration of %r makes no sense: %s", registration.name, exc)
            continue
        of_name = tiers.setdefault(server.name, {})
        taken = registration.tier in of_name
        if taken:
            tier = registration.tier.name.lower()
            logger.warning("MCP server %s: registered twice (%s)", server.name, tier)
        if not taken or registration.tier is Tier.RUNTIME:
            of_name[registration.tier] = server
    return {
        name: of_name[Tier.CONFIGURED] if of_name.keys() == _CONFIGURED_ALONE else _winner(of_name)
        for name, of_name in sorted(tiers.items())
    }


def _effective(
    registration: Registration,
    demanded: Mapping[str, ServerIdentity] | None,
    everyone: Config | None,
) -> ServerConfig:
    config = parse_server(registration.name, registration.config, demanded, everyone)
    transport = config.transport
    if registration.bearer is not None and isinstance(transport, HttpTransport):
        transport = replace(transport, bearer=registration.bearer)
    return replace(
        config,
        transport=transport,
        owner=registration.owner,
        metadata=registration.metadata,
        is_registered=registration.tier is Tier.RUNTIME,
        known=_known(registration.manifest),
    )


_READ: WeakKeyDictionary[Registration, ServerConfig] = WeakKeyDictionary()
"""Registrations at run time that are in use: threads share them, and what was made of them."""

_LISTINGS: WeakKeyDictionary[Manifest, Listing] = WeakKeyDictionary()
"""Listings by the value of their manifest: an equal manifest is not measured again."""


def _is_read(registration: Registration) -> bool:
    return registration.tier is not Tier.RUNTIME or registration in _READ


def _read_all(registrations: Sequence[Registration]) -> None:
    for registration in registrations:
        # `resolve` logs what makes no sense.
        with suppress(ConfigError):
            _read_at_run_time(registration)


def _read_at_run_time(registration: Registration) -> ServerConfig:
    config = _READ.get(registration)
    if config is None:
        config = _READ[registration] = _effective(registration, None, None)
    return config


def _known(manifest: Manifest | None) -> Listing | None:
    if manifest is None:
        return None
    listing = _LISTINGS.get(manifest)
    if listing is None:
        try:
            check_count("tools", len(manifest.tools))
            check_bytes("tools", bytes_of(manifest.tools))
        except ListTooLarge as exc:
            raise ConfigError(str(exc)) from exc
        listing = _LISTINGS[manifest] = Listing.of(manifest.hello, list(manifest.tools), None)
    return listing


def _winner(tiers: Mapping[Tier, ServerConfig]) -> ServerConfig:
    below = max((tier for tier in tiers if tier is not Tier.RUNTIME), default=None)
    if below is not None and Tier.RUNTIME in tiers:
        config = tiers[below]
        vetoes = not config.enabled and below is not Tier.SELECTED_PLUGIN
        return config if vetoes else tiers[Tier.RUNTIME]
    return tiers[max(tiers)]


class ServerCatalog:
    """The servers of one thread, or of one question, as they are resolved time and again."""

    def __init__(self, registry: ExtensionRegistry, thread_id: str | None = None) -> None:
        self._registry = registry
        self._thread_id = thread_id
        self._revisions: tuple[int, ...] | None = None

    @property
    def is_current(self) -> bool:
        """Whether no contributor has published anything since the last `resolve`."""
        return self._revisions == self._registry.revisions()

    async def discovered(self, config: Config) -> None:
        """Wait until extensions know what they register; the caller bounds it."""
        await self._registry.discovered(self._context(config, "discover"))

    def looking_since(self, config: Config) -> float | None:
        """Return when the look began that extensions make now; None: they make none."""
        return self._registry.looking_since(self._context(config, "discover"))

    async def prepare(self, config: Config) -> None:
        """Read what extensions register now in a worker thread, if it is much and new."""
        contributions = self._registry.contributions(self._context(config, "discover"))
        fresh = [one for one in contributions.registrations if not _is_read(one)]
        if len(fresh) > FEW:
            await anyio.to_thread.run_sync(_read_all, fresh)

    def resolve(self, configured: McpSettings, config: Config, mode: Mode) -> McpSettings:
        """Put what extensions register now over what `config` says; never waits."""
        contributions = self._registry.contributions(self._context(config, mode))
        self._revisions = contributions.revisions
        servers = resolve_servers(configured.servers, contributions.registrations, config)
        switched = {
            name: replace(servers[name], enabled=enabled and servers[name].allowed)
            for name, enabled in configured.switches.items()
            if name in servers and name not in configured.servers
        }
        return replace(configured, servers={**servers, **switched})

    def _context(self, config: Config, mode: Mode) -> ContributionContext:
        demanded = {} if config.requirements is None else config.requirements.document
        return ContributionContext(mode, config.document, self._thread_id, demanded)
