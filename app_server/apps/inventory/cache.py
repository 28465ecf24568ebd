"""The cache on disk of an account's apps: the last good inventory, and the directory.

Of the inventory only tools as the endpoint listed them are kept, without what tells of the account
behind them; names, routes and policy are made anew.
Source: docs/apps.md, "Cache".
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio.to_thread

from app_server.apps.inventory.annotations import without_account
from app_server.apps.inventory.inventory import (
    MAX_TOOLS,
    Connector,
    InconsistentInventory,
    build_inventory,
)
from app_server.apps.inventory.stored import StoredList
from protocol.model import JsonObject

TOOLS_FOLDER = "codex_apps_raw_tools"
DIRECTORY_FOLDER = "codex_app_directory"

MAX_ENTRIES = 16_384
"""Of a directory."""


@dataclass(frozen=True, slots=True)
class CacheIdentity:
    """Whose apps they are; without any id nothing is kept."""

    account_id: str | None
    chatgpt_user_id: str | None
    is_workspace_account: bool

    @property
    def is_known(self) -> bool:
        """Whether it is anybody's."""
        return (self.account_id, self.chatgpt_user_id) != (None, None)


class InventoryCache:
    """The tools of one account at one endpoint for one product."""

    def __init__(self, home: Path, identity: CacheIdentity, endpoint: str, sku: str | None) -> None:
        """Choose the file; nothing is opened yet."""
        key = inventory_key(identity, endpoint, sku)
        file = _file(home, TOOLS_FOLDER, key)
        stored = StoredList(file, "tools", "tools of apps", MAX_TOOLS, without_account)
        self._stored = stored if identity.is_known else None

    async def read(self) -> list[JsonObject] | None:
        """Return the tools of the last good inventory; None when there is none that can be used.

        Cancelling waits for a read that has begun.
        """
        return None if self._stored is None else await self._stored.read()

    async def installed(self) -> Sequence[Connector]:
        """Return the connectors with a real tool of what is kept; none if it cannot be used."""
        try:
            found = await anyio.to_thread.run_sync(build_inventory, await self.read() or [])
        except InconsistentInventory:
            return ()
        return found.installed

    async def write(self, tools: Sequence[JsonObject]) -> bool:
        """Replace what is kept, whole or not at all; a failure is logged. Gives whether it worked.

        Call it with tools of which an inventory was made. Cancelling waits for a write that has
        begun.
        """
        return self._stored is not None and await self._stored.write(tools)


class DirectoryCache:
    """The directory as one account last saw it; for what is shown until it is loaded."""

    def __init__(self, home: Path, identity: CacheIdentity, base_url: str) -> None:
        """Choose the file; nothing is opened yet."""
        key = directory_key(identity, base_url)
        file = _file(home, DIRECTORY_FOLDER, key)
        stored = StoredList(file, "connectors", "apps of the directory", MAX_ENTRIES, dict, True)
        self._stored = stored if identity.is_known else None

    async def read(self) -> list[JsonObject] | None:
        """Return the entries, for `parse_directory`; a file of another version is deleted."""
        return None if self._stored is None else await self._stored.read()

    async def write(self, entries: Sequence[JsonObject]) -> None:
        """Replace what is kept, whole or not at all; a failure is logged."""
        if self._stored is not None:
            await self._stored.write(entries)


def inventory_key(identity: CacheIdentity, endpoint: str, sku: str | None) -> str:
    """Return the name of a file: 40 hexadecimal digits. Source: docs/apps.md, "Cache"."""
    return _sha1({"identity": asdict(identity), "upstream_url": endpoint, "product_sku": sku})


def directory_key(identity: CacheIdentity, base_url: str) -> str:
    """Return the name of a file: 40 hexadecimal digits. Source: docs/apps.md, "Cache"."""
    return _sha1({"chatgpt_base_url": base_url, **asdict(identity)})


def _sha1(parts: JsonObject) -> str:
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _file(home: Path, folder: str, key: str) -> Path:
    return home / "cache" / folder / f"{key}.json"
