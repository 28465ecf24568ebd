"""A stand-in for the service of apps, for requests of clients: what it gives is scripted."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from app_server.apps.account import AppsUnavailable
from app_server.apps.inventory.cache import CacheIdentity
from app_server.apps.inventory.directory import AppDetails
from app_server.apps.inventory.inventory import Connector, build_inventory
from app_server.apps.upstream.backend import KnownDirectory
from app_server.apps.upstream.outbound import Account, Backend, BackendFailed
from app_server.handlers.integrations.apps_port import AppsPort, AppsSnapshot
from protocol.integrations.apps import AppInfo
from tests.support.apps.inventories import listed
from tests.support.model import Gate

ACCOUNT = Account(
    CacheIdentity("acct-1", None, False), {"Authorization": SecretStr("Bearer s3cr3t-token")}
)


def connectors(*names: str) -> tuple[Connector, ...]:
    """Make connectors with a tool each; the id is the name in lower case."""
    return build_inventory([listed("look", name.lower(), name) for name in names]).installed


def directory(*names: str) -> list[AppInfo]:
    """Make a directory; the id is the name in lower case."""
    return [AppInfo(id=name.lower(), name=name) for name in names]


@dataclass
class Snapshot:
    """What is published, and how many have a share in it."""

    apps: Sequence[Connector]
    is_live: bool = True
    shares: int = 0

    def missing(self, app_ids: Sequence[str]) -> list[str]:
        return [id_ for id_ in app_ids if id_ not in {app.id for app in self.apps}]

    def release(self) -> None:
        """Count one less."""
        assert self.shares > 0, "released more often than taken"
        self.shares -= 1

    def taken(self) -> "Snapshot":
        """Count one more."""
        self.shares += 1
        return self


@dataclass
class FakeBackend:
    """ChatGPT's answers; those that are exceptions are raised."""

    known: KnownDirectory | None = None
    listed: Sequence[AppInfo] | Exception = ()
    records: Mapping[str, AppDetails] | Exception = field(default_factory=dict)
    allowed: bool = True
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    gate: Gate | None = None
    """The directory comes once it is opened."""

    async def workspace_allows(self, backend: Backend) -> bool:
        self.asked.append(("setting", backend))
        return self.allowed

    async def known_directory(self, backend: Backend) -> KnownDirectory | None:
        return self.known

    async def directory(self, backend: Backend, *, refetch: bool) -> Sequence[AppInfo]:
        self.asked.append(("directory", refetch))
        await _passed(self.gate)
        if isinstance(self.listed, Exception):
            raise self.listed
        return self.listed

    async def details(
        self, backend: Backend, ids: Sequence[str], *, tools: bool
    ) -> Mapping[str, AppDetails]:
        self.asked.append(("details", list(ids), tools))
        if isinstance(self.records, Exception):
            raise self.records
        return self.records


async def _passed(gate: Gate | None) -> None:
    if gate is not None:
        gate.reached.set()
        await gate.opened.wait()


@dataclass
class FakeApps:
    """The service of apps."""

    published: Snapshot | None = None
    fresh: Snapshot | Exception | None = None
    """What a fetch publishes."""
    kept: Sequence[Connector] = ()
    backend: FakeBackend = field(default_factory=FakeBackend)
    signed_in: Account | None = ACCOUNT
    accounts: list[Account] = field(default_factory=list)
    """Of the next questions who is signed in, one after the other."""
    plugins: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gate: Gate | None = None
    """Tools come once it is opened."""
    base_url: str | None = None
    asked: list[str] = field(default_factory=list)
    configs: list[Mapping[str, Any]] = field(default_factory=list)
    on_prepare: Callable[[], Awaitable[None]] | None = None

    @property
    def value(self) -> "FakeApps":
        return self

    async def get(self) -> "FakeApps":
        return self

    async def settled(self) -> None:
        pass

    def account(self) -> Account | None:
        return self.accounts.pop(0) if self.accounts else self.signed_in

    def plugin_names(
        self, config: Mapping[str, Any], thread_id: str | None = None
    ) -> Mapping[str, Sequence[str]]:
        return self.plugins

    def current_snapshot(self, config: Mapping[str, Any]) -> AppsSnapshot | None:
        self.configs.append(config)
        return None if self.published is None else self.published.taken()

    async def snapshot_allowing_cached(self, config: Mapping[str, Any]) -> AppsSnapshot | None:
        return await self._fetched("first")

    async def snapshot(self, config: Mapping[str, Any]) -> AppsSnapshot | None:
        return await self._fetched("snapshot")

    async def refresh_snapshot(self, config: Mapping[str, Any]) -> AppsSnapshot | None:
        return await self._fetched("refresh")

    async def known_connectors(self, config: Mapping[str, Any]) -> Sequence[Connector]:
        self.asked.append("known")
        return self.kept

    async def prepare_mcp_servers(self, config: Mapping[str, Any]) -> None:
        self.asked.append("prepare")
        if self.on_prepare is not None:
            await self.on_prepare()

    async def _fetched(self, how: str) -> AppsSnapshot | None:
        self.asked.append(how)
        await _passed(self.gate)
        if isinstance(self.fresh, Exception):
            raise self.fresh
        self.published = self.fresh or self.published
        return None if self.fresh is None else self.fresh.taken()


def as_port(apps: FakeApps) -> AppsPort:
    """Return it as what it stands for, as far as types can tell."""
    return apps


NO_TOOLS = AppsUnavailable("the endpoint is away")
NO_BACKEND = BackendFailed("HTTP status 500")
