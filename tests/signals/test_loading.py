"""Signals: whoever delivers does not wait for threads that are loaded for that."""

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from app_server.cli.signal import main
from app_server.runtime.clock import SystemClock
from app_server.signals.thread_delivery import MAX_LOADING, MAX_RECENT, SLOW_S, LoadingPlaces
from app_server.threads.files.store import FileStore
from app_server.turns.servers import ThreadServers
from tests.support.event_loop.clock import LoopClock
from tests.support.harness import WAIT_S, WireClient, claim, serve, write_config
from tests.support.receiver.signals import deliver
from tests.support.receiver.stages import stage, text_of, unload

LOADED_FROM = pytest.mark.parametrize(
    ("owner", "name"), [(FileStore, "load"), (ThreadServers, "start")]
)


class Gated:
    """Lets loads of chosen threads wait in a method of their way, until `opened`."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *thread_ids: str
    ) -> None:
        self.opened = anyio.Event()
        self.begun = set[str]()
        self._changed = anyio.Event()
        real = getattr(owner, name)

        async def gated(*args: Any) -> Any:
            thread_id = args[1] if owner is FileStore else args[0]._log.id
            if thread_id in thread_ids:
                self.begun.add(thread_id)
                self._changed.set()
                await self.opened.wait()
            return await real(*args)

        monkeypatch.setattr(owner, name, gated)

    async def until_begun(self, count: int) -> None:
        """Wait until so many of the loads wait here."""
        with anyio.fail_after(WAIT_S):
            while len(self.begun) < count:
                self._changed = anyio.Event()
                await self._changed.wait()


async def deliveries(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gate: tuple[Any, str],
    *,
    hanging: int,
    loaded: int,
    stored: int = 0,
    each: int,
) -> None:
    """Deliver to threads that hang as they load, to loaded ones, and to stored ones."""
    clock = LoopClock(monkeypatch)
    async with serve(tmp_path) as served, served.client() as client:
        away = [await client.start_thread() for _ in range(hanging + stored)]
        for thread_id in away:
            await client.turn(thread_id, "hello")
            await unload(served, thread_id)
        ready = [await client.start_thread() for _ in range(loaded)]
        gated = Gated(monkeypatch, *gate, *away[:hanging])
        for number in range(each):
            for thread_id in [*away, *ready]:
                name = f"{number}-{thread_id}"
                receipt = await deliver(client, thread_id, name)
                assert receipt["signalId"] == name
                # Every answer comes while those that hang cannot be loaded.
                if thread_id not in away[hanging:]:
                    wanted = "accepted" if thread_id in away else "inHistory"
                    assert receipt["stage"] == wanted
        missing = {f"{number}-{thread_id}" for thread_id in away for number in range(each)}
        held = {name for name in missing if name.partition("-")[2] in away[:hanging]}
        # The places of those that hang are given to others, a few at a time.
        for begun in range(MAX_RECENT, hanging, MAX_RECENT):
            await gated.until_begun(begun)
            clock.put_forward(SLOW_S)
        await gated.until_begun(hanging)
        clock.put_forward(SLOW_S)
        await until_in_threads(client, missing - held)
        for thread_id in away[:hanging]:
            page = await client.call("signal/list", {"threadId": thread_id})
            assert {one["stage"] for one in page["data"]} == {"accepted"}
        gated.opened.set()
        await until_in_threads(client, held)
        for thread_id in [away[0], away[-1], ready[0]]:
            await client.turn(thread_id, "go")
            inputs = [text for _, text in served.model.inputs()]
            texts = [text_of(f"{number}-{thread_id}") for number in range(each)]
            assert [text for text in inputs if text in texts] == texts


async def until_in_threads(client: WireClient, names: set[str]) -> None:
    """Wait for the events that signals are in their threads."""
    while names:
        receipt = (await client.wait_for("signal/updated"))["params"]["receipt"]
        if receipt["stage"] == "inHistory":
            names = names - {receipt["signalId"]}


@claim("signals:answered-before-loading")
@LOADED_FROM
async def test_an_answer_waits_for_the_ledger_and_for_no_thread_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    await deliveries(tmp_path, monkeypatch, (owner, name), hanging=3, loaded=4, each=5)


@claim("signals:hanging-threads")
@LOADED_FROM
async def test_threads_that_hang_hold_up_the_loading_of_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    gate = owner, name
    await deliveries(tmp_path, monkeypatch, gate, hanging=9, stored=3, loaded=1, each=2)


async def test_threads_have_places_to_load_in_their_order_and_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = LoopClock(monkeypatch)
    places, inside, leave, changed = LoadingPlaces(), list[str](), anyio.Event(), anyio.Event()
    leave_first = anyio.Event()

    async def load(thread_id: str) -> None:
        nonlocal changed
        async with places.place(thread_id):
            inside.append(thread_id)
            changed.set()
            await (leave_first if thread_id == "0" else leave).wait()

    async def until_inside(count: int) -> None:
        nonlocal changed
        with anyio.fail_after(WAIT_S):
            while len(inside) < count:
                changed = anyio.Event()
                await changed.wait()
        await anyio.wait_all_tasks_blocked()
        assert inside == names[:count]

    names = [str(number) for number in range(MAX_LOADING + 2)]
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(load, name)
        for count in range(MAX_RECENT, MAX_LOADING + 1, MAX_RECENT):
            await until_inside(count)
            clock.put_forward(SLOW_S)
        # However slow they are.
        await anyio.lowlevel.checkpoint()
        await until_inside(MAX_LOADING)
        leave_first.set()
        await until_inside(MAX_LOADING + 1)
        leave.set()
    assert inside == names


@pytest.mark.parametrize(
    ("set_by_s", "wanted"), [(3600, "expired"), (-3600, "inHistory"), (0, "inHistory")]
)
async def test_a_signal_expires_by_the_clock_of_the_machine_however_that_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_by_s: int, wanted: str
) -> None:
    ahead_ms = 0
    read = SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda clock: read(clock) + ahead_ms)
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")
        await unload(served, thread_id)
        gated = Gated(monkeypatch, ThreadServers, "start", thread_id)
        await deliver(client, thread_id, "s1", signal={"ttlSeconds": 1800})
        await gated.until_begun(1)
        ahead_ms = set_by_s * 1000
        gated.opened.set()
        await stage(client, "s1", wanted)


async def test_a_signal_can_be_recalled_while_its_thread_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")
        await unload(served, thread_id)
        gated = Gated(monkeypatch, ThreadServers, "start", thread_id)
        for name in ("s1", "s2"):
            assert (await deliver(client, thread_id, name))["stage"] == "accepted"
        recalled = await client.call("signal/recall", {"source": "router", "id": "s1"})
        assert recalled["receipt"]["stage"] == "recalled"
        gated.opened.set()
        await stage(client, "s2", "inHistory")
        await client.turn(thread_id, "go")
        assert [text for role, text in served.model.inputs() if role == "developer"] == [
            text_of("s2")
        ]


@pytest.mark.parametrize(
    ("fails", "status", "stages"),
    [(False, 0, ["accepted", "inHistory", "seen", "answered"]), (True, 1, ["accepted", "failed"])],
)
async def test_a_sender_that_waits_follows_a_thread_that_must_be_loaded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fails: bool,
    status: int,
    stages: list[str],
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")
        await unload(served, thread_id)
        if fails:
            required = '[mcp_servers.must]\ncommand = "/no/such"\nrequired = true\n'
            write_config(tmp_path, served.model.url, required)
        words = ["send", "--thread", thread_id, "--from", "ann", "--type", "Question", "--wake"]
        words += ["--url", served.urls[0], "--id", "s1", "--wait", "hello?"]
        assert await anyio.to_thread.run_sync(main, words) == status
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[1:3] for line in lines] == [[one, "s1"] for one in stages]
        assert lines[-1].count("threadNotLoadable: ") == fails
