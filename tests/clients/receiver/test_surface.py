"""receiver: where signals of an agent go: to an app-server, or to results of tools."""

import itertools
import os
from pathlib import Path

import pytest

from app_server.clients.receiver.agent.environment import (
    SURFACE_VARIABLE,
    THREAD_VARIABLE,
    check_url,
)
from app_server.clients.receiver.agent.strategies import AppServerInjectStrategy, PiggybackStrategy
from app_server.clients.receiver.agent.surface import MAX_ANCESTORS, SurfaceContext
from app_server.transport.address import UnixAddress
from tests.support.event_loop.clock import LoopClock
from tests.support.harness import WAIT_S, serve
from tests.support.receiver.peer import (
    OFF,
    FakeAppServer,
    context,
    envelope,
    parts,
    signal,
)


@pytest.mark.parametrize(
    "url",
    [
        "ws://10.0.0.5:47100",
        "wss://example.com",
        "http://127.0.0.1:1",
        "ws://me:word@127.0.0.1:1",
        "ws://127.0.0.1:1/?key=1",
        "unix://",
        "x",
    ],
)
def test_an_app_server_elsewhere_is_no_app_server(url: str) -> None:
    with pytest.raises(ValueError, match="app-server") as caught:
        check_url(url)

    assert url in ("unix://", "x") or url not in str(caught.value)


async def test_without_a_url_signals_wait_for_tool_results(tmp_path: Path) -> None:
    async with parts(tmp_path) as made:
        await made.surface.on_bootstrap(context())

        strategy = made.surface.signal_strategy()
        assert isinstance(strategy, PiggybackStrategy)
        assert not await strategy.deliver(envelope("s1"))
        assert await made.ledger.pending() == 1


async def test_a_server_on_the_socket_in_the_home_folder_is_found_without_a_url(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    socket = UnixAddress(home / "app-server.sock")
    async with serve(home, listen=[socket]) as served, served.client() as client:
        thread_id = await client.start_thread(cwd="/work")
        async with parts(tmp_path) as made:
            await made.surface.on_bootstrap(SurfaceContext({}, Path("/work"), home))

            assert made.surface.thread_id == thread_id
            assert await made.surface.signal_strategy().deliver(envelope("s1"))


@pytest.mark.parametrize("between", [0, 1, 3, 4])
async def test_the_server_that_the_receiver_runs_in_is_found_without_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: int
) -> None:
    # The server of this test is this process; those between are made up.
    above = [*range(10**9, 10**9 + between), os.getpid()]
    module = "app_server.clients.receiver.agent.surface"
    monkeypatch.setattr(f"{module}.os.getppid", lambda: above[0])
    parents = dict(itertools.pairwise(above))
    monkeypatch.setattr(f"{module}._parent_of", parents.__getitem__)
    home = tmp_path / "home"
    async with serve(home) as served, served.client() as client:
        thread_id = await client.start_thread(cwd="/work")
        async with parts(tmp_path) as made:
            await made.surface.on_bootstrap(SurfaceContext({}, Path("/work"), home))

            is_near = between < MAX_ANCESTORS
            assert made.surface.thread_id == (thread_id if is_near else None)
            assert await made.surface.signal_strategy().deliver(envelope("s1")) is is_near


