"""Questions outside of the protocol: while one is open, no time runs out."""

from pathlib import Path

import anyio

from tests.support.harness import WAIT_S, claim, serve
from tests.support.model import calls, says

COMMAND = {
    "name": "exec_command",
    "arguments": {"cmd": "read line; echo got $line", "yield_time_ms": 250, "tty": True},
}


@claim("elicitations:count")
async def test_questions_are_counted(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread = {"threadId": await client.start_thread()}
        more, less = "thread/increment_elicitation", "thread/decrement_elicitation"
        error = await client.refusal(less, thread)
        assert (error.code, error.message) == (
            -32600,
            "out-of-band elicitation count is already zero",
        )
        assert await client.call(more, thread) == {"count": 1, "paused": True}
        assert await other.call(more, thread) == {"count": 2, "paused": True}
        assert await client.call(less, thread) == {"count": 1, "paused": True}
        assert await client.call(less, thread) == {"count": 0, "paused": False}
        nobody = "01a2026d-7302-7701-bb0d-0fa672a7265b"
        error = await client.refusal(more, {"threadId": nobody})
        assert error.message == f"thread not found: {nobody}"


@claim("elicitations:gone")
async def test_a_client_that_goes_lets_its_clocks_go_on(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread = {"threadId": await client.start_thread()}
        questions = served.services.sessions.get(thread["threadId"]).out_of_band
        async with served.client() as other:
            await other.call("thread/increment_elicitation", thread)
            await other.call("thread/increment_elicitation", thread)
            assert await client.call("thread/increment_elicitation", thread) == {
                "count": 3,
                "paused": True,
            }
        with anyio.fail_after(WAIT_S):
            while questions.count > 1:
                await anyio.lowlevel.checkpoint()
        assert await client.call("thread/decrement_elicitation", thread) == {
            "count": 0,
            "paused": False,
        }


@claim("elicitations:paused")
async def test_a_command_is_waited_for_while_a_question_is_open(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(sandbox="danger-full-access", approvalPolicy="never")
        thread = {"threadId": thread_id}
        await client.call("thread/increment_elicitation", thread)
        served.model.scripts += [calls(COMMAND), says("done")]
        said = [{"type": "text", "text": "go"}]
        await client.call("turn/start", {**thread, "input": said})
        await client.wait_for(
            "item/started", lambda told: told["item"]["type"] == "commandExecution"
        )
        timeouts = served.services.sessions.get(thread_id).context.timeouts
        with anyio.fail_after(WAIT_S):
            while not timeouts.paused:
                await anyio.lowlevel.checkpoint()
        assert len(served.model.requests) == 1
        await client.call("thread/decrement_elicitation", thread)
        await client.wait_for("turn/completed")
        output = [item["output"] for item in served.model.items() if "output" in item][-1]
        assert "Process running with session ID" in output


@claim("elicitations:servers")
async def test_the_clocks_of_mcp_servers_stop_too(tmp_path: Path) -> None:
    config = '[mcp_servers.one]\ncommand = "true"\nenabled = true\n'
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread = {"threadId": await client.start_thread()}
        session = served.services.sessions.get(thread["threadId"])
        (server,) = session.servers.live().servers.values()
        with server.running_calls.run(None, 60.0) as call:
            await client.call("thread/increment_elicitation", thread)
            assert call.deadline == float("inf")
            with server.running_calls.run(None, 60.0) as later:
                assert later.deadline == float("inf")
            await client.call("thread/decrement_elicitation", thread)
            assert call.deadline < float("inf")
