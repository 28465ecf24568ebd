"""Several clients on one thread: all hear the same, and none holds up another."""

import asyncio
import random
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.exceptions import ConnectionClosed

from app_server.rpc.message_stream import ConnectionLimits, OutboxLimits
from app_server.transport.websocket import WebSocketLimits
from tests.support.clients.lean import is_end, lean_client
from tests.support.harness import WAIT_S, claim, methods_of, serve
from tests.support.model import COMPLETED, Gate, says
from tests.support.threads.seen import deltas, merged, numbered

WORDS = [f"{number} " for number in range(60)]
FEW_WORDS = WORDS[:15]


async def whole_stream(url: str, thread_id: str, joined: anyio.Event) -> list[Any]:
    """Join a thread and read to the end of its turn."""
    async with lean_client(url) as client:
        await client.call("thread/resume", {"threadId": thread_id})
        joined.set()
        await client.read(is_end)
        return numbered(client.events)


@claim("clients:all-events")
@pytest.mark.slow
async def test_each_of_200_clients_gets_every_event_in_one_order(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, lean_client(served.urls[0]) as client:
        thread_id = (await client.call("thread/start", {}))["thread"]["id"]
        served.model.scripts.append(says(*FEW_WORDS))
        joined = [anyio.Event() for _ in range(199)]
        others = [
            asyncio.create_task(whole_stream(served.urls[0], thread_id, each)) for each in joined
        ]
        with anyio.fail_after(WAIT_S):
            for each in joined:
                await each.wait()
            await client.turn(thread_id, "go")
            expected = numbered(client.events)
            assert deltas(expected) == "".join(FEW_WORDS)
            for other in others:
                assert merged(await other) == merged(expected)


def paced(parts: list[str], step: int, item_id: str) -> tuple[list[Any], list[Gate]]:
    """Script a message with a gate in front of every `step` parts."""
    script: list[Any] = []
    gates: list[Gate] = []
    number = 0
    for event in says(*parts, item_id=item_id):
        if "delta" in event:
            if number % step == 0:
                gates.append(Gate())
                script.append(gates[-1])
            number += 1
        script.append(event)
    return script, gates


@claim("replay:dropping")
async def test_a_client_that_drops_again_and_again_sees_what_a_steady_one_sees(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)
    async with serve(tmp_path) as served, lean_client(served.urls[0]) as steady:
        started = await steady.call("thread/start", {})
        thread_id, drops = started["thread"]["id"], 0
        seen: list[Any] = []
        place = {"streamId": started["streamId"], "afterSeq": started["seq"]}
        for turn in range(3):
            script, gates = paced(WORDS, 6, f"m{turn}")
            served.model.scripts.append(script)
            running = asyncio.create_task(steady.turn(thread_id, f"turn {turn}"))
            with anyio.fail_after(WAIT_S):
                while sum(map(is_end, seen)) <= turn:
                    drops += 1
                    enough = place["afterSeq"] + chance.randrange(1, 7)
                    open_next(gates)
                    async with lean_client(served.urls[0]) as client:
                        answer = await client.call(
                            "thread/resume", {"threadId": thread_id, **place}
                        )
                        assert answer["resyncRequired"] is False
                        open_next(gates)
                        await client.read(partial(is_end_or_at_least, enough))
                        seen += numbered(client.events)
                        place["afterSeq"] = seen[-1]["seq"]
                await running
        assert drops > 15
        assert merged(seen) == merged(numbered(steady.events))


def is_end_or_at_least(seq: int, message: Any) -> bool:
    return is_end(message) or message.get("seq", 0) >= seq


def open_next(gates: list[Gate]) -> None:
    if gates:
        gates.pop(0).opened.set()


@claim("bounds:slow-client", "clients:never-reads")
async def test_a_client_that_never_reads_is_closed_and_holds_up_nobody(tmp_path: Path) -> None:
    connection = ConnectionLimits(finish_s=30, outbox=OutboxLimits(max_chars=2 << 20))
    parts = [f"{number} ".ljust(50_000, ".") for number in range(320)]
    async with (
        serve(tmp_path, connection=connection, websocket=WebSocketLimits(close_s=30)) as served,
        lean_client(served.urls[0]) as steady,
        lean_client(served.urls[0], max_queue=1) as stuck,
    ):
        thread_id = (await steady.call("thread/start", {}))["thread"]["id"]
        await stuck.call("thread/resume", {"threadId": thread_id})
        script: list[Any] = []
        gates: list[Gate] = []
        for first in range(0, len(parts), 10):
            message, its_gates = paced(parts[first : first + 10], 10, f"m{first}")
            # The whole text a second time would be too much of one response.
            message[-2]["item"]["content"] = []
            script += message[:-1]
            gates += its_gates
        served.model.scripts.append([*script, COMPLETED])
        with anyio.fail_after(WAIT_S):
            user_input = [{"type": "text", "text": "go"}]
            await steady.call("turn/start", {"threadId": thread_id, "input": user_input})
            for number, gate in enumerate(gates):
                gate.opened.set()
                await steady.read(partial(holds_part, 10 * number))
            await steady.read(is_end)
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    await stuck.socket.recv()
        assert deltas(steady.events) == "".join(parts)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (
            1013,
            "reads too slowly; resume later",
        )


def holds_part(number: int, message: Any) -> bool:
    """Whether a delta holds the part of a number."""
    return message["method"] == "item/agentMessage/delta" and (
        f"{number} ." in message["params"]["delta"]
    )


@claim("clients:all-told")
async def test_what_becomes_of_threads_is_sent_to_every_client_but_those_who_opted_out(
    tmp_path: Path,
) -> None:
    async with (
        serve(tmp_path) as served,
        served.client() as actor,
        served.client() as stranger,
        served.client(experimental=False) as plain,
        served.client(optOutNotificationMethods=["thread/started", "turn/completed"]) as deaf,
    ):
        thread_id = await actor.start_thread()
        await deaf.call("thread/resume", {"threadId": thread_id})
        await actor.call("thread/name/set", {"threadId": thread_id, "name": "n"})
        await actor.turn(thread_id, "hello")
        await actor.call("thread/archive", {"threadId": thread_id})
        await actor.call("thread/unarchive", {"threadId": thread_id})
        expected = [
            "thread/started",
            "thread/name/updated",
            "thread/status/changed",
            "thread/status/changed",
            "thread/status/changed",
            "thread/archived",
            "thread/unarchived",
        ]
        for client in (stranger, plain):
            assert methods_of(await client.until("thread/unarchived")) == expected
        heard = methods_of(await deaf.until("thread/unarchived"))
        assert [method for method in heard if method in expected] == expected[1:]
        assert "item/agentMessage/delta" in heard
        assert "turn/completed" not in heard
