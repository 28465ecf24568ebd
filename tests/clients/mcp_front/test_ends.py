"""The app-server as an MCP server: cancelled calls, the end of stdin, signals, bounds."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.clients.mcp_front.conversation import FrontLimits
from app_server.clients.mcp_front.process import offer
from app_server.rpc.in_process import MAX_WAITING, open_pipe
from protocol.jsonrpc.envelope import Answer, Notification, parse_message
from tests.support.clients.mcp_front import EXECUTABLE, front
from tests.support.clients.scripted_front import WIPE, result_of, scripted
from tests.support.harness import WAIT_S, claim, environment_without, serve, stdio_server
from tests.support.model import Gate, calls, says


@claim("front:cancel")
async def test_a_cancelled_call_interrupts_its_turn_and_is_not_answered(tmp_path: Path) -> None:
    async with scripted(tmp_path) as model, front(tmp_path) as client:
        gate = Gate()
        model.scripts.append([gate])
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: client.call("codex", prompt="Hi."))
                await gate.wait_until_reached()
                scope.cancel()
        # The SDK has sent `notifications/cancelled`.
        aborted = await client.until("turn_aborted")
        thread_id = aborted["_meta"]["threadId"]
        assert aborted["msg"] == {
            "type": "turn_aborted",
            "turn_id": aborted["id"],
            "reason": "interrupted",
        }
        again = await client.call("codex-reply", prompt="Go on.", threadId=thread_id)
        assert again == result_of("ok", thread_id)
        assert model.inputs()[-1] == ("user", "Go on.")


@claim("front:cancel")
async def test_a_question_of_a_cancelled_call_is_withdrawn(tmp_path: Path) -> None:
    peer = stdio_server("peer", required="true")
    async with scripted(tmp_path, peer) as model, front(tmp_path) as client:
        asked, withdrawn = asyncio.Event(), asyncio.Event()

        async def never(params: dict[str, Any]) -> dict[str, Any]:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                withdrawn.set()
            return {}

        client.answer_with = never
        model.scripts.append(calls(WIPE))
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: client.call("codex", prompt="Wipe it."))
                with anyio.fail_after(WAIT_S):
                    await asked.wait()
                scope.cancel()
        with anyio.fail_after(WAIT_S):
            await withdrawn.wait()
        await client.until("turn_aborted")


@asynccontextmanager
async def called_by_hand(home: Path, gate: Gate) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the executable, and call it as `a` with a turn that has reached the gate."""
    process = await asyncio.create_subprocess_exec(
        str(EXECUTABLE),
        *("--home", str(home), "mcp-server"),
        env=environment_without("CODEX_HOME", "APP_SERVER_HOME"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(
        b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":'
        b'{"name":"x","version":"1"}}}\n{"jsonrpc":"2.0","id":"a","method":"tools/call",'
        b'"params":{"name":"codex","arguments":{"prompt":"Hi."}}}\n'
    )
    await gate.wait_until_reached()
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.communicate()


async def last_answer(process: asyncio.subprocess.Process) -> Any:
    """Wait for the end of the process, and return the result of `a`."""
    assert process.stdout is not None
    with anyio.fail_after(WAIT_S):
        output = await process.stdout.read()
        assert await process.wait() == 0
    answers = [parse_message(line) for line in output.decode().splitlines()]
    [answer] = [a for a in answers if isinstance(a, Answer) and a.id == "a"]
    return answer.result


@pytest.mark.process
@claim("front:end")
async def test_the_end_of_stdin_ends_turns_and_the_process(tmp_path: Path) -> None:
    async with scripted(tmp_path) as model:
        gate = Gate()
        model.scripts.append([gate])
        async with called_by_hand(tmp_path, gate) as process:
            assert process.stdin is not None
            process.stdin.close()
            result = await last_answer(process)
        thread_id = result["structuredContent"]["threadId"]
        assert result == result_of("The turn was interrupted", thread_id, is_error=True)


@pytest.mark.process
@claim("front:end")
async def test_sigterm_lets_calls_end_though_the_client_stays(tmp_path: Path) -> None:
    async with scripted(tmp_path) as model:
        gate = Gate()
        model.scripts.append([gate, *says("Done.")])
        async with called_by_hand(tmp_path, gate) as process:
            process.terminate()
            gate.opened.set()
            result = await last_answer(process)
        assert result == result_of("Done.", result["structuredContent"]["threadId"])


@claim("front:bounds")
async def test_calls_beyond_the_bound_are_refused_and_the_others_answered(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, anyio.create_task_group() as tasks:
        ours, theirs = open_pipe()
        tasks.start_soon(offer, served.app, theirs, FrontLimits(max_calls=1))
        gate = Gate()
        served.model.scripts.append([gate, *says("ok")])

        async def next_answer() -> Answer:
            while True:
                message = parse_message(await ours.receive())
                if isinstance(message, Answer):
                    return message

        with anyio.fail_after(WAIT_S):
            await ours.send(
                '{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x","version":"1"}}}'
            )
            assert (await next_answer()).id == 0
            call = '"method":"tools/call","params":{"name":"codex","arguments":{"prompt":"x"}}}'
            await ours.send(f'{{"id":1,{call}')
            await gate.wait_until_reached()
            await ours.send(f'{{"id":2,{call}')
            refused = await next_answer()
            assert (refused.id, refused.error["code"]) == (2, -32001)
            await ours.send(f'{{"id":1,{call}')
            assert (await next_answer()).error["message"] == "a call with this id is running"
            await ours.send("[]")
            assert (await next_answer_code(ours)) == -32600
            await ours.send("nonsense")
            assert (await next_answer_code(ours)) == -32700
            gate.opened.set()
            answered = await next_answer()
            assert (answered.id, answered.result["content"][0]["text"]) == (1, "ok")
            await ours.aclose()


@claim("front:bounds")
async def test_a_client_that_does_not_read_counts_as_gone(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        served.model.scripts.append(says(*["x"] * MAX_WAITING))
        ours, theirs = open_pipe()
        await ours.send(
            '{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x","version":"1"}}}'
        )
        await ours.send(
            '{"id":1,"method":"tools/call","params":{"name":"codex","arguments":{"prompt":"x"}}}'
        )
        with anyio.fail_after(WAIT_S):
            await offer(served.app, theirs, FrontLimits(send_s=0.2))
            heard = [parse_message(await ours.receive()) for _ in range(MAX_WAITING)]
            with pytest.raises(anyio.EndOfStream):
                await ours.receive()
        assert [type(message) for message in heard] == [Answer, *[Notification] * (MAX_WAITING - 1)]
        await ours.aclose()


async def next_answer_code(pipe: Any) -> int:
    """Return the code of the next error without an id."""
    while True:
        text = await pipe.receive()
        if '"id":null' in text:
            return int(text.split('"code":')[1].split(",")[0])
