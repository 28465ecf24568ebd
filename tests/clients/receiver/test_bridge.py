"""receiver: the bridge without processes: what it carries, keeps and gives up."""

from pathlib import Path

import anyio
import pytest

from app_server.clients.receiver.agent.environment import THREAD_VARIABLE
from app_server.clients.receiver.agent.item import Presence, find_in_log
from app_server.clients.receiver.agent.strategies import PiggybackStrategy
from app_server.clients.receiver.backoff import Backoff
from app_server.clients.receiver.ledger import DUE
from tests.support.harness import WAIT_S, serve, write_config
from tests.support.model import says
from tests.support.receiver.peer import (
    NOW,
    FakeAppServer,
    Parts,
    context,
    limit_pages,
    parts,
    signal,
)
from tests.support.receiver.stages import unload


async def test_waiting_grows_from_1_to_30_s_and_begins_anew_after_a_success() -> None:
    waited: list[float] = []

    async def sleep(delay_s: float) -> None:
        waited.append(delay_s)

    backoff = Backoff(sleep, chance=lambda: 0.5)
    for _ in range(7):
        await backoff.wait()
    backoff.reset()
    await backoff.wait()
    await backoff.wait(at_most=True)

    assert waited == [1.0, 1.5, 3.0, 6.0, 12.0, 22.5, 22.5, 1.0, 22.5]
    assert Backoff(chance=lambda: 0.0).next_delay_s() == 1.0


async def test_beginning_and_ending_a_session_twice_is_harmless(tmp_path: Path) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        server.add_thread()
        session = context(server.url)
        for _ in range(2):
            await made.surface.on_bootstrap(session)
            await made.surface.on_bootstrap(session)
            assert (server.connections, made.surface.thread_id) == (1, "t1")
            await made.surface.on_wrap(session)
            await made.surface.on_wrap(session)
            assert (made.surface.is_connected, made.surface.thread_id) == (False, None)
            assert isinstance(made.surface.signal_strategy(), PiggybackStrategy)
            server.connections = 0


async def test_however_many_signals_wait_they_are_injected_at_once_and_in_their_order(
    tmp_path: Path,
) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        server.add_thread()
        await made.surface.on_bootstrap(context(server.url))
        names = [f"s{number}" for number in range(DUE + 1)]
        for name in names:
            await made.bridge.take(signal(name), b"")

        assert await made.bridge.drain()
        assert server.ids() == names


async def test_a_signal_that_the_server_always_refuses_does_not_hold_up_the_others(
    tmp_path: Path,
) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        server.add_thread()
        server.receipts = {"bad": "failed"}
        await made.surface.on_bootstrap(context(server.url))
        await made.bridge.take(signal("bad"), b"")
        await made.bridge.take(signal("good"), b"")

        rounds = [await made.bridge.drain() for _ in range(6)]

        assert rounds == [False, False, False, False, True, True]
        delivered = [p["signal"]["id"] for m, p in server.requests if m == "signal/deliver"]
        assert delivered == ["bad", "good", "bad", "bad", "bad", "bad"]
        assert await made.ledger.pending() == 1


async def test_a_server_that_comes_back_is_used_again_for_the_next_signal(tmp_path: Path) -> None:
    async with parts(tmp_path) as made:
        fake = FakeAppServer(tmp_path)
        async with fake.listen() as server:
            server.add_thread()
            url = server.url
            await made.surface.on_bootstrap(context(url))
            await made.bridge.take(signal("s1"), b"")
            assert await made.bridge.drain()
        await made.bridge.take(signal("s2"), b"")
        assert not await made.bridge.drain()
        assert isinstance(made.surface.signal_strategy(), PiggybackStrategy)
        async with fake.listen() as server:
            await made.surface.on_bootstrap(context(server.url))
            assert await made.bridge.drain()

        assert fake.ids() == ["s1", "s2"]
        assert await made.ledger.pending() == 0


async def test_a_signal_whose_time_is_over_is_neither_injected_nor_shown(tmp_path: Path) -> None:
    times = iter([100, 160, 161, 161])
    async with parts(tmp_path, now=lambda: next(times)) as made:
        await made.bridge.take(signal("s1", created_at=100, ttl_s=60), b"")
        await made.bridge.take(signal("s2"), b"")
        await made.bridge.drain()
        shown = await made.bridge.show()

        assert [entry.envelope.id for entry in shown.entries] == ["s2"]


