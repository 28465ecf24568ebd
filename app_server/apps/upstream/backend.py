"""ChatGPT's data on apps beside their tools: the directory, details, a workspace's settings.

Answers are kept by account, so that nobody sees those of another one.
Source: docs/apps.md, "The backend".
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread

from app_server.apps.inventory.cache import MAX_ENTRIES, DirectoryCache
from app_server.apps.inventory.directory import AppDetails, parse_details, parse_directory
from app_server.apps.upstream.outbound import (
    AnswerTooLarge,
    Backend,
    BackendFailed,
    Conversation,
    Owner,
)
from app_server.runtime.http.ttl_cache import TtlCache
from protocol.integrations.apps import AppInfo
from protocol.model import Json, JsonObject

logger = logging.getLogger(__name__)

DIRECTORY_TTL_S = 3600.0
DETAILS_TTL_S = 3600.0
SETTING_TTL_S = 24 * 3600.0
SETTING_RETRY_S = 60.0
"""Seconds before a setting that could not be read is requested again."""

MAX_PAGES = 128
MAX_SETTING_BYTES = 1024 * 1024

KEPT_DETAILS = 1024

DEFAULT_SKU = "codex"
LISTS = "connectors/directory"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendBounds:
    """Bounds of requests to ChatGPT, and of what is kept of their answers."""

    request_s: float = 60.0
    setting_s: float = 10.0
    """For the setting of a workspace, which lists of apps wait for."""
    entries: int = MAX_ENTRIES
    """Of one list."""
    directory_bytes: int = 16 * 1024 * 1024
    """Of all pages of one list."""
    answer_bytes: int = 8 * 1024 * 1024
    """Of one answer about some apps."""
    owners: int = 8
    """Accounts whose directories and settings are kept."""


@dataclass(frozen=True, slots=True)
class KnownDirectory:
    """The directory before anybody is asked."""

    apps: Sequence[AppInfo]
    is_fresh: bool
    """False: a copy from the disk, which may be of any age."""


class AppsBackend:
    """ChatGPT's answers about apps, for all accounts."""

    def __init__(
        self,
        home: Path,
        now: Callable[[], float] = time.monotonic,
        bounds: BackendBounds | None = None,
    ) -> None:
        """`now` gives seconds, from anywhere."""
        self.bounds = bounds = bounds or BackendBounds()
        self._home = home
        self._settings: TtlCache[Owner, bool] = TtlCache(bounds.owners, now)
        self._directories: TtlCache[Owner, Sequence[AppInfo]] = TtlCache(bounds.owners, now)
        self._details: TtlCache[tuple[Owner, str], AppDetails] = TtlCache(KEPT_DETAILS, now)
        self._locks: WeakValueDictionary[tuple[str, Owner], anyio.Lock] = WeakValueDictionary()

    async def workspace_allows(self, backend: Backend) -> bool:
        """Whether the account's workspace lets it use apps; yes if that cannot be found out."""
        identity = backend.account.identity
        if not identity.is_workspace_account or identity.account_id is None:
            return True
        async with self._one_at_a_time("setting", backend):
            allowed = self._settings.get(backend.owner)
            if allowed is None:
                allowed = await self._ask_setting(backend, identity.account_id)
        return allowed

    async def known_directory(self, backend: Backend) -> KnownDirectory | None:
        """Return the directory as far as it is known here, without any request."""
        kept = self._directories.get(backend.owner)
        if kept is not None:
            return KnownDirectory(kept, True)
        entries = await self._cache_of(backend).read()
        if entries is None:
            return None
        return KnownDirectory(await anyio.to_thread.run_sync(parse_directory, entries), False)

    async def directory(self, backend: Backend, *, refetch: bool) -> Sequence[AppInfo]:
        """Return the directory, at most an hour old; `refetch` asks for it now.

        Requests of one account wait for each other, and share what was loaded meanwhile.

        Raises:
            BackendFailed: it cannot be loaded; what was kept stays.
        """
        async with self._one_at_a_time("directory", backend):
            kept = None if refetch else self._directories.get(backend.owner)
            if kept is None:
                entries = await self._load_directory(backend)
                kept = await anyio.to_thread.run_sync(parse_directory, entries)
                self._directories.put(backend.owner, kept, DIRECTORY_TTL_S)
                await self._cache_of(backend).write(entries)
        return kept

    async def details(
        self, backend: Backend, ids: Sequence[str], *, tools: bool
    ) -> Mapping[str, AppDetails]:
        """Return the presentation of apps by id; unknown ids are left out.

        Records are at most an hour old. One that was asked for without tools does not answer for
        them.

        Raises:
            BackendFailed: they cannot be read; what was kept stays.
        """
        owner = backend.owner
        found: dict[str, AppDetails] = {}
        for id_ in ids:
            kept = None if owner is None else self._details.get((owner, id_))
            if kept is not None and (kept.has_tools or not tools):
                found[id_] = kept
        unknown = [id_ for id_ in ids if id_ not in found]
        if unknown:
            fetched = await self._ask_details(backend, unknown, tools=tools)
            for id_, record in fetched.items():
                if owner is not None:
                    self._details.put((owner, id_), record, DETAILS_TTL_S)
            found |= fetched
        return found

    async def _ask_setting(self, backend: Backend, account_id: str) -> bool:
        path = f"accounts/{quote(account_id, safe='')}/settings"
        try:
            async with backend.open() as chatgpt:
                answer = await chatgpt.get(
                    path, {}, timeout_s=self.bounds.setting_s, limit_bytes=MAX_SETTING_BYTES
                )
        except BackendFailed as exc:
            logger.warning("the workspace's setting of apps cannot be read: %s", exc)
            self._settings.put(backend.owner, True, SETTING_RETRY_S)
            return True
        settings = answer.get("beta_settings")
        allowed = not isinstance(settings, dict) or settings.get("plugins") is not False
        self._settings.put(backend.owner, allowed, SETTING_TTL_S)
        return allowed

    async def _load_directory(self, backend: Backend) -> list[JsonObject]:
        lists: dict[str, list[JsonObject]] = {"list": [], "list_workspace": []}
        failure: BackendFailed | None = None

        async def load_workspace() -> None:
            try:
                lists["list_workspace"] = await _load_list(backend, "list_workspace", self.bounds)
            except BackendFailed as exc:
                logger.warning("the workspace's directory of apps cannot be read: %s", exc)

        async with anyio.create_task_group() as tasks:
            if backend.account.identity.is_workspace_account:
                tasks.start_soon(load_workspace)
            try:
                lists["list"] = await _load_list(backend, "list", self.bounds)
            except BackendFailed as exc:
                # Raised here it would come out of the task group wrapped in a group.
                failure = exc
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return [*lists["list"], *lists["list_workspace"]]

    async def _ask_details(
        self, backend: Backend, ids: Sequence[str], *, tools: bool
    ) -> Mapping[str, AppDetails]:
        body: Json = {"app_ids": list(ids), "include_tools": tools}
        async with backend.open() as chatgpt:
            answer = await chatgpt.post(
                "ps/apps/batch",
                body,
                {"OAI-Product-Sku": backend.sku or DEFAULT_SKU},
                timeout_s=self.bounds.request_s,
                limit_bytes=self.bounds.answer_bytes,
            )
        apps = answer.get("apps")
        if not isinstance(apps, list):
            raise BackendFailed("an answer without apps")
        records = await anyio.to_thread.run_sync(parse_details, apps, tools)
        return {id_: records[id_] for id_ in ids if id_ in records}

    def _cache_of(self, backend: Backend) -> DirectoryCache:
        return DirectoryCache(self._home, backend.account.identity, backend.base_url)

    @asynccontextmanager
    async def _one_at_a_time(self, what: str, backend: Backend) -> AsyncIterator[None]:
        """Serialise the requests of one account for one thing."""
        owner = backend.owner
        if owner is None:
            yield
            return
        lock = self._locks.setdefault((what, owner), anyio.Lock())
        async with lock:
            yield


