"""mcp: instances of servers, from one connection to the next, and the threads that share them."""

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from app_server.mcp.catalog.config import HttpTransport, McpSettings, ServerConfig, StdioTransport
from app_server.mcp.connection import ConnectionOwner
from app_server.mcp.errors import ClientUnavailable, StartupFailed
from app_server.mcp.record import MAX_FAULTS, MAX_LOG_LINE_BYTES, ServerRecord, log_line
from app_server.mcp.servers import pool as pool_module
from app_server.mcp.servers.pool import OwnerShare, ServerInstance, ServerPool
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.servers.waits import WantedServers, wait_for_grace, wait_for_wanted
from app_server.mcp.tools.listing import Listing
from app_server.mcp_wire.errors import RequestRefused, TransportClosed
from app_server.mcp_wire.json_rpc_client import Caller
from app_server.runtime.late_event import LateEvent
from protocol.model import JsonObject
from tests.support.harness import WAIT_S
from tests.support.mcp_peers.calls import read
from tests.support.mcp_peers.no_processes import NoProcesses
from tests.support.mcp_peers.shelf import Generation

KNOWN = ServerConfig("s", HttpTransport("http://127.0.0.1:9/mcp"), known=Listing())
SHARED = ServerConfig("s", StdioTransport("s"), share="home")


class User:
    """A server of one thread that notes what comes."""

    def __init__(self, name: str = "", *, can_elicit: bool = True) -> None:
        self.name = name
        self.can_elicit = can_elicit
        self.changes = 0
        self.listing: Listing | None = None
        self.list_is_old = True
        self.asked: list[JsonObject] = []
        self.log: list[bytes] = []
        self.owner = Generation("gen")
        self.owner_share = OwnerShare(replace(KNOWN, owner=self.owner))
        self.owner_share.is_connected = True
        self.owner_share.leave()

    def relist(self, listing: Listing, *, is_old: bool) -> None:
        self.listing, self.list_is_old = listing, is_old

    def tools_changed(self) -> None:
        self.changes += 1

    def logged(self, line: bytes, caller: Caller | None) -> None:
        self.log.append(line)

    async def elicit(self, params: JsonObject, caller: Caller | None) -> JsonObject:
        self.asked.append(params)
        return {"action": "accept", "content": {"by": self.name}}


class Line:
    """A live connection; `wait` takes until `answered`."""

    def __init__(self, *, keeps_session: bool = True) -> None:
        self.closed = LateEvent()
        self.keeps_session = keeps_session
        self.pid = 7
        self.answered = anyio.Event()
        self.callers: list[Any] = []

    async def request(self, method: str, params: JsonObject, **options: Any) -> JsonObject:
        self.callers.append(options["caller"])
        if method == "wait":
            await self.answered.wait()
        return {"method": method}


Connect = Callable[[ConnectionOwner], Awaitable[None]]


@asynccontextmanager
async def instance_of(
    monkeypatch: pytest.MonkeyPatch, connect: Connect, config: ServerConfig = SHARED
) -> AsyncIterator[ServerInstance]:
    """Give an instance whose connections are what `connect` holds."""

    async def hold(config: Any, cwd: str, owner: ConnectionOwner, processes: Any) -> None:
        await connect(owner)

    monkeypatch.setattr(pool_module, "hold_connection", hold)
    async with anyio.create_task_group() as tasks:
        is_shared = config is not KNOWN
        yield ServerInstance(config, "/", NoProcesses(), tasks, is_shared=is_shared)
        tasks.cancel_scope.cancel()


async def test_a_connection_that_is_closed_ends_its_server_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []
    begun = anyio.Event()

    async def connect(owner: ConnectionOwner) -> None:
        begun.set()
        if len(steps) == 0:
            owner.ready(Line(), Listing())
        try:
            await anyio.sleep_forever()
        finally:
            steps.append("disconnected")

    async with instance_of(monkeypatch, connect, KNOWN) as instance:
        idle, used, early = User(), User(), User()
        connection = instance.join(idle)
        for _ in range(2):
            connection.close(keep_warm=False)
        assert idle.owner.leases == 0
        with pytest.raises(TransportClosed):
            await connection.request("ping", {})
        connection = instance.join(used)
        await connection.request("ping", {})
        connection.close(keep_warm=True)
        assert used.owner.leases == 1
        await until_over(instance)
        assert used.owner.leases == 0
        assert (steps, instance.is_over) == (["disconnected"], True)
        begun = anyio.Event()
        connection = instance.join(early)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(must_end, connection)
            with anyio.fail_after(WAIT_S):
                await begun.wait()
            connection.close(keep_warm=False)
        await until_over(instance)
        assert early.owner.leases == 0


