"""Signals: whoever delivers does not wait for threads that are loaded for that."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.sessions.mcp_servers import ThreadServers
from app_server.threads.store import ThreadStore
from tests.support.harness import claim, serve
from tests.support.receiver.signals import deliver, signal
from tests.support.receiver.stages import stage, text_of, unload

LOADED_FROM = pytest.mark.parametrize(
    ("owner", "name"), [(ThreadStore, "load"), (ThreadServers, "start")]
)


def hang(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> anyio.Event:
    """Let every load of a thread wait here until the event is set."""
    opened, real = anyio.Event(), getattr(owner, name)

    async def gated(*args: Any) -> Any:
        await opened.wait()
        return await real(*args)

    monkeypatch.setattr(owner, name, gated)
    return opened


async def deliveries(
    tmp_path: Path, opened_by: Any, *, hanging: int, loaded: int, each: int
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        stored = [await client.start_thread() for _ in range(hanging)]
        for thread_id in stored:
            await client.turn(thread_id, "hello")
            await unload(served, thread_id)
        ready = [await client.start_thread() for _ in range(loaded)]
        opened = opened_by()
        sent: list[tuple[int, str, str]] = []
        for number in range(each):
            for thread_id in [*stored, *ready]:
                name = f"{number}-{thread_id}"
                target = {"threadId": thread_id}
                params = {"signal": signal(name), "target": target, "mode": "passive"}
                request_id = await client.request("signal/deliver", params)
                sent.append((request_id, thread_id, name))
        # Every answer comes while none of the stored threads can be loaded.
        for request_id, thread_id, name in sent:
            receipt = (await client.answer(request_id))["result"]["receipt"]
            wanted = "accepted" if thread_id in stored else "inHistory"
            assert (receipt["signalId"], receipt["stage"]) == (name, wanted)
        opened.set()
        missing = {f"{each - 1}-{thread_id}" for thread_id in stored}
        while missing:
            receipt = (await client.wait_for("signal/updated"))["params"]["receipt"]
            if receipt["stage"] == "inHistory":
                missing.discard(receipt["signalId"])
        for thread_id in [stored[0], ready[0]]:
            await client.turn(thread_id, "go")
            inputs = [text for _, text in served.model.inputs()]
            texts = [text_of(f"{number}-{thread_id}") for number in range(each)]
            assert [text for text in inputs if text in texts] == texts


@claim("signals:answered-before-loading")
@LOADED_FROM
async def test_an_answer_waits_for_the_ledger_and_for_no_thread_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    await deliveries(tmp_path, lambda: hang(monkeypatch, owner, name), hanging=3, loaded=4, each=5)


@pytest.mark.slow
async def test_a_thousand_answers_wait_for_none_of_ten_threads_that_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await deliveries(
        tmp_path,
        lambda: hang(monkeypatch, ThreadServers, "start"),
        hanging=10,
        loaded=90,
        each=10,
    )


async def test_a_signal_can_be_recalled_while_its_thread_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")
        await unload(served, thread_id)
        opened = hang(monkeypatch, ThreadServers, "start")
        for name in ("s1", "s2"):
            assert (await deliver(client, thread_id, name))["stage"] == "accepted"
        recalled = await client.call("signal/recall", {"source": "router", "id": "s1"})
        assert recalled["receipt"]["stage"] == "recalled"
        opened.set()
        await stage(client, "s2", "inHistory")
        await client.turn(thread_id, "go")
        assert [text for role, text in served.model.inputs() if role == "developer"] == [
            text_of("s2")
        ]