async def test_what_is_no_signal_is_buried_and_its_content_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with parts(tmp_path) as made:
        await made.bridge.take({"payload": "secret"}, b'{"signal":{"payload":"secret"}}')

        assert await made.ledger.dead_letters.all() == [
            (
                1_800_000_000,
                "`signal_type` must be 1 to 200 printable characters",
                b'{"signal":{"payload":"secret"}}',
            )
        ]
        assert "secret" not in caplog.text


async def test_a_signal_waits_with_the_router_until_the_ledger_has_room(tmp_path: Path) -> None:
    async with parts(tmp_path, max_open=1) as made:
        await made.bridge.take(signal("s1"), b"")
        taken = anyio.Event()

        async def take_another() -> None:
            await made.bridge.take(signal("s2"), b"")
            taken.set()

        made.tasks.start_soon(take_another)
        await anyio.wait_all_tasks_blocked()
        shown = await made.bridge.show()
        assert [entry.envelope.id for entry in shown.entries] == ["s1"]
        assert not taken.is_set()
        await made.bridge.ack(["s1"])

        with anyio.fail_after(WAIT_S):
            await taken.wait()


async def test_a_disk_that_is_full_leaves_signals_with_the_router_until_it_is_not(
    tmp_path: Path,
) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        server.add_thread()
        await made.surface.on_bootstrap(context(server.url))
        taken = anyio.Event()

        async def take() -> None:
            await made.bridge.take(signal("s1", payload="x" * 50_000), b"")
            taken.set()

        await limit_pages(made.ledger, 12)
        made.tasks.start_soon(take)
        made.tasks.start_soon(made.bridge.carry)
        await anyio.wait_all_tasks_blocked()
        assert not taken.is_set()
        await limit_pages(made.ledger, 1_000_000)
        await made.bridge.ack([])
        with anyio.fail_after(WAIT_S):
            await taken.wait()

        await _until_settled(made, "s1")
        assert server.ids() == ["s1"]


async def test_the_bridge_carries_what_it_finds_and_what_comes(tmp_path: Path) -> None:
    async with FakeAppServer(tmp_path).listen() as server:
        server.add_thread()
        async with parts(tmp_path) as made:
            await made.bridge.take(signal("s1"), b"")
            # As after a crash in the middle of an injection that never got out.
            await made.ledger.begin("s1", "t1", server.threads[0].path, log_was_there=True)
        async with parts(tmp_path, modes={"Question": "wake"}) as made:
            await made.surface.on_bootstrap(context(server.url))
            made.tasks.start_soon(made.bridge.carry)
            for _ in range(2):
                with anyio.fail_after(WAIT_S):
                    await server.asked.wait()
                server.asked.clear()
                await made.bridge.take(signal("s2"), b"")

            await _until_settled(made, "s2")
            assert server.ids() == ["s1", "s2"]


async def _until_settled(made: Parts, signal_id: str) -> None:
    with anyio.fail_after(WAIT_S):
        while (entry := await made.ledger.entry(signal_id)) is None or entry.state != "injected":
            await anyio.lowlevel.checkpoint()


async def _accepted(server: FakeAppServer, made: Parts) -> None:
    """Deliver `s1` to a thread whose server has it in its ledger, and not in the thread yet."""
    server.add_thread()
    server.receipts = {"s1": "accepted"}
    await made.surface.on_bootstrap(context(server.url))
    await made.bridge.take(signal("s1", created_at=NOW, ttl_s=60), b"")
    assert not await made.bridge.drain()
    assert (await made.bridge.show()).entries == []
    assert await made.ledger.pending() == 0


async def _state(made: Parts) -> str:
    entry = await made.ledger.entry("s1")
    assert entry is not None
    return entry.state