async def until_over(instance: ServerInstance) -> None:
    """Wait until no connection is left."""
    with anyio.fail_after(WAIT_S):
        while not instance.is_over:
            await anyio.lowlevel.checkpoint()


async def must_end(connection: Any, method: str = "wait") -> None:
    """Make a request that the end of its connection ends."""
    with pytest.raises(TransportClosed):
        await connection.request(method, {})


async def test_a_server_ends_when_no_thread_uses_it_and_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []
    ended = anyio.Event()

    async def connect(owner: ConnectionOwner) -> None:
        steps.append("connected")
        owner.ready(Line(), Listing())
        owner.tools_changed()
        asked = await owner.elicit({"mode": "form"}, None)
        assert asked == {"action": "accept", "content": {"by": ""}}
        await owner.stop.wait()
        steps.append("ended")
        ended.set()

    async with instance_of(monkeypatch, connect, KNOWN) as instance:
        instance.idle_s = 0.0
        user = User()
        connection = instance.join(user)
        for _ in range(2):
            ended = anyio.Event()
            assert await connection.request("ping", {}) == {"method": "ping"}
            with anyio.fail_after(WAIT_S):
                await ended.wait()
        assert steps == ["connected", "ended"] * 2
        assert (user.changes, user.asked) == (2, [{"mode": "form"}] * 2)


@pytest.mark.parametrize("config", [KNOWN, SHARED])
async def test_a_connection_that_breaks_fails_its_requests_and_no_later_ones(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, config: ServerConfig
) -> None:
    tries = 0
    waits: list[float] = []

    async def connect(owner: ConnectionOwner) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise RuntimeError("broken")
        if tries < 4:
            owner.failed(StartupFailed("no"))
            return
        owner.ready(Line(), Listing())
        await owner.stop.wait()

    async def sleep_until(deadline: float) -> None:
        waits.append(max(0, round(deadline - anyio.current_time())))
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr("app_server.mcp.servers.pool.anyio.sleep_until", sleep_until)
    async with instance_of(monkeypatch, connect, config) as instance:
        connection = instance.join(User())
        for reason in ("the connection broke", "no", "no"):
            with pytest.raises(ClientUnavailable, match=reason):
                await connection.request("ping", {})
        assert await connection.request("ping", {}) == {"method": "ping"}
        assert (tries, instance.failure) == (4, None)
    # The server of several threads is not started over and over.
    assert waits == ([0, 0, 1, 2] if config is SHARED else [0, 0, 0, 0])
    assert "MCP server s: its connection broke" in caplog.text


async def test_the_end_of_a_server_fails_each_running_call_once_and_waits_grow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[Line] = []
    waits: list[float] = []

    class Dying(Line):
        async def request(self, method: str, params: JsonObject, **options: Any) -> JsonObject:
            if method != "die":
                return await super().request(method, params, **options)
            self.closed.set()
            raise TransportClosed

    async def connect(owner: ConnectionOwner) -> None:
        lines.append(Dying())
        owner.ready(lines[-1], Listing())
        await lines[-1].closed.wait()
        owner.lost("the server ended: exit status 1: boom")

    async def sleep_until(deadline: float) -> None:
        waits.append(max(0, round(deadline - anyio.current_time())))
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr("app_server.mcp.servers.pool.anyio.sleep_until", sleep_until)
    async with instance_of(monkeypatch, connect) as instance:
        one, two = instance.join(User("one")), instance.join(User("two"))
        assert instance.record.shared_by == 2
        for _ in range(9):
            await must_end(one, "die")
            assert await two.request("ping", {}) == {"method": "ping"}
        assert (len(lines), instance.record.restarts) == (10, 9)
        assert instance.record.last_error == "s: the server ended: exit status 1: boom"
    assert waits == [0, 0, 1, 2, 4, 8, 16, 30, 30, 30]


