"""The last good inventory on disk: one file for each account, endpoint and product.

Only tools as the endpoint listed them are kept, without what tells of the account behind them;
names, routes and policy are made anew. A file that cannot be used counts as none.
Source: docs/apps.md, "Cache".
"""

import contextlib
import hashlib
import json
import logging
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio.to_thread
from pydantic_core import from_json, to_json

from app_server.apps.annotations import without_account
from app_server.apps.inventory import MAX_INVENTORY_BYTES, MAX_TOOLS
from protocol.model import Json, JsonObject

logger = logging.getLogger(__name__)

FOLDER = "codex_apps_raw_tools"
"""Below `cache` in the home folder."""

SCHEMA_VERSION = 1

MAX_FILE_BYTES = MAX_INVENTORY_BYTES
"""Of one file; a larger one is neither read nor written."""


@dataclass(frozen=True, slots=True)
class CacheIdentity:
    """Whose inventory it is; without any id nothing is kept."""

    account_id: str | None
    chatgpt_user_id: str | None
    is_workspace_account: bool


class InventoryCache:
    """The file of one account at one endpoint for one product."""

    def __init__(self, home: Path, identity: CacheIdentity, endpoint: str, sku: str | None) -> None:
        """Choose the file; nothing is opened yet."""
        known = (identity.account_id, identity.chatgpt_user_id) != (None, None)
        name = f"{cache_key(identity, endpoint, sku)}.json"
        self._file = home / "cache" / FOLDER / name if known else None

    async def read(self) -> list[JsonObject] | None:
        """Return the tools of the last good inventory; None when there is none that can be used.

        Cancelling waits for a read that has begun.
        """
        if self._file is None:
            return None
        try:
            return await anyio.to_thread.run_sync(_read, self._file)
        except FileNotFoundError:
            return None
        except OSError as exc:
            logger.warning("the cached apps cannot be read: %s", exc.strerror)
        except ValueError as exc:
            logger.warning("the cached apps are not used: %s", exc)
        return None

    async def write(self, tools: Sequence[JsonObject]) -> None:
        """Replace what is kept, whole or not at all; a failure is logged.

        Call it with tools of which an inventory was made. Cancelling waits for a write that has
        begun.
        """
        if self._file is None:
            return
        try:
            await anyio.to_thread.run_sync(_write, self._file, tools)
        except OSError as exc:
            logger.warning("apps are not cached: %s", exc.strerror)
        except ValueError as exc:
            logger.warning("apps are not cached: %s", exc)


def cache_key(identity: CacheIdentity, endpoint: str, sku: str | None) -> str:
    """Return the name of a file: 40 hexadecimal digits. Source: docs/apps.md, "Cache"."""
    parts = {"identity": asdict(identity), "upstream_url": endpoint, "product_sku": sku}
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _read(file: Path) -> list[JsonObject]:
    with file.open("rb") as opened:
        content = opened.read(MAX_FILE_BYTES + 1)
    _check_size(content)
    try:
        document: Json = from_json(content)
    except ValueError:
        # What the parser says may quote the file.
        raise ValueError("not JSON") from None
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"not of version {SCHEMA_VERSION}")
    tools = document.get("tools")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise ValueError("not a list of tools")
    _check_count(tools)
    return [without_account(tool) for tool in tools]


def _write(file: Path, tools: Sequence[JsonObject]) -> None:
    _check_count(tools)
    kept = [without_account(tool) for tool in tools]
    content = to_json({"schema_version": SCHEMA_VERSION, "tools": kept})
    _check_size(content)
    file.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    draft = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "wb") as opened:
            opened.write(content)
        draft.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def _check_size(content: bytes) -> None:
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"more than {MAX_FILE_BYTES} bytes")


def _check_count(tools: Sequence[JsonObject]) -> None:
    if len(tools) > MAX_TOOLS:
        raise ValueError(f"more than {MAX_TOOLS} tools")
