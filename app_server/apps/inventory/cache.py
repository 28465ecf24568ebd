"""The cache on disk of an account's apps: the last good inventory, and the directory.

Of the inventory only tools as the endpoint listed them are kept, without what tells of the account
behind them; names, routes and policy are made anew.
Source: docs/apps.md, "Cache".
"""

import contextlib
import hashlib
import json
import logging
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio.to_thread
from pydantic_core import from_json, to_json

from app_server.apps.inventory.annotations import without_account
from app_server.apps.inventory.inventory import (
    MAX_TOOLS,
    Connector,
    InconsistentInventory,
    build_inventory,
)
from protocol.model import Json, JsonObject

TOOLS_FOLDER = "codex_apps_raw_tools"
DIRECTORY_FOLDER = "codex_app_directory"

MAX_ENTRIES = 16_384
"""Of a directory."""


@dataclass(frozen=True, slots=True)
class CacheIdentity:
    """Owner of the cached apps; without any id there is no cache."""

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
        """Choose the file; it is opened with the first read."""
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
        """Return the cached connectors with a real tool; none if the cache cannot be used."""
        try:
            found = await anyio.to_thread.run_sync(build_inventory, await self.read() or [])
        except InconsistentInventory:
            return ()
        return found.installed

    async def write(self, tools: Sequence[JsonObject]) -> bool:
        """Replace the cache atomically; a failure is logged. Returns whether it worked.

        Call it with tools of which an inventory was made. Cancelling waits for a write that has
        begun.
        """
        return self._stored is not None and await self._stored.write(tools)


class DirectoryCache:
    """Cached directory of one account, shown until it is loaded."""

    def __init__(self, home: Path, identity: CacheIdentity, base_url: str) -> None:
        """Choose the file; it is opened with the first read."""
        key = directory_key(identity, base_url)
        file = _file(home, DIRECTORY_FOLDER, key)
        stored = StoredList(file, "connectors", "apps of the directory", MAX_ENTRIES, dict, True)
        self._stored = stored if identity.is_known else None

    async def read(self) -> list[JsonObject] | None:
        """Return the entries, for `parse_directory`; a file of another version is deleted."""
        return None if self._stored is None else await self._stored.read()

    async def write(self, entries: Sequence[JsonObject]) -> None:
        """Replace the cache atomically; a failure is logged."""
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


logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1

MAX_FILE_BYTES = 8 * 1024 * 1024
"""Of one file; a larger one is neither read nor written."""


class _OtherVersion(ValueError):
    """The file is of another version than ours."""


@dataclass(frozen=True, slots=True)
class StoredList:
    """One file, `{"schema_version": 1, "checksum": …, MEMBER: […]}`.

    The checksum is the SHA-256 of the bytes of the list. The reference writes none.
    """

    file: Path
    member: str
    what: str
    """The objects, for the log."""
    max_objects: int
    """A longer list is neither read nor written."""
    cleaned: Callable[[JsonObject], JsonObject]
    """Takes out of an object what must not be in the file, or is not to be believed from it."""
    deletes_other_versions: bool = False

    async def read(self) -> list[JsonObject] | None:
        """Return the objects; None when there is no file that can be used.

        Cancelling waits for a read that has begun.
        """
        try:
            return await anyio.to_thread.run_sync(self._read)
        except FileNotFoundError:
            return None
        except OSError as exc:
            logger.warning("the cached %s cannot be read: %s", self.what, exc.strerror)
        except ValueError as exc:
            logger.warning("the cached %s are not used: %s", self.what, exc)
        return None

    async def write(self, objects: Sequence[JsonObject]) -> bool:
        """Replace the file; a failure is logged, and leaves it as it was. Gives whether it worked.

        Cancelling waits for a write that has begun.
        """
        try:
            await anyio.to_thread.run_sync(self._write, objects)
        except OSError as exc:
            logger.warning("%s are not cached: %s", self.what, exc.strerror)
        except ValueError as exc:
            logger.warning("%s are not cached: %s", self.what, exc)
        else:
            return True
        return False

    def _read(self) -> list[JsonObject]:
        with self.file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
        _check_size(content)
        try:
            return self._parse(content)
        except _OtherVersion:
            if self.deletes_other_versions:
                self.file.unlink(missing_ok=True)
            raise

    def _parse(self, content: bytes) -> list[JsonObject]:
        try:
            document: Json = from_json(content)
        except ValueError:
            # What the parser says may quote the file.
            raise ValueError("not JSON") from None
        if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
            raise _OtherVersion(f"not of version {SCHEMA_VERSION}")
        # A member that is not known may be a known one whose name was damaged.
        if document.keys() - {"schema_version", "checksum", self.member}:
            raise ValueError("damaged: it has other members")
        objects = document.get(self.member)
        if not isinstance(objects, list) or not all(isinstance(one, dict) for one in objects):
            raise ValueError(f"no list of {self.member}")
        if "checksum" in document:
            _, _, body = content.partition(b'"%s":' % self.member.encode())
            if document["checksum"] != _sum_of(body.removesuffix(b"}")):
                raise ValueError("damaged: its checksum is another one")
        self._check_count(objects)
        return [self.cleaned(one) for one in objects]

    def _write(self, objects: Sequence[JsonObject]) -> None:
        self._check_count(objects)
        kept = [self.cleaned(one) for one in objects]
        body = to_json(kept)
        start = to_json({"schema_version": SCHEMA_VERSION, "checksum": _sum_of(body)})
        content = b'%s,"%s":%s}' % (start.removesuffix(b"}"), self.member.encode(), body)
        _check_size(content)
        folder = self.file.parent
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        draft = self.file.with_name(f".{self.file.name}.{secrets.token_hex(8)}")
        try:
            number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(number, "wb") as opened:
                opened.write(content)
            draft.replace(self.file)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise

    def _check_count(self, objects: Sequence[JsonObject]) -> None:
        if len(objects) > self.max_objects:
            raise ValueError(f"more than {self.max_objects} {self.member}")


def _sum_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _check_size(content: bytes) -> None:
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"more than {MAX_FILE_BYTES} bytes")
