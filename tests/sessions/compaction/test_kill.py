"""Compaction and kill -9: the history is the old one or the new one, and never half of it."""

import signal
from pathlib import Path

import pytest

from app_server.models.prompt.context import SUMMARY_PREFIX
from app_server.models.prompt.request import INTERRUPTED
from tests.support.harness import claim, write_config
from tests.support.model import Gate, ScriptedModel, says
from tests.support.processes import running

pytestmark = pytest.mark.process


@claim("compact:restart")
@pytest.mark.parametrize("moment", ["asked", "summed up"])
@pytest.mark.slow
async def test_a_compaction_that_is_cut_off_changes_the_history_wholly_or_not_at_all(
    tmp_path: Path, moment: str
) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        async with running(tmp_path) as server, server.client() as client:
            thread_id = await client.start_thread()
            await client.turn(thread_id, "one")
            gate = Gate()
            summary = says("sum")
            model.scripts.append([*summary[:-1], gate] if moment == "asked" else summary)
            await client.call("thread/compact/start", {"threadId": thread_id})
            if moment == "asked":
                await gate.wait_until_reached()
            else:
                await client.wait_for(
                    "item/completed", lambda p: p["item"]["type"] == "contextCompaction"
                )
            server.process.send_signal(signal.SIGKILL)
            await server.ended()
            gate.opened.set()
        async with running(tmp_path) as server, server.client() as client:
            resumed = await client.call("thread/resume", {"threadId": thread_id})
            turns = [turn["status"] for turn in resumed["thread"]["turns"]]
            await client.turn(thread_id, "two")
            seen = model.inputs()
        if moment == "asked":
            assert turns == ["completed", "interrupted"]
            before = [("user", "one"), ("assistant", "ok")]
        else:
            before = [("user", "one"), ("user", SUMMARY_PREFIX + "sum")]
        interrupted = [("developer", INTERRUPTED)] if turns[-1] == "interrupted" else []
        assert seen == [*before, *interrupted, ("user", "two")]
