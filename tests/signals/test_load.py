"""Many signals, and one signal many times: complete, in order, and once."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.harness import WireClient, claim, serve
from tests.support.model import ScriptedModel
from tests.support.receiver.signals import deliver, signal

THREADS = 50
SENDERS = 8
SIGNALS = 1000


@claim("signals:once")
@pytest.mark.slow
async def test_a_signal_sent_a_hundred_times_over_three_restarts_is_one_item_and_one_turn(
    tmp_path: Path,
) -> None:
    model = ScriptedModel()
    thread_id = ""
    items = set()
    for start in range(4):
        async with serve(tmp_path, model=model) as served, served.client() as client:
            if not thread_id:
                thread_id = await client.start_thread()
            for _ in range(25):
                receipt = await deliver(client, thread_id, mode="wake")
                items.add((receipt["itemId"], receipt["turnId"], receipt["woken"]))
            if start == 0:
                await client.wait_for(
                    "signal/updated", lambda p: p["receipt"]["stage"] == "answered"
                )
            shown = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
            assert len(shown["thread"]["turns"]) == 1
    assert len(items) == 1
    assert len(model.requests) == 1


@claim("signals:order")
@pytest.mark.slow
async def test_signals_of_many_senders_to_many_threads_arrive_complete_and_in_order(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        threads = [await client.start_thread() for _ in range(THREADS)]

        async def send(sender: int, own: WireClient) -> None:
            numbers = []
            for number in range(SIGNALS // SENDERS):
                params: dict[str, Any] = {
                    "signal": signal(f"{sender}-{number}", source=f"s{sender}"),
                    "target": {"threadId": threads[(sender + number) % THREADS]},
                    "mode": "passive",
                }
                numbers.append(await own.request("signal/deliver", params))
            for request_id in numbers:
                answer = await own.answer(request_id)
                assert answer["result"]["receipt"]["stage"] == "inHistory"

        async with anyio.create_task_group() as tasks:
            for sender in range(SENDERS):
                tasks.start_soon(_send_alone, served, send, sender)
        seen: dict[str, list[str]] = defaultdict(list)
        for thread_id in threads:
            await client.turn(thread_id, "go")
            for role, text in served.model.inputs():
                if role == "developer":
                    seen[thread_id].append(text.partition('id: "')[2].partition('"')[0])
    arrived = [name for names in seen.values() for name in names]
    assert sorted(arrived) == sorted(
        f"{sender}-{number}" for sender in range(SENDERS) for number in range(SIGNALS // SENDERS)
    )
    for names in seen.values():
        for sender in range(SENDERS):
            own = [int(name.partition("-")[2]) for name in names if name.startswith(f"{sender}-")]
            assert own == sorted(own)


async def _send_alone(served: Any, send: Any, sender: int) -> None:
    async with served.client() as own:
        await send(sender, own)