async def _load_list(backend: Backend, name: str, bounds: BackendBounds) -> list[JsonObject]:
    async with backend.open() as chatgpt:
        entries: list[JsonObject] = []
        tokens: set[str] = set()
        query = {"external_logos": "true"}
        for _ in range(MAX_PAGES):
            answer = await _page(chatgpt, name, query, bounds)
            apps = answer.get("apps")
            if not isinstance(apps, list):
                raise BackendFailed("an answer without apps")
            entries += [app for app in apps if isinstance(app, dict)]
            if len(entries) > bounds.entries:
                raise BackendFailed(f"more than {bounds.entries} apps")
            token = answer.get("next_token") or answer.get("nextToken")
            if not isinstance(token, str):
                return entries
            if token in tokens:
                raise BackendFailed("a page that comes twice")
            tokens.add(token)
            query = {"token": token, "external_logos": "true"}
        raise BackendFailed(f"more than {MAX_PAGES} pages")


async def _page(
    chatgpt: Conversation, name: str, query: Mapping[str, str], bounds: BackendBounds
) -> JsonObject:
    path, left = f"{LISTS}/{name}", bounds.directory_bytes - chatgpt.read_bytes
    try:
        return await chatgpt.get(path, query, timeout_s=bounds.request_s, limit_bytes=left)
    except AnswerTooLarge:
        raise BackendFailed(f"more than {bounds.directory_bytes} bytes") from None
