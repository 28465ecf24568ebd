"""threads: a turn whose server ended in the middle of it, as its log shows afterwards."""

import asyncio
import shutil
from pathlib import Path

import anyio

from tests.support.harness import WAIT_S, claim, serve
from tests.support.mcp_peers.web_peer import WebPeer
from tests.support.model import calls
from tests.support.turns import start_turn


@claim("process:kill-in-call")
async def test_a_turn_that_was_cut_off_in_a_call_is_interrupted_and_the_thread_goes_on(
    tmp_path: Path,
) -> None:
    go_on = asyncio.Event()
    peer = WebPeer(hold=go_on)
    before, after = tmp_path / "before", tmp_path / "after"
    async with peer.serve():
        config = f'[mcp_servers.web]\nurl = "{peer.url}"\ndefault_tools_approval_mode = "approve"\n'
        async with serve(before, config=config) as served, served.client() as client:
            thread_id = await client.start_thread()
            call = {"namespace": "mcp__web", "name": "look", "arguments": {}}
            served.model.scripts.append(calls(call))
            await start_turn(client, thread_id, "go")
            with anyio.fail_after(WAIT_S):
                await peer.holding.wait()
            # What is on the disk now is what a server that is killed now would leave.
            shutil.copytree(before / "threads", after / "threads")
            go_on.set()
            await client.wait_for("turn/completed")
    async with serve(after) as served, served.client() as client:
        read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        (turn,) = read["thread"]["turns"]
        assert (turn["status"], len(turn["items"])) == ("interrupted", 1)
        assert read["thread"]["status"] == {"type": "notLoaded"}
        await client.call("thread/resume", {"threadId": thread_id})
        assert (await client.turn(thread_id, "again"))["status"] == "completed"
        assert [item["type"] for item in served.model.items()] == [
            "message",
            "function_call",
            "function_call_output",
            "message",
            "message",
        ]
