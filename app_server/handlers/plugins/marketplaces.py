"""marketplace/*: which marketplaces are configured, each a folder of this machine."""

import re
from collections.abc import Mapping
from pathlib import Path

import anyio.to_thread

from app_server.handlers.plugins.sources import PluginSources, plugin_failures
from app_server.handlers.services import Services
from app_server.plugins.files import NAME
from app_server.plugins.marketplace import (
    Marketplace,
    configured_roots,
    marketplace_file,
    read_marketplace,
)
from app_server.rpc.context import Handler, RequestContext
from app_server.runtime.contained_files import BrokenFiles
from protocol.errors import invalid_request
from protocol.marketplaces import (
    MarketplaceAddParams,
    MarketplaceAddResponse,
    MarketplaceRemoveParams,
    MarketplaceRemoveResponse,
    MarketplaceUpgradeParams,
    MarketplaceUpgradeResponse,
)

_REPOSITORY = re.compile(r"[a-z+]+://|[^/@]+@[^/:]+:|[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+(@|#|$)")
"""What is no folder: an address, `user@host:path`, or `owner/name`."""


class MarketplaceHandlers:
    """The marketplace/* methods."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._sources = PluginSources(services)

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {
            "marketplace/add": self.add,
            "marketplace/remove": self.remove,
            "marketplace/upgrade": self.upgrade,
        }

    async def add(
        self, context: RequestContext, params: MarketplaceAddParams
    ) -> MarketplaceAddResponse:
        """Configure a folder as a marketplace, under the name that its file says."""
        if not params.source.strip():
            raise _invalid("marketplace source must not be empty")
        if not params.source.startswith(".") and _REPOSITORY.match(params.source):
            raise _invalid(
                "marketplaces in Git repositories are not supported by this server; clone the "
                "repository and add its folder"
            )
        if params.ref_name is not None:
            raise _invalid("--ref is only supported for git marketplace sources")
        if params.sparse_paths:
            raise _invalid("--sparse is only supported for git marketplace sources")
        if "\0" in params.source:
            raise _invalid("a path must not hold a NUL character")
        source = Path(self._services.configuration.resolve(None)), params.source
        with plugin_failures():
            root, marketplace = await anyio.to_thread.run_sync(_read, *source)
        async with self._services.plugins.changing:
            config = await self._sources.read_config()
            known = configured_roots(config.document).get(marketplace.name)
            if known is not None and known != root:
                raise _invalid(
                    f"marketplace `{marketplace.name}` is already added from a different source; "
                    "remove it before adding this source"
                )
            if known is None:
                table = ("marketplaces", marketplace.name)
                with plugin_failures():
                    await self._services.config_file.write_all(
                        [((*table, "source_type"), "local"), ((*table, "source"), str(root))]
                    )
        return MarketplaceAddResponse(
            marketplace_name=marketplace.name,
            installed_root=str(root),
            already_added=known is not None,
        )

    async def remove(
        self, context: RequestContext, params: MarketplaceRemoveParams
    ) -> MarketplaceRemoveResponse:
        """Take a marketplace out of the configuration; its plugins stay installed."""
        name = params.marketplace_name
        if not NAME.fullmatch(name):
            raise _invalid(
                "invalid marketplace name: only ASCII letters, digits, `_`, and `-` are allowed"
            )
        async with self._services.plugins.changing:
            config = await self._sources.read_config()
            tables = config.document.get("marketplaces")
            if not isinstance(tables, dict) or name not in tables:
                raise _invalid(f"marketplace `{name}` is not configured or installed")
            with plugin_failures():
                await self._services.config_file.remove(("marketplaces", name))
        return MarketplaceRemoveResponse(marketplace_name=name)

    async def upgrade(
        self, context: RequestContext, params: MarketplaceUpgradeParams
    ) -> MarketplaceUpgradeResponse:
        """Upgrade nothing: folders are read anew each time, and there are no repositories."""
        if params.marketplace_name is not None:
            raise _invalid(
                f"marketplace `{params.marketplace_name}` is not configured as a Git marketplace"
            )
        return MarketplaceUpgradeResponse(selected_marketplaces=[], upgraded_roots=[], errors=[])


def _read(cwd: Path, source: str) -> tuple[Path, Marketplace]:
    try:
        root = (cwd / Path(source).expanduser()).resolve(strict=True)
    except (OSError, RuntimeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it leads in a circle"
        raise BrokenFiles(f"failed to resolve local marketplace source path: {reason}") from exc
    if root.is_file():
        raise BrokenFiles("local marketplace source must be a directory, not a file")
    return root, read_marketplace(marketplace_file(root))


def _invalid(text: str) -> Exception:
    return invalid_request(text, "marketplaceInvalid")
