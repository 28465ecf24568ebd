"""Signals that are sent again, and restarts of the server."""

import json
from pathlib import Path
from typing import Any

import anyio

from tests.support.harness import (
    WAIT_S,
    WireClient,
    claim,
    serve,
)
from tests.support.receiver.signals import deliver, signal
from tests.support.receiver.stages import stage, text_of
from tests.support.turns import busy_thread


@claim("signals:once")
async def test_a_signal_sent_again_does_nothing(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        first = await deliver(client, thread_id, mode="wake")
        await stage(client, "s1", "answered")
        again = [await deliver(client, thread_id, mode="wake") for _ in range(20)]
        assert {entry["turnId"] for entry in again} == {first["turnId"]}
        assert {entry["stage"] for entry in again} == {"answered"}
        assert len(served.model.requests) == 1
        refusal = await client.refusal(
            "signal/deliver",
            {
                "signal": signal("s1", summary="another"),
                "target": {"threadId": thread_id},
                "mode": "wake",
            },
        )
        assert (refusal.code, refusal.data["code"]) == (-32600, "signalConflict")


@claim("signals:once")
async def test_the_same_signal_from_many_connections_is_one_item(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as first, served.client() as second:
        thread_id = await first.start_thread()
        params = {"signal": signal(), "target": {"threadId": thread_id}, "mode": "passive"}
        ids = [
            (client, await client.request("signal/deliver", params))
            for _ in range(10)
            for client in (first, second)
        ]
        receipts = [(await client.answer(number))["result"]["receipt"] for client, number in ids]
        assert len({json.dumps(receipt) for receipt in receipts}) == 1
        await first.turn(thread_id, "go")
        assert served.model.inputs() == [("developer", text_of()), ("user", "go")]


@claim("signals:once")
async def test_it_is_known_after_a_restart(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await deliver(client, thread_id, mode="wake")
        before = await stage(client, "s1", "answered")
    async with serve(tmp_path) as served, served.client() as client:
        assert await deliver(client, thread_id, mode="wake") == before
        assert served.model.requests == []


async def test_what_waited_for_a_turn_is_delivered_after_a_restart(tmp_path: Path) -> None:
    async with busy_thread(tmp_path) as (_, client, thread_id, _):
        assert (await deliver(client, thread_id, mode="wake"))["stage"] == "accepted"
    async with serve(tmp_path) as served, served.client() as client:
        with anyio.fail_after(WAIT_S):
            while (await read(client))["stage"] != "answered":
                await anyio.sleep(0.01)
        assert len(served.model.requests) == 1
        assert served.model.inputs()[-1] == ("developer", text_of())


async def test_what_waits_for_a_thread_of_a_newer_version_fails_and_the_server_goes_on(
    tmp_path: Path,
) -> None:
    async with busy_thread(tmp_path) as (_, client, thread_id, _):
        assert (await deliver(client, thread_id, mode="wake"))["stage"] == "accepted"
    (path,) = (tmp_path / "threads").rglob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'{"v":1', b'{"v":2', 1))
    async with serve(tmp_path) as served, served.client() as client:
        receipt = await read(client)
        assert (receipt["stage"], receipt["error"]["code"]) == ("failed", "threadNotLoadable")


async def read(client: WireClient, signal_id: str = "s1") -> Any:
    """Return a receipt."""
    answer = await client.call("signal/read", {"source": "router", "id": signal_id})
    return answer["receipt"]
