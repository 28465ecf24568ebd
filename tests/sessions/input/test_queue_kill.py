"""The queue and kill -9: every entry that was acknowledged becomes exactly one turn."""

import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.harness import WireClient, claim, write_config
from tests.support.model import Gate, ScriptedModel, says
from tests.support.processes import Running, running

pytestmark = pytest.mark.process


def entry(client_id: str) -> dict[str, Any]:
    return {"input": [{"type": "text", "text": client_id}], "clientUserMessageId": client_id}


async def add(client: WireClient, thread_id: str, client_id: str) -> None:
    await client.call("thread/queue/add", {"threadId": thread_id, **entry(client_id)})


async def turns_of(client: WireClient, thread_id: str) -> list[tuple[str, list[str | None]]]:
    """Return each turn's end, and the client's ids of what the user said in it."""
    read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
    return [
        (
            turn["status"],
            [item["clientId"] for item in turn["items"] if item["type"] == "userMessage"],
        )
        for turn in read["thread"]["turns"]
    ]


async def resume_and_finish(client: WireClient, thread_id: str) -> None:
    """Load the thread and wait until its queue is empty and no turn runs."""
    await client.call("thread/resume", {"threadId": thread_id, "excludeTurns": True})
    while True:
        queue = await client.call("thread/queue/list", {"threadId": thread_id})
        read = await client.call("thread/read", {"threadId": thread_id})
        if not queue["data"] and read["thread"]["status"]["type"] == "idle":
            return
        await client.wait_for("turn/completed")


async def kill(server: Running) -> None:
    server.process.send_signal(signal.SIGKILL)
    await server.ended()


@claim("queue:kill")
@pytest.mark.parametrize("moment", ["acknowledged", "taken", "running", "between"])
@pytest.mark.slow
async def test_an_acknowledged_entry_becomes_one_turn_whenever_the_server_is_killed(
    tmp_path: Path, moment: str
) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        async with running(tmp_path) as server, server.client() as client:
            thread_id = await client.start_thread()
            gate = Gate()
            match moment:
                case "acknowledged":
                    # Both wait behind a turn that never ends.
                    model.scripts.append([gate])
                    text = [{"type": "text", "text": "busy"}]
                    await client.call("turn/start", {"threadId": thread_id, "input": text})
                    await add(client, thread_id, "a")
                    await add(client, thread_id, "b")
                case "taken":
                    # The first is announced as taken; nothing more of its turn is awaited.
                    await client.request("thread/queue/add", {"threadId": thread_id, **entry("a")})
                    await add(client, thread_id, "b")
                    await client.wait_for("turn/started")
                case "running":
                    model.scripts.append([*says("half")[:2], gate])
                    await add(client, thread_id, "a")
                    await add(client, thread_id, "b")
                    await gate.wait_until_reached()
                case "between":
                    await add(client, thread_id, "a")
                    await client.wait_for("turn/completed")
                    await add(client, thread_id, "b")
            await kill(server)
        gate.opened.set()
        async with running(tmp_path) as server, server.client() as client:
            await resume_and_finish(client, thread_id)
            turns = await turns_of(client, thread_id)
            said = Counter(m for _, messages in turns for m in messages if m is not None)
            assert said == {"a": 1, "b": 1}
            # Whoever never saw the answer asks again, and gets the entry that is there.
            await add(client, thread_id, "a")
            await add(client, thread_id, "c")
            await resume_and_finish(client, thread_id)
            after = [messages for _, messages in await turns_of(client, thread_id)]
            assert [each for each in after if each != [None]] == [["a"], ["b"], ["c"]]


@claim("queue:kill")
@pytest.mark.slow
async def test_rounds_of_adding_and_dying_lose_and_double_nothing(tmp_path: Path) -> None:
    """Rounds of adds, each cut off by SIGKILL after a random number of messages."""
    chance = random.Random(11)
    acknowledged: list[str] = []
    sent: list[str] = []
    thread_id = ""
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        for number in range(6):
            async with running(tmp_path) as server, server.client() as client:
                if not thread_id:
                    thread_id = await client.start_thread()
                    await client.turn(thread_id, "begin")
                await client.call("thread/resume", {"threadId": thread_id, "excludeTurns": True})
                pending: dict[int, str] = {}
                for step in range(8):
                    client_id = f"{number}.{step}"
                    request = await client.request(
                        "thread/queue/add", {"threadId": thread_id, **entry(client_id)}
                    )
                    pending[request] = client_id
                    sent.append(client_id)
                heard, kill_after = 0, chance.randrange(2, 60)
                try:
                    while True:
                        message = await client.receive()
                        heard += 1
                        if message.get("id") in pending and "result" in message:
                            acknowledged.append(pending[message["id"]])
                        if heard == kill_after:
                            server.process.send_signal(signal.SIGKILL)
                except anyio.EndOfStream:
                    pass
        async with running(tmp_path) as server, server.client() as client:
            await resume_and_finish(client, thread_id)
            turns = await turns_of(client, thread_id)
            said = Counter(m for _, messages in turns for m in messages if m is not None)
            assert len(acknowledged) > 10
            assert {client_id: said[client_id] for client_id in acknowledged} == dict.fromkeys(
                acknowledged, 1
            )
            assert set(said.values()) == {1}
            assert set(said) <= set(sent)
            # In their order, and never two in one turn.
            assert [m for m in sent if m in said] == [m for m in said if m in sent]
            assert all(len(messages) <= 1 for _, messages in turns)