async def test_a_question_that_names_no_call_goes_to_the_only_thread_that_calls(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owners: list[ConnectionOwner] = []
    line = Line()

    async def connect(owner: ConnectionOwner) -> None:
        owners.append(owner)
        owner.ready(line, Listing())
        await owner.stop.wait()

    async def ask() -> Any:
        return (await owners[0].elicit({}, None))["content"]["by"]

    async with instance_of(monkeypatch, connect) as instance:
        users = [User("one"), User("two")]
        one, two = (instance.join(user) for user in users)
        await one.start()
        await two.request("ping", {})
        assert await ask() == "two"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.request, "wait", {})
            await anyio.wait_all_tasks_blocked()
            assert await ask() == "one"
            tasks.start_soon(two.request, "wait", {})
            await anyio.wait_all_tasks_blocked()
            with caplog.at_level(logging.WARNING), pytest.raises(RequestRefused) as refused:
                await ask()
            text = "the question names no call, and 2 threads could be meant"
            assert str(refused.value) == text
            assert instance.record.last_error == f"a question of the server was refused: {text}"
            assert text in caplog.text
            # One that names its call is asked.
            assert line.callers[-2:] == [Caller(one), Caller(two)]
            assert (await one.elicit({}, line.callers[-2]))["content"] == {"by": "one"}
            line.answered.set()
        # Who called last is gone, and two are left.
        third = instance.join(User("three"))
        await third.request("ping", {})
        third.close(keep_warm=True)
        with pytest.raises(RequestRefused):
            await ask()
        two.close(keep_warm=True)
        assert await ask() == "one"
        assert await two.elicit({}, None) == {"action": "cancel"}
        nobody = instance.join(User(can_elicit=False))
        with pytest.raises(RequestRefused, match="nobody can be asked here"):
            await nobody.elicit({}, None)


