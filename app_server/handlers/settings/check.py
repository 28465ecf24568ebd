"""Whether a configuration can be used: every package reads its own tables.

Source: docs/config.md, "What clients write".
"""

from app_server.accounts.settings import read_account_settings
from app_server.analytics.settings import counts_use
from app_server.apps.settings import AppsSettings, read_apps
from app_server.config.default_provider import OFFLINE
from app_server.config.values import Config, ConfigView
from app_server.handlers.apps.servers import AppViews
from app_server.handlers.settings.features import FEATURES
from app_server.handlers.settings.layers import effective_config
from app_server.mcp.catalog.config import read_mcp_settings
from app_server.memory.settings import read_memory_settings
from app_server.permissions.confinement.places import Places, configured_places
from app_server.permissions.environment import read_command_settings
from app_server.permissions.network.settings import read_network_feature
from app_server.permissions.profiles import profile_names, read_profile
from app_server.sessions.settings import Overrides, initial_settings, sandbox_policy
from app_server.sessions.surroundings.agents_files import read_agents_settings
from app_server.telemetry.settings import read_telemetry_settings
from app_server.turns.model.catalogue.settings import read_model_settings
from app_server.turns.model.web_search_settings import read_web_search


def check_settings(config: Config) -> None:
    """Read all settings; that a provider or a folder is not there yet is no reason to refuse them.

    Raises:
        ConfigError: a value does not fit; the first that is found.
    """
    view = config.view()
    initial_settings(config, "/", Overrides(model_provider=OFFLINE))
    sandbox_policy("workspace-write", view)
    for name in profile_names(config):
        read_profile(config, name, "/")
    configured_places(config, Places("/", "/"))
    read_model_settings(config)
    read_web_search(view)
    for tool in ("update_plan", "apply_patch"):
        view.at("tools").at(tool).boolean("enabled", default=True)
    _check_single_keys(view)
    read_command_settings(config)
    read_agents_settings(config)
    read_network_feature(config)
    read_memory_settings(config)
    counts_use(config)
    read_account_settings(config)
    read_telemetry_settings(config)
    servers = read_mcp_settings(config).servers
    AppsSettings.read(config.document)
    read_apps(view)
    AppViews.read(servers, config)
    effective_config(config)


def _check_single_keys(view: ConfigView) -> None:
    """Check what is read key by key, where it is needed; some of it leniently, so as to go on."""
    for key in ("apps_mcp_product_sku", "compact_prompt", "experimental_compact_prompt_file"):
        view.string(key)
    for key in ("tool_output_token_limit", "thread_unload_delay_secs"):
        view.integer(key)
    for key in ("include_apps_instructions", "model_supports_search_tool", "refuse_other_users"):
        view.boolean(key, default=False)
    view.seconds("approval_timeout_s")
    features = view.at("features")
    for feature in FEATURES:
        for name in feature.names:
            if not isinstance(features.table.get(name), dict):
                features.boolean(name, default=feature.default)
    view.at("apps_service").boolean("demo", default=False)
    for entry in view.at("skills").items("config"):
        if isinstance(entry, ConfigView):
            entry.string("name")
            entry.string("path")
            entry.boolean("enabled", default=True)
    for _, plugin in view.at("plugins").tables():
        plugin.boolean("enabled", default=True)
        plugin.at("mcp_servers")
    for _, marketplace in view.at("marketplaces").tables():
        marketplace.string("source")
        marketplace.string("source_type")
