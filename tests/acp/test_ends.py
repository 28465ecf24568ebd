"""Bounds, bad messages, clients that go in the middle, and the command `app-server acp`."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.acp.agent import serve_acp_client
from app_server.acp.conversation import AcpLimits
from app_server.rpc.in_process import PipeEnd, open_pipe
from tests.support.clients.acp import Editor, connected, prompt
from tests.support.harness import WAIT_S, Served, claim, environment_without, serve, write_config
from tests.support.model import Gate, ScriptedModel, says
from tests.support.processes import EXECUTABLE, tree_of

Message = dict[str, Any]


@asynccontextmanager
async def bounded(served: Served, limits: AcpLimits) -> AsyncIterator[PipeEnd]:
    """Give the pipe of a client with bounds of its own."""
    ours, theirs = open_pipe()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_acp_client, theirs, served.app.serve_client, "1", limits)
        try:
            yield ours
        finally:
            await ours.aclose()


async def call(pipe: PipeEnd, number: int, method: str, **params: Any) -> Message:
    """Send a request, and read until its answer."""
    await send(pipe, number, method, **params)
    return await answer(pipe, number)


async def send(pipe: PipeEnd, number: int, method: str, **params: Any) -> None:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    await pipe.send(json.dumps(message))


async def answer(pipe: PipeEnd, number: int) -> Message:
    with anyio.fail_after(WAIT_S):
        while True:
            message: Message = json.loads(await pipe.receive())
            if message.get("id") == number and "method" not in message:
                return message


@claim("acp:bounds")
async def test_what_is_too_much_is_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    gate = Gate()
    limits = AcpLimits(max_requests=1, max_sessions=1)
    async with serve(tmp_path) as served, bounded(served, limits) as pipe:
        await call(pipe, 1, "initialize", protocolVersion=1)
        place = {"cwd": str(tmp_path), "mcpServers": []}
        opened = (await call(pipe, 2, "session/new", **place))["result"]
        refused = (await call(pipe, 3, "session/new", **place))["error"]
        assert (refused["code"], refused["data"]["code"]) == (-32600, "tooManySessions")
        served.model.scripts.append([*says("Never")[:3], gate])
        blocks = [{"type": "text", "text": "Go on."}]
        session = {"sessionId": opened["sessionId"]}
        await send(pipe, 4, "session/prompt", **session, prompt=blocks)
        await gate.wait_until_reached()
        assert (await call(pipe, 5, "session/list"))["error"]["code"] == -32001
        cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": session}
        await pipe.send(json.dumps(cancel))
        assert (await answer(pipe, 4))["result"]["stopReason"] == "cancelled"
        gate.opened.set()
        await call(pipe, 6, "session/close", **session)
        assert "result" in await call(pipe, 7, "session/new", **place)


@claim("acp:bounds")
async def test_a_client_that_reads_nothing_counts_as_gone(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        ours, theirs = open_pipe()
        limits = AcpLimits(send_s=0.1, max_waiting=4)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_acp_client, theirs, served.app.serve_client, "1", limits)
            await send(ours, 0, "initialize", protocolVersion=1)
            # It reads no answer, and the pipe holds few.
            with pytest.raises(anyio.BrokenResourceError):
                for number in range(1, 1000):
                    await send(ours, number, "session/list")
        await ours.aclose()


@claim("acp:errors")
async def test_what_is_no_message_gets_an_error_and_the_rest_goes_on(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.pipe(f"{served.urls[0]}/acp") as pipe:

        async def said(text: str) -> tuple[Any, int]:
            await pipe.send(text)
            message = json.loads(await pipe.receive())
            return message["id"], message["error"]["code"]

        assert await said("{") == (None, -32700)
        assert await said("[]") == (None, -32600)
        assert await said('[{"id":1,"method":"initialize"}]') == (None, -32600)
        assert await said('{"id":1,"method":"initialize","params":[]}') == (1, -32602)
        assert await said('{"id":1,"method":"initialize","params":null}') == (1, -32602)
        await pipe.send('{"method":"session/cancel","params":{"sessionId":"none"}}')
        await pipe.send('{"method":"session/cancel"}')
        await pipe.send('{"method":"$/cancel_request","params":{"requestId":[]}}')
        await pipe.send('{"id":"x","result":{}}')
        await pipe.send(
            '{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":9}}'
        )
        assert json.loads(await pipe.receive())["result"]["protocolVersion"] == 1


@claim("acp:ends")
async def test_a_turn_goes_on_without_the_editor_that_began_it(tmp_path: Path) -> None:
    gate = Gate()
    async with serve(tmp_path) as served, served.client() as codex:
        thread_id = await codex.start_thread(cwd=str(tmp_path))
        script = says("Still ", "here.")
        served.model.scripts.append([*script[:3], gate, *script[3:]])
        async with served.pipe(f"{served.urls[0]}/acp") as pipe:
            for number, (method, params) in enumerate(
                [
                    ("initialize", {"protocolVersion": 1}),
                    ("session/resume", {"sessionId": thread_id, "cwd": "/", "mcpServers": []}),
                ]
            ):
                message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                await pipe.send(json.dumps(message))
                await pipe.receive()
            blocks = [{"type": "text", "text": "Go on."}]
            asked = {"sessionId": thread_id, "prompt": blocks}
            await pipe.send(json.dumps({"id": 9, "method": "session/prompt", "params": asked}))
            await codex.wait_for("item/agentMessage/delta")
        gate.opened.set()
        ended = await codex.wait_for("turn/completed")
        assert ended["params"]["turn"]["status"] == "completed"


@asynccontextmanager
async def command(
    home: Path, *words: str
) -> AsyncIterator[tuple[Editor, Any, asyncio.subprocess.Process]]:
    """Start `app-server acp` as an editor does."""
    process = await asyncio.create_subprocess_exec(
        EXECUTABLE,
        "acp",
        *words,
        env=environment_without("OPENAI_API_KEY", "APP_SERVER_URL")
        | {"APP_SERVER_HOME": str(home)},
        cwd=home,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=1 << 24,
    )
    try:
        async with connected(process.stdin, process.stdout, None) as (editor, agent):
            yield editor, agent, process
    finally:
        if process.returncode is None:
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.wait()


async def ended(process: asyncio.subprocess.Process) -> int:
    with anyio.fail_after(WAIT_S):
        return await process.wait()


@pytest.mark.process
@claim("acp:command")
async def test_the_command_serves_an_editor_with_a_server_of_its_own(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        model.scripts.append(says("Here."))
        async with command(tmp_path) as (editor, agent, process):
            opened = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
            await agent.prompt(session_id=opened.session_id, prompt=prompt("Where?"))
            assert editor.text() == "Here."
            assert process.stdin is not None
            process.stdin.close()
            assert await ended(process) == 0


@pytest.mark.process
@claim("acp:command")
async def test_the_command_joins_the_server_that_runs(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        async with command(tmp_path) as (editor, agent, process):
            served.model.scripts.append(says("There."))
            opened = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
            await agent.prompt(session_id=opened.session_id, prompt=prompt("Where?"))
            assert editor.text() == "There."
            assert await served.services.store.exists(opened.session_id)
            assert len(tree_of(process.pid)) == 1
        async with command(tmp_path, "--url", served.urls[0]) as (_, agent, process):
            found = await agent.list_sessions()
            assert [each.session_id for each in found.sessions] == [opened.session_id]
            served.app.stop()
            served.app.stop()
            assert await ended(process) == 1


@pytest.mark.process
@claim("acp:command")
async def test_a_killed_editor_leaves_no_server_behind(tmp_path: Path) -> None:
    gate = Gate()
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        model.scripts.append([*says("Never")[:3], gate])
        async with command(tmp_path, "-c", "model_reasoning_effort=low") as (
            editor,
            agent,
            process,
        ):
            opened = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
            asking = asyncio.ensure_future(
                agent.prompt(session_id=opened.session_id, prompt=prompt("Go on."))
            )
            await gate.wait_until_reached()
            assert process.stdin is not None
            process.stdin.close()
            assert await ended(process) == 0
            with pytest.raises(ConnectionError):
                await asking
        gate.opened.set()
        # What had begun has its end.
        async with command(tmp_path) as (editor, agent, process):
            await agent.load_session(
                session_id=opened.session_id, cwd=str(tmp_path), mcp_servers=[]
            )
            assert editor.text("user_message_chunk") == "Go on."
            os.kill(process.pid, signal.SIGTERM)
            assert await ended(process) == 0