@pytest.mark.parametrize("end", ["inHistory", "seen", "answered"])
@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_signal_that_the_server_accepted_is_done_once_it_is_in_the_thread(
    tmp_path: Path, end: str, is_cut: bool
) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        await _accepted(server, made)
        assert [await made.bridge.drain(), await _state(made)] == [False, "accepted"]
        if is_cut:
            await made.surface.on_wrap(context())
            assert [await made.bridge.drain(), await _state(made)] == [False, "accepted"]
            await made.surface.on_bootstrap(context(server.url))
        server.receipts = {"s1": end}

        assert [await made.bridge.drain(), await _state(made)] == [True, "injected"]
        assert server.methods().count("signal/deliver") == 1


@pytest.mark.parametrize("end", ["failed", "expired", "recalled"])
@pytest.mark.parametrize("looks", ["tool", "bridge"])
async def test_a_signal_that_the_server_accepted_and_failed_comes_in_a_tool_result(
    tmp_path: Path, end: str, looks: str
) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        await _accepted(server, made)
        server.receipts = {"s1": end}

        if looks == "bridge":
            assert not await made.bridge.drain()
        shown = (await made.bridge.show()).entries
        assert [(one.envelope.id, one.is_doubtful) for one in shown] == [("s1", False)]
        assert await made.bridge.drain()


async def test_a_signal_that_the_server_has_lost_is_delivered_again(tmp_path: Path) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        await _accepted(server, made)
        server.kept.clear()
        server.receipts = {}

        assert [await made.bridge.drain(), await _state(made)] == [True, "injected"]
        assert server.methods().count("signal/deliver") == 2


async def test_a_server_without_the_thread_says_nothing_of_a_signal_that_another_has(
    tmp_path: Path,
) -> None:
    async with FakeAppServer(tmp_path).listen() as server, parts(tmp_path) as made:
        await _accepted(server, made)
        server.kept.clear()
        server.threads.clear()

        assert [await made.bridge.drain(), await _state(made)] == [False, "accepted"]
        # One that has no methods for signals does not either.
        server.receipts = None
        await made.surface.on_wrap(context())
        await made.surface.on_bootstrap(context(server.url))
        assert [await made.bridge.drain(), await _state(made)] == [False, "accepted"]


async def test_an_accepted_signal_whose_time_is_over_waits_for_no_server(tmp_path: Path) -> None:
    times = [NOW]
    async with (
        FakeAppServer(tmp_path).listen() as server,
        parts(tmp_path, now=lambda: times[0]) as made,
    ):
        await _accepted(server, made)
        times[0] += 60

        assert [await made.bridge.drain(), await _state(made)] == [True, "expired"]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_signal_for_a_stored_thread_is_followed_until_it_is_loaded_or_fails(
    tmp_path: Path, fails: bool
) -> None:
    home = tmp_path / "home"
    async with serve(home) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")
        await unload(served, thread_id)
        required = '[mcp_servers.must]\ncommand = "/no/such"\nrequired = true\n'
        write_config(home, served.model.url, required if fails else "")
        async with parts(tmp_path) as made:
            named = context(served.urls[0], **{THREAD_VARIABLE: thread_id})
            await made.surface.on_bootstrap(named)
            await made.bridge.take(signal("s1"), b"")
            assert [await made.bridge.drain(), await _state(made)] == [False, "accepted"]
            with anyio.fail_after(WAIT_S):
                while await _state(made) == "accepted":
                    await made.bridge.drain()
            shown = [one.envelope.id for one in (await made.bridge.show()).entries]

            assert [await _state(made), shown] == (["shown", ["s1"]] if fails else ["injected", []])


async def test_our_server_shows_the_model_an_injected_signal_once(tmp_path: Path) -> None:
    async with serve(tmp_path / "home") as served, served.client() as client:
        served.model.scripts = [says("noted")]
        thread_id = await client.start_thread(cwd="/work")
        async with parts(tmp_path) as made:
            await made.surface.on_bootstrap(context(served.urls[0]))
            await made.bridge.take(signal("s1"), b"")
            assert await made.bridge.drain()
            await made.surface.on_wrap(context(served.urls[0]))
        await client.turn(thread_id, "Go on.")

        texts = [text for role, text in served.model.inputs() if role == "developer"]
        assert [text.count('\nid: "s1"\n') for text in texts] == [1]
        # The server is there still, and the log can be read.
        path = (await client.call("thread/read", {"threadId": thread_id}))["thread"]["path"]
        assert await find_in_log(path, "s1", was_there=True) is Presence.PRESENT
