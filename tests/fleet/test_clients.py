"""Clients as they are, on a node that does not own the thread, which may have two owners.

The SDK takes most of a second to import: the test does it, and not each process that collects it.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.mcp_front import front_process
from tests.support.clients.older import OldClient, events, text
from tests.support.clients.python_sdk import interrupt_at, streamed_deltas, use_the_sdk
from tests.support.clients.scripted_front import result_of
from tests.support.fleet.elsewhere import Elsewhere, program
from tests.support.harness import WAIT_S, environment_without, write_config
from tests.support.model import Gate, says
from tests.support.processes import EXECUTABLE
from tests.support.threads.nodes import SECRET, owners, running_nodes
from tests.support.wire.pipes import socket_pipe

pytestmark = pytest.mark.postgresql


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_the_python_sdk_works_unchanged_with_threads_of_two_owners(
    tmp_path: Path, database_url: str
) -> None:
    home = tmp_path / "sdk"
    async with running_nodes(tmp_path, database_url) as nodes:
        keys = f'store = "{database_url}"\nnode_secret_file = "{tmp_path}/secret"\n'
        write_config(home, nodes.model.url, keys)
        assert (tmp_path / "secret").read_text() == SECRET
        first, second = nodes.all
        async with first.client() as one, second.client() as two:
            threads = [await one.start_thread(), await two.start_thread()]
            gate = Gate()
            nodes.model.scripts += [says("first"), says("sec", "ond"), [*says("third")[:2], gate]]
            loop = asyncio.get_running_loop()
            await asyncio.to_thread(_use_the_sdk, home, threads, gate, loop)
            # Their owners saw it all.
            assert (await one.until("turn/completed"))[-1]["params"]["threadId"] == threads[0]
            owned = await asyncio.to_thread(owners, database_url)
            assert owned == {threads[0]: first.urls[0], threads[1]: second.urls[0]}


def _use_the_sdk(home: Path, threads: list[str], gate: Gate, loop: Any) -> None:
    import openai_codex

    environment = environment_without("APP_SERVER_HOME") | {"CODEX_HOME": str(home)}
    config = openai_codex.CodexConfig(codex_bin=str(EXECUTABLE), env=environment, cwd=str(home))
    with openai_codex.Codex(config) as codex:
        one, two = (codex.thread_resume(thread_id) for thread_id in threads)
        assert one.run("one").final_response == "first"
        assert "".join(streamed_deltas(two)) == "second"
        interrupt_at(gate, two, loop)
        two.set_name("by the SDK")
        assert {found.id for found in codex.thread_list().data} == set(threads)
        read = codex.thread_resume(two.id).read(include_turns=True)
        assert read.thread.name == "by the SDK"
        statuses = [found.status.value for found in read.thread.turns]
        assert statuses == ["completed", "interrupted"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_the_python_sdk_does_not_notice_that_its_threads_are_elsewhere(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, asked = nodes.all
        elsewhere = Elsewhere(asked.urls[0], [owner.urls[0]])
        async with elsewhere.listening() as url:
            gate = Gate()
            nodes.model.scripts += [says("first"), says("sec", "ond"), [*says("third")[:2], gate]]
            started = program(tmp_path, url)
            loop = asyncio.get_running_loop()
            await asyncio.to_thread(use_the_sdk, started, tmp_path, gate, loop)
        owned = await asyncio.to_thread(owners, database_url)
        assert owned == dict.fromkeys(elsewhere.begun, owner.urls[0])


async def test_a_client_of_the_older_interface_goes_on_with_threads_of_two_owners(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url, 3) as nodes, AsyncExitStack() as stack:
        first, second, asked = nodes.all
        for number, owner in enumerate((first, second)):
            at_owner = await stack.enter_async_context(owner.client())
            nodes.model.scripts += [says(f"before {number}"), says(f"after {number}")]
            thread_id = await at_owner.start_thread()
            await at_owner.turn(thread_id, "hi")
            async with socket_pipe(asked.urls[0], WAIT_S) as pipe:
                client = OldClient(pipe)
                info = {"name": "old", "title": None, "version": "1"}
                await client.call("initialize", {"clientInfo": info})
                resumed = await client.call("resumeConversation", {"conversationId": thread_id})
                assert resumed["conversationId"] == thread_id
                wanted = {"conversationId": thread_id, "experimentalRawEvents": False}
                await client.call("addConversationListener", wanted)
                send = {"conversationId": thread_id, "items": text("again")}
                await client.call("sendUserMessage", send)
                heard = events(await client.until("codex/event/task_complete"))
                said = [event["message"] for kind, event in heard if kind == "agent_message"]
                assert said == [f"after {number}"]
            assert (await at_owner.until("turn/completed"))[-1]["params"]["threadId"] == thread_id
        owned = await asyncio.to_thread(owners, database_url)
        assert asked.urls[0] not in owned.values()


async def test_the_mcp_front_replies_in_a_thread_of_another_node(
    tmp_path: Path, database_url: str
) -> None:
    home = tmp_path / "front"
    async with running_nodes(tmp_path, database_url, 1) as nodes:
        keys = f'store = "{database_url}"\nnode_secret_file = "{tmp_path}/secret"\n'
        write_config(home, nodes.model.url, keys)
        (owner,) = nodes.all
        nodes.model.scripts += [says("one"), says("two")]
        async with owner.client() as at_owner, front_process(home) as client:
            thread_id = await at_owner.start_thread()
            await at_owner.turn(thread_id, "hi")
            replied = await client.call("codex-reply", prompt="Again.", threadId=thread_id)
            assert replied == result_of("two", thread_id)
            ended = await at_owner.wait_for("turn/completed")
            assert ended["params"]["turn"]["status"] == "completed"