async def test_a_question_goes_to_a_thread_that_calls_on_the_connection_it_came_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owners: list[ConnectionOwner] = []
    line = Line()

    async def connect(owner: ConnectionOwner) -> None:
        owners.append(owner)
        owner.ready(line, Listing())
        await owner.stop.wait()

    async def asked() -> list[str]:
        return [(await owner.elicit({}, None))["content"]["by"] for owner in owners]

    async with instance_of(monkeypatch, connect) as instance:
        one, two = (instance.join(User(name)) for name in ("one", "two"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(two.request, "wait", {})
            await anyio.wait_all_tasks_blocked()
            instance.restart()
            await one.request("ping", {})
            assert await asked() == ["two", "one"]
            tasks.start_soon(one.request, "wait", {})
            await anyio.wait_all_tasks_blocked()
            assert await asked() == ["two", "one"]
            line.answered.set()


async def test_what_a_server_lists_after_a_restart_is_given_to_all_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listings = [Listing(tools={name: {"name": name}}) for name in ("a", "a", "b")]
    lines: list[Line] = []

    async def connect(owner: ConnectionOwner) -> None:
        lines.append(Line())
        owner.ready(lines[-1], listings[len(lines) - 1])
        await lines[-1].closed.wait()

    async with instance_of(monkeypatch, connect) as instance:
        users = [User(), User()]
        one, _ = (instance.join(user) for user in users)
        for listing in listings:
            # One that comes has no list, also if the server lists what it did before.
            users.append(User())
            instance.join(users[-1])
            await one.start()
            given = [(user.listing, user.list_is_old) for user in users]
            assert given == [(listing, False)] * len(users)
            lines[-1].closed.set()


@pytest.mark.parametrize("late", ["fails", "is ready"])
async def test_a_start_that_is_replaced_is_given_up_and_its_requests_go_to_the_next(
    monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    begun, ended = anyio.Event(), anyio.Event()
    tries = 0

    async def connect(owner: ConnectionOwner) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            begun.set()
            try:
                await anyio.sleep_forever()
            finally:
                if late == "fails":
                    owner.failed(StartupFailed("late"))
                else:
                    owner.ready(Line(), Listing())
                ended.set()
        owner.ready(Line(), Listing())
        await owner.stop.wait()

    async def ask() -> None:
        assert await one.request("ping", {}) == {"method": "ping"}

    async with instance_of(monkeypatch, connect) as instance:
        one, two = instance.join(User("one")), instance.join(User("two"))
        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await begun.wait()
                instance.restart()
                assert await two.request("ping", {}) == {"method": "ping"}
            await ended.wait()
        record = instance.record
        assert (instance.failure, record.last_error, record.restarts) == (None, None, 0)
        assert tries == 2


async def test_a_server_that_waits_for_its_next_start_starts_at_once_with_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = 0
    waits = anyio.Event()

    async def connect(owner: ConnectionOwner) -> None:
        nonlocal tries
        tries += 1
        if tries <= 2:
            owner.failed(StartupFailed("no"))
            return
        owner.ready(Line(), Listing())
        await owner.stop.wait()

    async def sleep_until(deadline: float) -> None:
        if deadline > anyio.current_time():
            waits.set()
            await anyio.sleep_forever()

    monkeypatch.setattr("app_server.mcp.servers.pool.anyio.sleep_until", sleep_until)
    async with instance_of(monkeypatch, connect) as instance:
        connection = instance.join(User())
        for _ in range(2):
            with pytest.raises(ClientUnavailable, match="no"):
                await connection.request("ping", {})
        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(connection.request, "ping", {})
                await waits.wait()
                instance.restart()
        assert (tries, instance.failure) == (3, None)


async def test_settings_that_make_another_process_make_another_instance() -> None:
    web = ServerConfig("w", HttpTransport("http://127.0.0.1:9/mcp", header_command="x"))

    def named(name: str = "s", share: str | None = "home", **more: Any) -> ServerConfig:
        return ServerConfig(name, StdioTransport("s", **more), share=share)

    pool = ServerPool(NoProcesses())
    async with anyio.create_task_group() as own:

        def found(config: ServerConfig, cwd: str = "/") -> ServerInstance | None:
            instance = pool.instance_of(config, cwd, own, can_elicit=True)
            if instance is not None:
                instance.join(User())
            return instance

        assert found(named()) is None
        own.start_soon(pool.run)
        await anyio.wait_all_tasks_blocked()
        assert found(named(share="thread")) is None
        first = found(named())
        assert first is not None
        assert found(named()) is first
        fixed = found(named(cwd="/x"))
        folder = found(named(cwd="/x", share="folder"))
        others = [
            found(named(), "/else"),
            found(named("t")),
            found(named(args=["1"])),
            found(named(env={"A": "1"})),
            fixed,
            folder,
            found(named(cwd="/x", share="folder"), "/else"),
        ]
        assert len({id(one) for one in (first, *others)}) == len(others) + 1
        assert found(named(cwd="/x"), "/else") is fixed
        assert found(named(cwd="/x", share="folder")) is folder
        # A server behind a URL is shared once it is known that it keeps no session.
        for keeps_session in (True, False, True):
            pool.learned(web, "/").keeps_session = keeps_session
            assert (found(web) is None) == keeps_session
        pool.learned(web, "/").keeps_session = False
        assert found(web, "/else") is None
        await pool.aclose()
        assert found(named()) is None


@pytest.mark.parametrize("share", ["thread", "home"])
@pytest.mark.parametrize("grace", [False, True])
@pytest.mark.parametrize("how", ["restart", "update"])
async def test_a_lazy_server_that_is_waited_for_and_replaced_starts_in_its_place(
    monkeypatch: pytest.MonkeyPatch, share: str, grace: bool, how: str
) -> None:
    begun = anyio.Event()

    async def hold(config: Any, cwd: str, owner: ConnectionOwner, processes: Any) -> None:
        if not begun.is_set():
            begun.set()
            await anyio.sleep_forever()
        owner.ready(Line(), Listing())
        await owner.stop.wait()

    async def wait_for_all() -> None:
        if grace:
            await wait_for_grace(servers, math.inf)
        else:
            await wait_for_wanted(servers, WantedServers(frozenset({"s"})))
        waited.set()

    def lazy(*arguments: str) -> McpSettings:
        table = {"command": "s", "args": list(arguments), "lazy": True, "share": share}
        settings: McpSettings = read({"s": table})
        return settings

    monkeypatch.setattr(pool_module, "hold_connection", hold)
    waited = anyio.Event()
    pool = ServerPool(NoProcesses())
    servers = ServerSet(lazy(), "/", pool, lambda *_: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.run)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(servers.run)
        servers.revive()
        tasks.start_soon(wait_for_all)
        with anyio.fail_after(WAIT_S):
            await begun.wait()
            if how == "restart":
                servers.restart("s")
            else:
                servers.update(lazy("other"))
            await waited.wait()
        assert servers.servers["s"].status == "connected"
        servers.stop()
        tasks.cancel_scope.cancel()


async def test_a_server_that_started_at_its_second_try_keeps_its_owner_while_it_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = 0

    async def hold(config: Any, cwd: str, owner: ConnectionOwner, processes: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            owner.failed(StartupFailed("away", transient=True))
            return
        owner.ready(Line(), Listing())
        await owner.stop.wait()

    monkeypatch.setattr(pool_module, "hold_connection", hold)
    owner = Generation("gen")
    settings = read({})
    config = replace(SHARED, owner=owner)
    pool = ServerPool(NoProcesses())
    pool.retry_waits_s = (0, 0)
    servers = ServerSet(replace(settings, servers={"s": config}), "/", pool, lambda *_: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.run)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(servers.run)
        with anyio.fail_after(WAIT_S):
            with (await servers.decided("s")).lease() as connection:
                assert (await connection.request("ping", {}), tries) == ({"method": "ping"}, 2)
                servers.update(settings)
                assert owner.leases == 1
            while owner.leases:
                await anyio.lowlevel.checkpoint()
        servers.stop()
        tasks.cancel_scope.cancel()


async def test_a_message_of_the_log_that_names_no_call_is_kept_for_those_who_may_be_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owners: list[ConnectionOwner] = []
    line = Line()

    async def connect(owner: ConnectionOwner) -> None:
        owners.append(owner)
        owner.ready(line, Listing())
        await owner.stop.wait()

    async with instance_of(monkeypatch, connect) as instance:
        users = [User("one"), User("two")]
        one, two = (instance.join(user) for user in users)
        await one.start()
        async with anyio.create_task_group() as tasks:
            owners[0].logged(b"nobody calls\n", None)
            tasks.start_soon(one.request, "wait", {})
            await anyio.wait_all_tasks_blocked()
            owners[0].logged(b"one calls\n", None)
            tasks.start_soon(two.request, "wait", {})
            await anyio.wait_all_tasks_blocked()
            owners[0].logged(b"two call\n", None)
            two.logged(b"it is of the second\n", Caller(two))
            line.answered.set()
        assert [user.log for user in users] == [[b"one calls\n"], [b"it is of the second\n"]]
        assert instance.record.output.text() == "nobody calls\ntwo call\n"
        two.close(keep_warm=True)
        two.logged(b"late\n", Caller(two))
        assert users[1].log == [b"it is of the second\n"]


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"level": "error", "data": "a\nb"}, b"[error] a b\n"),
        ({"level": "info", "logger": "db", "data": {"a": [1]}}, b'[info db] {"a":[1]}\n'),
        ({}, b"[None] null\n"),
    ],
)
def test_a_message_of_the_log_is_one_line(params: Any, line: bytes) -> None:
    assert log_line(params) == line


