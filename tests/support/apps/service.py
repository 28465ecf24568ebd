"""The service of apps with an account and an endpoint that a test controls."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from app_server.apps.account import AuthState, PluginPort
from app_server.apps.connection import Timer
from app_server.apps.service import AppsService, Snapshot
from app_server.clients.demo.hosted.endpoint import Call, Run
from app_server.extensions.contract.registration import ContributionContext, Registration
from tests.support.apps.hosted import Hosted, connector, serve_hosted
from tests.support.harness import WAIT_S

LIST = "tools/list"


@dataclass(frozen=True)
class Who:
    """Somebody's credentials."""

    token: str
    account_id: str | None = "demo-account"
    chatgpt_user_id: str | None = "user"
    is_workspace: bool = False
    is_chatgpt: bool = True


@dataclass(frozen=True)
class State:
    """Credentials and their revision."""

    credentials: Who | None
    revision: int


@dataclass
class Auth:
    """An AuthPort that says what it is told."""

    state: State
    listeners: list[Callable[[AuthState], None]] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Tokens for those that are refused."""
    refused: list[str] = field(default_factory=list)
    on_fresh: list[Callable[[], None]] = field(default_factory=list)

    def current(self) -> State:
        return self.state

    def subscribe(self, listener: Callable[[AuthState], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    is_recent = False
    """Whoever asks may look."""

    async def look(self) -> State:
        return self.state

    async def fresh(self) -> State:
        """Do what was put on the list for such an occasion."""
        if self.on_fresh:
            self.on_fresh.pop(0)()
        return self.state

    async def renewed(self, refused: str) -> State:
        self.refused.append(refused)
        if self.others and self.state.credentials is not None:
            self.renew(self.others.pop(0))
        return self.state

    def renew(self, token: str) -> None:
        """Have another token of the same account."""
        assert self.state.credentials is not None
        self.state = State(replace(self.state.credentials, token=token), self.state.revision)
        for listener in self.listeners:
            listener(self.state)

    def change(self, credentials: Who | None) -> None:
        """Sign in or out."""
        self.state = State(credentials, self.state.revision + 1)
        for listener in self.listeners:
            listener(self.state)


class NoPlugins:
    """A PluginPort without plugins."""

    def revision(self) -> int:
        return 0

    def app_names(
        self, config: Mapping[str, Any], thread_id: str | None = None
    ) -> Mapping[str, Sequence[str]]:
        return {}


class Clock:
    """Waits that end when the test lets them."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits: list[float] = []
        self.begun = asyncio.Event()
        self._over = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.begun.set()
        await self._over.wait()

    async def until_waiting(self) -> None:
        """Return once somebody waits."""
        with anyio.fail_after(WAIT_S):
            await self.begun.wait()
        self.begun.clear()

    def pass_by(self) -> None:
        """Let all waits end."""
        self._over.set()
        self._over = asyncio.Event()


@dataclass
class Apps:
    """A service with its endpoint, its account and its clock."""

    service: AppsService
    hosted: Hosted
    auth: Auth
    clock: Clock

    @property
    def config(self) -> dict[str, Any]:
        return {"chatgpt_base_url": self.hosted.endpoint.base_url}

    def registrations(self, mode: Any = "current", **more: Any) -> list[Registration]:
        context = ContributionContext(mode, {**self.config, **more}, "thread")
        return list(self.service.contribute(context))

    def contribute(self, mode: Any = "discover", **more: Any) -> list[str]:
        return [one.name for one in self.registrations(mode, **more)]

    async def published(self, revision: int) -> None:
        """Return once something newer than a revision is published."""
        with anyio.fail_after(WAIT_S):
            while self.service.revision() <= revision:
                await anyio.sleep(0.001)

    def fetches(self) -> int:
        return self.hosted.script.names().count(LIST)

    def has_fetched(self, times: int) -> bool:
        return self.fetches() >= times


async def nothing(call: Call) -> Any:
    return {"content": [{"type": "text", "text": "did"}]}


def runs(*names: str) -> list[tuple[str, Run]]:
    return [(name, nothing) for name in names]


@asynccontextmanager
async def open_apps(
    home: Path, served: Hosted | None = None, plugins: PluginPort | None = None
) -> AsyncIterator[Apps]:
    async with AsyncExitStack() as stack:
        one = connector(*runs("look"), id_="cal")
        if served is None:
            served = await stack.enter_async_context(serve_hosted([one]))
        hosted = served
        auth = Auth(State(Who(hosted.endpoint.token.get_secret_value()), 1))
        clock = Clock()
        service = AppsService(
            home,
            auth,
            plugins or NoPlugins(),
            environ={},
            timer=Timer(lambda: clock.now_s, clock.sleep),
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(service.run)
            try:
                yield Apps(service, hosted, auth, clock)
            finally:
                service.begin_shutdown()


BOTH = ["codex_apps", "codex_apps__cal"]


async def served(apps: Apps) -> Snapshot:
    snapshot = await apps.service.refresh_snapshot(apps.config)
    assert snapshot is not None
    return snapshot
