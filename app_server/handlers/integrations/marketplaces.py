"""marketplace/*: which marketplaces are configured: folders of this machine, and repositories."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio.to_thread

from app_server.config.values import Config
from app_server.extensions.plugins.file_members import NAME
from app_server.extensions.plugins.git_source import (
    BadSource,
    GitSource,
    git_source_of,
    is_local,
    parse_git_source,
)
from app_server.extensions.plugins.marketplace import (
    Marketplace,
    marketplace_file,
    read_marketplace,
)
from app_server.extensions.plugins.read_plugins import install_again
from app_server.handlers.integrations.plugin_sources import (
    FAILURES,
    configured_marketplaces,
    fetched,
    name_of,
    plugin_failures,
    put_clone,
    put_into_effect,
    read_plugin_config,
    reason_of,
    staging_folder,
)
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.runtime.files.opening import BrokenFiles
from app_server.runtime.user_paths import expand_user
from app_server.threads.operations import is_again
from protocol.integrations.marketplaces import (
    MarketplaceAddParams,
    MarketplaceAddResponse,
    MarketplaceRemoveParams,
    MarketplaceRemoveResponse,
    MarketplaceUpgradeErrorInfo,
    MarketplaceUpgradeParams,
    MarketplaceUpgradeResponse,
)
from protocol.jsonrpc.errors import invalid_request

MAX_UPGRADES = 64
"""Repositories that one request fetches again; those behind them are left as they are."""


@serves("marketplace/add")
async def add_marketplace(
    context: RequestContext, params: MarketplaceAddParams
) -> MarketplaceAddResponse:
    """Configure a folder or a repository as a marketplace, under the name that it gives."""
    text, paths = params.source.strip(), params.sparse_paths or []
    if not text:
        raise _invalid("marketplace source must not be empty")
    if "\0" in text:
        raise _invalid("a path must not hold a NUL character")
    if is_local(text):
        if params.ref_name is not None:
            raise _invalid("--ref is only supported for git marketplace sources")
        if paths:
            raise _invalid("--sparse is only supported for git marketplace sources")
        return await _add_folder(context.services, text)
    try:
        source = parse_git_source(text, params.ref_name, paths)
    except BadSource as exc:
        raise _invalid(str(exc)) from exc
    return await _add_repository(context.services, source)


async def _add_folder(services: Services, text: str) -> MarketplaceAddResponse:
    source = Path(services.configuration.resolve(None)), text
    with plugin_failures():
        root, marketplace = await anyio.to_thread.run_sync(_read, *source)
    async with services.plugins.changing:
        config = await read_plugin_config(services)
        known = configured_marketplaces(services, config).get(marketplace.name)
        if known is not None and known != root:
            raise _taken(marketplace.name)
        if known is None:
            table = ("marketplaces", marketplace.name)
            with plugin_failures():
                await services.config_file.write_all(
                    [((*table, "source_type"), "local"), ((*table, "source"), str(root))]
                )
    return MarketplaceAddResponse(
        marketplace_name=marketplace.name,
        installed_root=str(root),
        already_added=known is not None and not is_again(),
    )


async def _add_repository(services: Services, source: GitSource) -> MarketplaceAddResponse:
    config = await read_plugin_config(services)
    for name, configured in _repositories(config).items():
        folder = services.plugins.store.clones.folder(name)
        if configured == source and await anyio.to_thread.run_sync(folder.is_dir):
            return MarketplaceAddResponse(
                marketplace_name=name, installed_root=str(folder), already_added=not is_again()
            )
    with plugin_failures():
        async with fetched(services, source) as (staging, commit):
            name = await anyio.to_thread.run_sync(name_of, staging / "new")

            def is_free(found: Config) -> None:
                if name in _tables(found) and _repositories(found).get(name) != source:
                    raise _taken(name)

            async with services.plugins.changing:
                # The file's own say: what the command line or a request adds is not written.
                folder = await put_clone(services, staging, name, source, commit, is_free)
    return MarketplaceAddResponse(
        marketplace_name=name, installed_root=str(folder), already_added=False
    )


@serves("marketplace/remove")
async def remove_marketplace(
    context: RequestContext, params: MarketplaceRemoveParams
) -> MarketplaceRemoveResponse:
    """Take a marketplace out of the configuration; its plugins stay installed.

    What was fetched of a repository is deleted; a folder of the user stays.
    """
    name = params.marketplace_name
    if not NAME.fullmatch(name):
        raise _invalid(
            "invalid marketplace name: only ASCII letters, digits, `_`, and `-` are allowed"
        )
    removed: Path | None = None
    async with context.services.plugins.changing:
        config = await read_plugin_config(context.services)
        if name not in _tables(config):
            raise _invalid(f"marketplace `{name}` is not configured or installed")
        with plugin_failures():
            await context.services.config_file.remove(("marketplaces", name))
            if _tables(config)[name].get("source_type") == "git":
                clones = context.services.plugins.store.clones
                removed = await anyio.to_thread.run_sync(clones.remove, name)
    return MarketplaceRemoveResponse(
        marketplace_name=name, installed_root=None if removed is None else str(removed)
    )


@serves("marketplace/upgrade")
async def upgrade_marketplaces(
    context: RequestContext, params: MarketplaceUpgradeParams
) -> MarketplaceUpgradeResponse:
    """Fetch repositories whose revision has moved, and install their plugins anew.

    Folders of the user are read anew each time, so there is nothing to do for them.
    """
    config = await read_plugin_config(context.services)
    sources, wanted = _repositories(config), params.marketplace_name
    if wanted is not None:
        if wanted not in sources:
            raise _invalid(f"marketplace `{wanted}` is not configured as a Git marketplace")
        sources = {wanted: sources[wanted]}
    response = MarketplaceUpgradeResponse(
        selected_marketplaces=sorted(sources), upgraded_roots=[], errors=[]
    )
    for name in response.selected_marketplaces[:MAX_UPGRADES]:
        revision = _tables(config)[name].get("last_revision")
        try:
            folder = await _upgrade(context.services, name, sources[name], revision)
        except FAILURES as exc:
            response.errors.append(
                MarketplaceUpgradeErrorInfo(marketplace_name=name, message=reason_of(exc))
            )
            continue
        if folder is not None:
            response.upgraded_roots.append(str(folder))
    if response.upgraded_roots:
        await put_into_effect(context)
    return response


async def _upgrade(
    services: Services, name: str, source: GitSource, revision: object
) -> Path | None:
    clones = services.plugins.store.clones
    if await anyio.to_thread.run_sync(clones.folder(name).is_dir):
        async with staging_folder(services) as staging:
            now = await services.git.revision_of(source.url, source.ref, staging)
        if now == revision:
            return None
    async with fetched(services, source) as (staging, commit):
        found_name = await anyio.to_thread.run_sync(name_of, staging / "new")
        if found_name != name:
            raise BrokenFiles(f"it is called `{found_name}` now")

        def is_same(found: Config) -> None:
            if _repositories(found).get(name) != source:
                raise BrokenFiles("it was configured otherwise meanwhile")

        async with services.plugins.changing:
            folder = await put_clone(services, staging, name, source, commit, is_same)
            store = services.plugins.store
            await anyio.to_thread.run_sync(install_again, store, folder)
            return folder


def _read(cwd: Path, source: str) -> tuple[Path, Marketplace]:
    try:
        root = (cwd / expand_user(source)).resolve(strict=True)
    except (OSError, RuntimeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it leads in a circle"
        raise BrokenFiles(f"failed to resolve local marketplace source path: {reason}") from exc
    if root.is_file():
        raise BrokenFiles("local marketplace source must be a directory, not a file")
    return root, read_marketplace(marketplace_file(root))


def _tables(config: Config) -> Mapping[str, Mapping[str, Any]]:
    tables = config.document.get("marketplaces")
    found = tables if isinstance(tables, dict) else {}
    return {name: table for name, table in found.items() if isinstance(table, dict)}


def _repositories(config: Config) -> dict[str, GitSource]:
    """Return the repositories that are configured as marketplaces, by name."""
    found = {name: git_source_of(table) for name, table in _tables(config).items()}
    return {
        name: source
        for name, source in found.items()
        if source is not None and NAME.fullmatch(name)
    }


def _taken(name: str) -> Exception:
    return _invalid(
        f"marketplace `{name}` is already added from a different source; "
        "remove it before adding this source"
    )


def _invalid(text: str) -> Exception:
    return invalid_request(text, "marketplaceInvalid")