def test_a_long_message_of_the_log_is_cut() -> None:
    line = log_line({"level": "info", "data": "x" * 100_000})
    assert MAX_LOG_LINE_BYTES <= len(line) < MAX_LOG_LINE_BYTES + 100


def test_what_a_server_does_over_and_over_is_a_bounded_number_of_lines_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    record = ServerRecord(SHARED)
    for number in range(3 * MAX_FAULTS):
        record.misbehaved(f"sent {number}")
        record.misbehaved("did the same")
    assert len(caplog.records) == MAX_FAULTS
    assert record.last_fault == "did the same"


@pytest.mark.parametrize("how", ["restart", "death"])
async def test_what_a_server_still_says_when_the_next_one_runs_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    owners: list[ConnectionOwner] = []
    lines: list[Line] = []

    async def connect(owner: ConnectionOwner) -> None:
        owners.append(owner)
        lines.append(Line())
        owner.learned.protocol_version = "2025-06-18"
        owner.ready(lines[-1], Listing())
        await owner.stop.wait()

    async with instance_of(monkeypatch, connect, KNOWN) as instance:
        connection = instance.join(User())
        await connection.request("ping", {})
        if how == "restart":
            instance.restart()
        else:
            lines[0].closed.set()
        assert how == "death" or instance.learned.protocol_version is None
        await connection.request("ping", {})
        owners[0].lost("it has ended")
        assert instance.learned.protocol_version == "2025-06-18"
