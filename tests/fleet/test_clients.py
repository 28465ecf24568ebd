"""Clients as they are, on a node that does not own the thread.

The SDK takes most of a second to import: the test does it, and not each process that collects it.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import WAIT_S, environment_without, write_config
from tests.support.model import Gate, says
from tests.support.processes import EXECUTABLE
from tests.support.threads.nodes import SECRET, running_nodes

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
            loaded = [(await each.call("thread/loaded/list", {}))["data"] for each in (one, two)]
            assert loaded == [[thread_id] for thread_id in threads]


def _use_the_sdk(home: Path, threads: list[str], gate: Gate, loop: Any) -> None:
    import openai_codex

    environment = environment_without("APP_SERVER_HOME") | {"CODEX_HOME": str(home)}
    config = openai_codex.CodexConfig(codex_bin=str(EXECUTABLE), env=environment, cwd=str(home))
    with openai_codex.Codex(config) as codex:
        one, two = (codex.thread_resume(thread_id) for thread_id in threads)
        assert one.run("one").final_response == "first"
        events = list(two.turn("two").stream())
        deltas = [
            event.payload.delta  # type: ignore[union-attr]
            for event in events
            if event.method == "item/agentMessage/delta"
        ]
        assert "".join(deltas) == "second"
        assert events[-1].method == "turn/completed"
        turn = two.turn("three")
        asyncio.run_coroutine_threadsafe(gate.wait_until_reached(), loop).result(timeout=WAIT_S)
        turn.interrupt()
        *_, last = turn.stream()
        loop.call_soon_threadsafe(gate.opened.set)
        assert last.payload.turn.status.value == "interrupted"  # type: ignore[union-attr]
        two.set_name("by the SDK")
        assert {found.id for found in codex.thread_list().data} == set(threads)
        read = codex.thread_resume(two.id).read(include_turns=True)
        assert read.thread.name == "by the SDK"
        statuses = [found.status.value for found in read.thread.turns]
        assert statuses == ["completed", "interrupted"]