async def test_a_server_that_the_receiver_does_not_run_in_is_not_taken(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with serve(home) as served, served.client() as client:
        await client.start_thread(cwd="/work")
        async with parts(tmp_path) as made:
            await made.surface.on_bootstrap(SurfaceContext({}, Path("/work"), home))

            assert not made.surface.is_connected


async def test_off_means_that_a_server_is_not_even_asked(tmp_path: Path) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        server.add_thread()
        await made.surface.on_bootstrap(context(server.url, **OFF))

        assert isinstance(made.surface.signal_strategy(), PiggybackStrategy)
        assert server.connections == 0


async def test_a_server_with_a_thread_of_the_folder_gets_signals_injected(tmp_path: Path) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        server.add_thread("elsewhere", cwd="/else", created_at=9)
        server.add_thread("old", created_at=1)
        server.add_thread("t1", created_at=5)
        server.add_thread("helper", created_at=7, parent="t1")
        await made.surface.on_bootstrap(context(server.url))

        strategy = made.surface.signal_strategy()
        assert isinstance(strategy, AppServerInjectStrategy)
        assert await strategy.deliver(envelope("s1"))
        assert await strategy.deliver(envelope("s1"))
        assert server.ids() == ["s1"]
        assert await made.ledger.pending() == 0


async def test_a_folder_is_the_same_by_whichever_links_it_was_reached(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        server.add_thread("elsewhere", cwd=str(tmp_path), created_at=9)
        server.add_thread("t1", cwd=str(link))
        await made.surface.on_bootstrap(context(server.url, cwd=str(real)))

        assert made.surface.thread_id == "t1"


@pytest.mark.parametrize("how", ["refuse", "fail", "close", "hang"])
async def test_a_failed_injection_leaves_the_signal_for_one_tool_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    clock = LoopClock(monkeypatch)
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        server.on_hang = lambda: clock.put_forward(WAIT_S)
        server.add_thread()
        server.inject = how  # type: ignore[assignment]
        await made.surface.on_bootstrap(context(server.url))
        assert not await made.surface.signal_strategy().deliver(envelope("s1"))

        shown = await made.bridge.show()
        assert [(one.envelope, one.is_doubtful) for one in shown.entries] == [
            (envelope("s1"), False)
        ]
        # Now it would work; but the agent has read it.
        server.inject = "ok"
        await made.bridge.drain()
        await made.surface.refresh()
        assert not await made.surface.signal_strategy().deliver(envelope("s1"))
        assert server.texts() == []


@pytest.mark.parametrize(
    "how", ["refuse", "fail", "close", "hang", "keep and close", "keep and fail"]
)
async def test_a_failed_injection_is_made_good_later_and_shown_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    clock = LoopClock(monkeypatch)
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        server.on_hang = lambda: clock.put_forward(WAIT_S)
        server.add_thread()
        server.inject = how  # type: ignore[assignment]
        await made.surface.on_bootstrap(context(server.url))
        for signal_id in ("s1", "s2"):
            await made.bridge.take(signal(signal_id), b"")
        assert not await made.bridge.drain()

        server.inject = "ok"
        assert await made.bridge.drain()
        assert sorted(server.ids()) == ["s1", "s2"]
        assert (await made.bridge.show()).entries == []


async def test_an_item_that_was_written_before_the_connection_broke_is_not_shown_again(
    tmp_path: Path,
) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        server.add_thread()
        server.inject = "keep and close"
        await made.surface.on_bootstrap(context(server.url))
        assert not await made.surface.signal_strategy().deliver(envelope("s1"))

        assert (await made.bridge.show()).entries == []
        assert server.ids() == ["s1"]


async def test_where_no_log_can_be_read_a_signal_is_marked_as_perhaps_seen(
    tmp_path: Path,
) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        thread = server.add_thread()
        server.inject = "close"
        await made.surface.on_bootstrap(context(server.url))
        assert not await made.surface.signal_strategy().deliver(envelope("s1"))
        assert thread.path is not None
        Path(thread.path).unlink()
        server.inject = "ok"

        assert not await made.bridge.drain()
        shown = await made.bridge.show()
        assert [(one.envelope.id, one.is_doubtful) for one in shown.entries] == [("s1", True)]
        assert "thread/inject_items" not in server.methods()[-2:]


async def test_a_thread_that_is_not_loaded_is_resumed_and_tried_once_more(tmp_path: Path) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        server.add_thread().loaded = False
        await made.surface.on_bootstrap(context(server.url, **{THREAD_VARIABLE: "t1"}))

        assert await made.surface.signal_strategy().deliver(envelope("s1"))
        assert server.methods()[-4:] == [
            "thread/inject_items",
            "thread/resume",
            "thread/unsubscribe",
            "thread/inject_items",
        ]
        assert server.ids() == ["s1"]


async def test_a_signal_for_an_unknown_thread_waits(tmp_path: Path) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        await made.surface.on_bootstrap(context(server.url, **{THREAD_VARIABLE: "gone"}))

        assert not await made.surface.signal_strategy().deliver(envelope("s1"))
        assert await made.ledger.pending() == 1


async def test_a_server_that_takes_signals_is_given_them_whole(tmp_path: Path) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        server.add_thread()
        server.receipts = {"s2": "accepted", "s3": "expired"}
        await made.surface.on_bootstrap(context(server.url))
        strategy = made.surface.signal_strategy()

        delivered = [
            await strategy.deliver(envelope(name, delivery_class="sync", created_at=5, ttl_s=9))
            for name in ("s1", "s2", "s3")
        ]

        # The second is in the server's ledger, the third in ours alone.
        assert delivered == [True, False, False]
        assert [entry.envelope.id for entry in (await made.ledger.show(9, 9999)).entries] == ["s3"]
        assert server.requests[-3] == (
            "signal/deliver",
            {
                "signal": {
                    "id": "s1",
                    "source": "Prism",
                    "type": "Question",
                    "sender": "Desiree",
                    "summary": "about s1",
                    "payload": {"summary": "about s1", "more": [1, 2]},
                    "createdAt": 5,
                    "ttlSeconds": 9,
                },
                "target": {"threadId": "t1"},
                "mode": "wake",
                "payloadTool": None,
            },
        )


async def test_a_server_that_takes_signals_is_asked_for_what_it_has_before_one_is_shown(
    tmp_path: Path,
) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        server.add_thread()
        server.receipts = {}
        await made.surface.on_bootstrap(context(server.url))
        for how, name in (("keep and close", "kept"), ("ok", "other")):
            server.inject = how  # type: ignore[assignment]
            await made.surface.refresh()
            await made.surface.signal_strategy().deliver(envelope(name))
        await made.bridge.take(signal("lost"), b"")
        await made.ledger.begin("lost", "t1", None, log_was_there=False)
        await made.ledger.doubt("lost")

        shown = (await made.bridge.show()).entries
        assert [(one.envelope.id, one.is_doubtful) for one in shown] == [("lost", True)]


async def test_a_time_to_live_that_the_server_cannot_hold_means_always(tmp_path: Path) -> None:
    async with serve(tmp_path / "home") as served, served.client() as client:
        thread_id = await client.start_thread(cwd="/work")
        async with parts(tmp_path) as made:
            await made.surface.on_bootstrap(context(served.urls[0]))
            for name, ttl_s in (("s1", 2**32 - 1), ("s2", 2**32)):
                one = envelope(name, created_at=1, ttl_s=ttl_s)
                assert await made.surface.signal_strategy().deliver(one)

        listed = (await client.call("signal/list", {"threadId": thread_id}))["data"]
        assert [(one["signalId"], one["stage"]) for one in listed] == [
            ("s2", "inHistory"),
            ("s1", "inHistory"),
        ]


async def test_an_agent_that_is_not_codex_has_no_app_server(tmp_path: Path) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        server.add_thread()
        await made.surface.on_bootstrap(context(server.url, **{SURFACE_VARIABLE: "claude"}))

        assert isinstance(made.surface.signal_strategy(), PiggybackStrategy)
        assert server.connections == 0


@pytest.mark.parametrize("before", ["accepted", "uncertain"])
@pytest.mark.parametrize("stage", ["accepted", "inHistory", "expired", None])
async def test_an_answer_about_an_earlier_injection_changes_none_under_way(
    tmp_path: Path, before: str, stage: str | None
) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        server.add_thread()
        server.receipts = {} if stage is None else {"s1": stage}
        server.kept = [] if stage is None else ["s1"]
        await made.surface.on_bootstrap(context(server.url))
        ledger = made.ledger
        await ledger.take(envelope("s1"))
        await ledger.begin("s1", "t1", None, log_was_there=False)
        if before == "accepted":
            await ledger.accepted("s1", "injecting")
        else:
            await ledger.doubt("s1")
        read = await ledger.entry("s1")
        assert read is not None
        await ledger.resolve("s1", read.state, is_in_thread=False)
        await ledger.begin("s1", "t1", None, log_was_there=False)

        await made.surface.follow([read])

        now = await ledger.entry("s1")
        assert (read.state, now and now.state) == (before, "injecting")
