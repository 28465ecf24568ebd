"""What the methods of plugins and marketplaces work with, and what they answer of failures."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread

from app_server.config.editing.errors import NotRecorded
from app_server.config.values import Config, ConfigError
from app_server.extensions.plugins.marketplace import (
    Marketplace,
    configured_roots,
    find_marketplaces,
    read_marketplace,
)
from app_server.handlers.errors import config_failures
from app_server.handlers.services import Services
from app_server.handlers.settings.file_changes import reload_threads
from app_server.host.git_fetch import GitFetchFailed
from app_server.rpc.context import RequestContext
from app_server.runtime.files.contained import BrokenFiles
from app_server.runtime.user_paths import expand_user
from protocol.integrations.plugins import MarketplaceLoadErrorInfo
from protocol.jsonrpc.errors import RpcError, internal_error, invalid_request


class PluginSources:
    """The marketplaces that requests may name, and what a change of plugins means to threads."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def marketplaces(
        self, config: Config, folders: Sequence[str] | None
    ) -> "tuple[list[Marketplace], list[MarketplaceLoadErrorInfo]]":
        """Read the marketplaces of the user, of folders, and of the configuration."""
        return await anyio.to_thread.run_sync(
            _read_all,
            [Path(folder) for folder in folders or ()],
            expand_user("~"),
            list(self.configured(config).values()),
        )

    def configured(self, config: Config) -> Mapping[str, Path]:
        """Return the folders of the configured marketplaces, by name."""
        return configured_roots(config.document, self._services.plugins.store.clones.root)

    async def marketplace(self, file: str) -> Marketplace:
        """Read one marketplace."""
        with plugin_failures():
            return await anyio.to_thread.run_sync(read_marketplace, Path(file))

    async def read_config(self) -> Config:
        """Read the settings in force."""
        with config_failures():
            return await self._services.configuration.read()

    async def take_effect(self, context: RequestContext) -> None:
        """Load what is installed now, and give it to loaded threads after the answer."""
        await self._services.plugins.load()
        await reload_threads(context, self._services, "a change of plugins")


def _read_all(
    folders: Sequence[Path], user_home: Path, configured: Sequence[Path]
) -> tuple[list[Marketplace], list[MarketplaceLoadErrorInfo]]:
    found, errors = [], []
    for file in find_marketplaces(folders, user_home, configured):
        try:
            found.append(read_marketplace(file))
        except BrokenFiles as exc:
            errors.append(MarketplaceLoadErrorInfo(marketplace_path=str(file), message=str(exc)))
    return found, errors


@contextmanager
def plugin_failures() -> Iterator[None]:
    """Translate failures of plugins, marketplaces and of writing the configuration."""
    try:
        yield
    except BrokenFiles as exc:
        raise invalid_request(str(exc), "pluginInvalid") from exc
    except GitFetchFailed as exc:
        text = f"failed to fetch the repository: {exc}"
        raise internal_error(text, "fetchFailed") from exc
    except (ConfigError, NotRecorded) as exc:
        raise internal_error(f"failed to write config.toml: {exc}", "storageFailed") from exc
    except OSError as exc:
        raise internal_error(
            f"failed to store the plugin: {exc.strerror}", "storageFailed"
        ) from exc


def hosted(doing: str) -> RpcError:
    """Say that a hosted catalog would be needed."""
    return invalid_request(
        f"{doing}: hosted plugin catalogs are not supported by this server", "hostedPlugins"
    )


def is_enabled(config: Mapping[str, Any], id_: str) -> bool:
    """Whether the settings switch a plugin on, if it is installed."""
    plugins = config.get("plugins")
    table = plugins.get(id_) if isinstance(plugins, dict) else None
    return isinstance(table, dict) and table.get("enabled", True) is True
