"""Whether a configuration can be used: every package reads its own tables.

Source: docs/config.md, "What clients write".
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from app_server.accounts.account_settings import read_account_settings
from app_server.apps.settings import AppsSettings, read_apps
from app_server.config.config_toml import refuse_older_selector
from app_server.config.editing.keys import Step, take, value_at
from app_server.config.effective import OFFLINE
from app_server.config.node import read_node
from app_server.config.store_url import read_lease_seconds, read_store
from app_server.config.values import Config, ConfigError, ConfigView
from app_server.handlers.integrations.app_servers import AppViews
from app_server.handlers.server.config_layers import effective_config
from app_server.handlers.server.feature_table import FEATURES
from app_server.mcp.catalog.tables import broken_servers, read_mcp_settings
from app_server.models.catalogue.models import read_model_settings
from app_server.models.catalogue.prices import broken_prices
from app_server.models.catalogue.providers import chosen_provider
from app_server.notifications.settings import read_notifications
from app_server.observability.settings import counts_use, read_telemetry_settings
from app_server.permissions.environment import read_command_settings
from app_server.permissions.network import read_network_feature
from app_server.permissions.profiles import profile_names, read_profile
from app_server.permissions.sandbox.roots import MachinePaths, with_hidden_paths
from app_server.sessions.agents_files import read_agents_settings
from app_server.sessions.memory_budget import read_memory_settings
from app_server.sessions.settings import Overrides, initial_settings, sandbox_policy
from app_server.turns.session_settings import read_web_search
from app_server.turns.usage.home import broken_limits

REFUSED = "requests that need it are refused"

AT_START = "a server that starts with it uses its default"

BY_DEFAULT = "its default is used"

LEFT_OUT = "it is left out"

NOT_STARTED = "that server goes on as it was, or is not started"

NO_EFFECT = "the entry has no effect"

PLUGINS_OFF = "plugins that it is about are off"

NO_APPS = "threads have no apps, and requests about apps are refused"

NOTHING_SENT = "a server that starts with it sends nothing to a collector"

MAX_ROUNDS = 16
"""Times that all settings are read in one check."""


class WrongValue(NamedTuple):
    """A setting that does not fit."""

    error: ConfigError
    instead: str
    """The effect of the wrong value, as the end of a sentence."""


def check_settings(config: Config) -> None:
    """Read all settings; that a provider or a folder is not there yet is no reason to refuse them.

    Raises:
        ConfigError: a value does not fit; the first that is found.
    """
    for wrong in wrong_values(config):
        raise wrong.error


def wrong_values(config: Config) -> Sequence[WrongValue]:
    """Find values that do not fit.

    Of settings that are read together the first wrong one hides the others: what was found is left
    out, and all are read again, at most MAX_ROUNDS times. A table that is wrong as a whole, or that
    makes no sense without the value, goes on hiding what is read after it, and so does one in a
    list.
    """
    found = _WrongValues()
    for _ in range(MAX_ROUNDS):
        known = len(found.all)
        _check_threads(config, found)
        _check_single_keys(config.view(), found)
        _check_server(config, found)
        _check_extras(config.view(), found)
        _check_apps(config, found)
        if not found.all:
            found.read(effective_config, config)
        rest = deepcopy(config.document)
        for wrong in found.all[known:]:
            if wrong.error.path and not isinstance(value_at(rest, wrong.error.path), dict):
                take(rest, Step(wrong.error.path, None))
        if rest == config.document:
            break
        config = replace(config, document=rest)
    return found.all


def check_usable(config: Config) -> None:
    """Find out whether requests that need the settings are served with them.

    Raises:
        ConfigError: some are refused; the first fault that is found.
    """
    for wrong in wrong_values(config):
        if wrong.instead == REFUSED:
            raise wrong.error
    refuse_older_selector(config)
    chosen_provider(config)


class _WrongValues:
    def __init__(self) -> None:
        self.all: list[WrongValue] = []

    @contextmanager
    def reading(self, instead: str = REFUSED) -> Iterator[None]:
        """Note what does not fit inside of this, unless that was found before."""
        try:
            yield
        except ConfigError as exc:
            self.add(exc, instead)

    def add(self, error: ConfigError, instead: str) -> None:
        """Note what does not fit, unless that was found before."""
        if not any(_says_no_more(error, wrong.error) for wrong in self.all):
            self.all.append(WrongValue(error, instead))

    def read(
        self, read: Callable[..., object], *arguments: Any, instead: str = REFUSED, **options: Any
    ) -> None:
        """Call `read`, and note what does not fit."""
        with self.reading(instead):
            read(*arguments, **options)


def _says_no_more(error: ConfigError, known: ConfigError) -> bool:
    """Whether it is the same one, or about a table that lacks what was wrong in it."""
    if not error.path:
        return str(error) == str(known)
    return known.path[: len(error.path)] == error.path


def _check_threads(config: Config, found: _WrongValues) -> None:
    """Check what a thread is started with."""
    view = config.view()
    found.read(initial_settings, config, "/", Overrides(model_provider=OFFLINE))
    found.read(sandbox_policy, "workspace-write", view)
    with found.reading():
        for name in profile_names(config):
            read_profile(config, name, "/")
    found.read(with_hidden_paths, config, MachinePaths("/", "/"))
    found.read(read_model_settings, config)
    for error in (*broken_prices(config), *broken_limits(config)):
        found.add(error, LEFT_OUT)
    found.read(read_web_search, view)
    with found.reading():
        for tool in ("update_plan", "apply_patch"):
            view.at("tools").at(tool).boolean("enabled", default=True)
        view.boolean("wakes", default=False)
    found.read(read_command_settings, config)
    found.read(read_agents_settings, config)
    found.read(read_network_feature, config)
    with found.reading():
        AppViews.read(read_mcp_settings(config).servers, config)
        for error in broken_servers(config).values():
            found.add(error, NOT_STARTED)


def _check_single_keys(view: ConfigView, found: _WrongValues) -> None:
    """Check what is read key by key, where it is needed."""
    for key in ("compact_prompt", "experimental_compact_prompt_file", "review_model"):
        found.read(view.string, key)
    found.read(view.integer, "tool_output_token_limit")
    found.read(view.boolean, "model_supports_search_tool", default=False)
    found.read(view.seconds, "approval_timeout_s")
    with found.reading():
        view.at("orchestrator").at("skills").boolean("enabled", default=False)
    for feature in FEATURES:
        for name in feature.names:
            with found.reading(_OF_FEATURES.get(feature.names[0], REFUSED)):
                features = view.at("features")
                if not isinstance(features.table.get(name), dict):
                    features.boolean(name, default=feature.default)


_OF_FEATURES = {
    "apps": NO_APPS,
    "auth_elicitation": NO_APPS,
    "plugins": BY_DEFAULT,
    "tool_suggest": BY_DEFAULT,
}
"""Features that are read leniently, so that a thread starts all the same."""


def _check_server(config: Config, found: _WrongValues) -> None:
    """Check what a server reads for itself, most of it once."""
    view = config.view()
    found.read(view.integer, "thread_unload_delay_secs", instead=AT_START)
    found.read(view.boolean, "refuse_other_users", default=True, instead=AT_START)
    found.read(read_store, view, instead=AT_START)
    found.read(read_node, view, Path(), instead=AT_START)
    found.read(read_lease_seconds, view, instead=AT_START)
    found.read(read_memory_settings, config, instead=AT_START)
    found.read(counts_use, config, instead=AT_START)
    found.read(read_account_settings, config)
    found.read(read_telemetry_settings, config, instead=NOTHING_SENT)
    for error in read_notifications(config).errors:
        found.add(error, LEFT_OUT)


def _check_extras(view: ConfigView, found: _WrongValues) -> None:
    """Check tables about skills and plugins, which are read leniently, entry by entry."""
    with found.reading(NO_EFFECT):
        for entry in view.at("skills").items("config"):
            if isinstance(entry, ConfigView):
                entry.string("name")
                entry.string("path")
                entry.boolean("enabled", default=True)
    with found.reading(PLUGINS_OFF):
        for _, plugin in view.at("plugins").tables():
            plugin.boolean("enabled", default=True)
    with found.reading(LEFT_OUT):
        for _, plugin in view.at("plugins").tables():
            plugin.at("mcp_servers")
    with found.reading(LEFT_OUT):
        for _, marketplace in view.at("marketplaces").tables():
            marketplace.string("source")
            marketplace.string("source_type")
    with found.reading(NO_EFFECT):
        for key in ("discoverables", "disabled_tools"):
            for entry in view.at("tool_suggest").items(key):
                if isinstance(entry, ConfigView):
                    entry.string("type")
                    entry.string("id")


def _check_apps(config: Config, found: _WrongValues) -> None:
    view = config.view()
    with found.reading(NO_APPS):
        view.string("apps_mcp_product_sku")
        view.boolean("include_apps_instructions", default=True)
        view.at("apps_service").boolean("demo", default=False)
        AppsSettings.read(config.document)
    found.read(read_apps, view, instead=NO_APPS)
