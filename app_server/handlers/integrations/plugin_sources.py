"""Marketplaces and repositories of plugins: read, fetched whole, put in place.

Source: docs/plugins.md, "Repositories".
"""

import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from app_server.config.values import Config, ConfigError, NotRecorded
from app_server.extensions.plugins.git_source import GitSource
from app_server.extensions.plugins.marketplace import (
    Marketplace,
    configured_roots,
    find_marketplaces,
    marketplace_file,
    read_marketplace,
)
from app_server.handlers.errors import config_failures
from app_server.handlers.server.config_changes import reload_threads
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext
from app_server.host.git_fetch import GitFetchFailed
from app_server.runtime.files.opening import BrokenFiles
from app_server.runtime.user_paths import expand_user
from protocol.integrations.plugins import MarketplaceLoadErrorInfo
from protocol.jsonrpc.errors import RpcError, internal_error, invalid_request


async def read_marketplaces(
    services: Services, config: Config, folders: Sequence[str] | None
) -> "tuple[list[Marketplace], list[MarketplaceLoadErrorInfo]]":
    """Read the marketplaces of the user, of folders, and of the configuration."""
    return await anyio.to_thread.run_sync(
        _read_all,
        [Path(folder) for folder in folders or ()],
        expand_user("~"),
        list(configured_marketplaces(services, config).values()),
    )


def configured_marketplaces(services: Services, config: Config) -> Mapping[str, Path]:
    """Return the folders of the configured marketplaces, by name."""
    return configured_roots(config.document, services.plugins.store.clones.root)


async def find_marketplace(file: str) -> Marketplace:
    """Read one marketplace."""
    with plugin_failures():
        return await anyio.to_thread.run_sync(read_marketplace, Path(file))


async def read_plugin_config(services: Services) -> Config:
    """Read the settings in force."""
    with config_failures():
        return await services.configuration.read()


async def put_into_effect(context: RequestContext) -> None:
    """Load what is installed now, and give it to loaded threads after the answer."""
    await context.services.plugins.load()
    await reload_threads(context, context.services, "a change of plugins")


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


@asynccontextmanager
async def fetched(services: Services, source: GitSource) -> AsyncIterator[tuple[Path, str]]:
    """Fetch a repository; gives a folder with its files in `new`, and the commit.

    The folder is gone when the context is left.

    Raises:
        GitFetchFailed, OSError
    """
    async with staging_folder(services) as staging:
        commit = await services.git.fetch(
            source.url, source.ref, source.sparse_paths, staging / "new"
        )
        yield staging, commit


@asynccontextmanager
async def staging_folder(services: Services) -> AsyncIterator[Path]:
    """Make a folder that is gone when the context is left.

    Raises:
        OSError
    """
    staging = await anyio.to_thread.run_sync(services.plugins.store.clones.make_staging)
    try:
        yield staging
    finally:
        remove = partial(shutil.rmtree, staging, ignore_errors=True)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(remove)


async def put_clone(
    services: Services,
    staging: Path,
    name: str,
    source: GitSource,
    commit: str,
    check: Callable[[Config], None],
) -> Path:
    """Put a fetched marketplace in its place and into config.toml, both or neither.

    `check` may raise for what the file says by then; nothing has changed then. The caller holds
    `Plugins.changing`. Returns the folder.

    Raises:
        ConfigError, NotRecorded, OSError
    """
    updated = datetime.fromtimestamp(services.clock.now_ms() // 1000, UTC)
    table: dict[str, Any] = {
        "last_updated": updated.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "last_revision": commit,
        "source_type": "git",
        "source": source.url,
    }
    if source.ref is not None:
        table["ref"] = source.ref
    if source.sparse_paths:
        table["sparse_paths"] = list(source.sparse_paths)

    def changed(edit: Any, found: Config) -> str:
        check(found)
        text = found.text
        for key, value in table.items():
            text = edit.set_value(text, ("marketplaces", name, key), value)
        return str(text)

    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(services.plugins.store.clones.put, staging, name)
        try:
            await services.config_file.change(changed)
        except BaseException:
            await anyio.to_thread.run_sync(services.plugins.store.clones.put_back, staging, name)
            raise
    return services.plugins.store.clones.folder(name)


def name_of(folder: Path) -> str:
    """Return the name of the marketplace in a folder; blocks.

    Raises:
        BrokenFiles: there is none, or it cannot be used.
    """
    return read_marketplace(marketplace_file(folder)).name


def reason_of(failure: Exception) -> str:
    """Return what clients read of a failure of `Repositories`."""
    if isinstance(failure, OSError):
        return failure.strerror or "the disk refused"
    return str(failure)


FAILURES = (BrokenFiles, ConfigError, GitFetchFailed, NotRecorded, OSError)
"""Exceptions of fetching a marketplace and putting it in place."""
