"""The real executable: transports, stopping, dying."""

import contextlib
import json
import random
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.support.harness import (
    WAIT_S,
    WireClient,
    claim,
    stdio_server,
    write_config,
)
from tests.support.model import Gate, ScriptedModel, calls, says
from tests.support.processes import Running, running, started
from tests.support.wire.pipes import LinePipe

pytestmark = pytest.mark.process


# The transports.


@claim("process:transports")
async def test_a_turn_over_every_transport_of_one_process(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        listen = ("ws://127.0.0.1:0", f"unix://{tmp_path}/s/socket", "stdio://")
        async with started(tmp_path, *listen) as server:
            assert [url.split(":")[0] for url in server.urls] == ["ws", "unix", "stdio"]
            for url in server.urls[:2]:
                async with server.client(url) as client:
                    turn = await client.turn(await client.start_thread(), "hi")
                    assert turn["items"][0]["text"] == "ok"
            assert server.process.stdin is not None
            assert server.process.stdout is not None
            lines = WireClient(LinePipe(server.process.stdout, server.process.stdin))
            await lines.initialize()
            assert (await lines.turn(await lines.start_thread(), "hi"))["status"] == "completed"
            await lines.pipe.aclose()
            async with server.client() as client:
                # stdin has ended, the other listeners go on.
                assert len((await client.call("thread/list", {}))["data"]) == 3
            server.process.send_signal(signal.SIGTERM)
            assert await server.ended() == 0


# Stopping.


@claim("process:drain")
async def test_sigterm_lets_a_turn_end_and_refuses_new_ones(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        gate = Gate()
        script = says("to the end")
        model.scripts.append([*script[:2], gate, *script[2:]])
        async with started(tmp_path) as server, server.client() as client:
            busy, idle = await client.start_thread(), await client.start_thread()
            text = [{"type": "text", "text": "go"}]
            await client.call("turn/start", {"threadId": busy, "input": text})
            await gate.wait_until_reached()
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(OSError, match="Connect call failed"):
                while True:
                    with contextlib.suppress(InvalidStatus):
                        await (
                            await connect(server.urls[0], proxy=None, open_timeout=WAIT_S)
                        ).close()
            for method, params in (
                ("turn/start", {"threadId": idle, "input": text}),
                ("thread/start", {}),
            ):
                refused = await client.refusal(method, params)
                assert (refused.data["code"], refused.data["retriable"]) == ("stopping", True)
            gate.opened.set()
            end = await client.wait_for("turn/completed")
            assert end["params"]["turn"]["items"][0]["text"] == "to the end"
            with pytest.raises(anyio.EndOfStream) as caught:
                while True:
                    await client.receive()
            closed = caught.value.__cause__
            assert isinstance(closed, ConnectionClosed)
            assert closed.rcvd is not None
            assert (closed.rcvd.code, closed.rcvd.reason) == (1001, "the server stops")
            assert await server.ended() == 0


@claim("process:second-signal")
async def test_a_second_sigterm_interrupts_and_the_end_is_in_the_log(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url, stdio_server("raw"))
        gate = Gate()
        model.scripts.append([*says("x")[:2], gate])
        async with started(tmp_path) as server, server.client() as client:
            result = await client.call("thread/start", {})
            thread = result["thread"]
            text = [{"type": "text", "text": "go"}]
            await client.call("turn/start", {"threadId": thread["id"], "input": text})
            await gate.wait_until_reached()
            server.process.send_signal(signal.SIGTERM)
            server.process.send_signal(signal.SIGINT)
            end = await client.wait_for("turn/completed")
            assert end["params"]["turn"]["status"] == "interrupted"
            assert await server.ended() == 0
        gate.opened.set()
        lines = Path(thread["path"]).read_text().splitlines()
        assert json.loads(lines[-1])["type"] == "turnCompleted"
        assert not list((tmp_path / "locks").iterdir())


# Dying.


@claim("process:kill")
@pytest.mark.slow
async def test_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Rounds of injects and turns, each cut off by SIGKILL after a random number of messages."""
    chance = random.Random(7)
    acknowledged: list[str] = []
    completed: list[Any] = []
    thread_id = None
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        for number in range(8):
            async with running(tmp_path) as server, server.client() as client:
                if thread_id is None:
                    thread_id = await client.start_thread()
                else:
                    await client.call(
                        "thread/resume", {"threadId": thread_id, "excludeTurns": True}
                    )
                await _work_until_killed(
                    server, client, thread_id, number, chance, acknowledged, completed
                )
        async with running(tmp_path) as server, server.client() as client:
            listed = await client.call("thread/list", {})
            assert [thread["id"] for thread in listed["data"]] == [thread_id]
            stored = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
            turns = stored["thread"]["turns"]
            resumed = await client.call("thread/resume", {"threadId": thread_id})
            assert [turn["items"] for turn in resumed["thread"]["turns"]] == [
                turn["items"] for turn in turns
            ]
            assert {turn["status"] for turn in turns} <= {"completed", "interrupted"}
            items = [item for turn in turns for item in turn["items"]]
            assert [item for item in items if item in completed] == completed
            assert thread_id is not None
            await client.turn(thread_id, "the end")
            texts = [text for _, text in model.inputs()]
            assert [text for text in texts if text in acknowledged] == acknowledged
            assert len(acknowledged) > 20
            assert len(set(texts) & set(acknowledged)) == len(acknowledged)


async def _work_until_killed(
    server: Running,
    client: WireClient,
    thread_id: str,
    number: int,
    chance: random.Random,
    acknowledged: list[str],
    completed: list[Any],
) -> None:
    """Inject and run turns; kill the server after some messages; keep what it said was done."""
    pending: dict[int, str] = {}
    for step in range(20):
        text = f"inject {number}.{step}"
        item = {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": text}],
        }
        request = await client.request(
            "thread/inject_items", {"threadId": thread_id, "items": [item]}
        )
        pending[request] = text
        if step % 4 == 0:
            text = f"turn {number}.{step}"
            user_input = [{"type": "text", "text": text}]
            request = await client.request(
                "turn/start", {"threadId": thread_id, "input": user_input}
            )
            pending[request] = text
    kill_after = chance.randrange(5, 45)
    heard = 0
    try:
        while True:
            message = await client.receive()
            heard += 1
            if message.get("id") in pending and "result" in message:
                acknowledged.append(pending[message["id"]])
            elif message.get("method") == "item/completed":
                completed.append(message["params"]["item"])
            if heard == kill_after:
                server.process.send_signal(signal.SIGKILL)
    except anyio.EndOfStream:
        pass


@pytest.mark.slow
@claim("process:kill-in-call")
async def test_a_turn_that_was_cut_off_shows_as_interrupted_and_the_thread_goes_on(
    tmp_path: Path,
) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url, stdio_server("raw"))
        slow = {"namespace": "mcp__raw", "name": "slow", "arguments": {}}
        model.scripts.append(calls(slow))
        async with running(tmp_path) as server, server.client() as client:
            thread_id = await client.start_thread()
            await client.wait_for(
                "mcpServer/startupStatus/updated", lambda p: p["status"] == "ready"
            )
            text = [{"type": "text", "text": "go"}]
            await client.call("turn/start", {"threadId": thread_id, "input": text})
            await client.wait_for("item/started", lambda p: p["item"]["type"] == "mcpToolCall")
            server.process.send_signal(signal.SIGKILL)
            await server.ended()
        async with running(tmp_path) as server, server.client() as client:
            read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
            (turn,) = read["thread"]["turns"]
            assert (turn["status"], len(turn["items"])) == ("interrupted", 1)
            assert read["thread"]["status"] == {"type": "notLoaded"}
            await client.call("thread/resume", {"threadId": thread_id})
            assert (await client.turn(thread_id, "again"))["status"] == "completed"
            kinds = [item["type"] for item in model.items()]
            assert kinds == [
                "message",
                "function_call",
                "function_call_output",
                "message",
                "message",
            ]
