"""Repositories with marketplaces or plugins: fetched whole, then put in place.

Source: docs/plugins.md, "Repositories".
"""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from app_server.config.editing.errors import NotRecorded
from app_server.config.values import Config, ConfigError
from app_server.extensions.plugins.clones import ClonedMarketplaces
from app_server.extensions.plugins.git_source import GitSource
from app_server.extensions.plugins.marketplace import marketplace_file, read_marketplace
from app_server.handlers.services import Services
from app_server.host.git_fetch import GitFetchFailed
from app_server.runtime.files.contained import BrokenFiles


class Repositories:
    """What the methods of plugins and marketplaces do with repositories."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.clones: ClonedMarketplaces = services.plugins.store.clones

    @asynccontextmanager
    async def fetched(self, source: GitSource) -> AsyncIterator[tuple[Path, str]]:
        """Fetch a repository; gives a folder with its files in `new`, and the commit.

        The folder is gone when the context is left.

        Raises:
            GitFetchFailed, OSError
        """
        async with self.staging() as staging:
            commit = await self._services.git.fetch(
                source.url, source.ref, source.sparse_paths, staging / "new"
            )
            yield staging, commit

    @asynccontextmanager
    async def staging(self) -> AsyncIterator[Path]:
        """Make a folder that is gone when the context is left.

        Raises:
            OSError
        """
        staging = await anyio.to_thread.run_sync(self.clones.make_staging)
        try:
            yield staging
        finally:
            remove = partial(shutil.rmtree, staging, ignore_errors=True)
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(remove)

    async def put(
        self,
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
        updated = datetime.fromtimestamp(self._services.clock.now_ms() // 1000, UTC)
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
            await anyio.to_thread.run_sync(self.clones.put, staging, name)
            try:
                await self._services.config_file.change(changed)
            except BaseException:
                await anyio.to_thread.run_sync(self.clones.put_back, staging, name)
                raise
        return self.clones.folder(name)


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
"""What fetching a marketplace, and putting it in place, may raise."""
