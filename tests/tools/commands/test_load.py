"""tools: many commands at once, and more output than anybody wants."""

import re
import time
from pathlib import Path

import anyio
import pytest

from tests.support.harness import claim, serve, write_config
from tests.support.model import ScriptedModel, calls, says
from tests.support.processes import Running, started
from tests.support.turn_tools.turn_commands import CommandResult, command, desk

ACCESS = {"sandbox": "danger-full-access", "approvalPolicy": "never"}


@claim("commands:load")
async def test_32_commands_at_once_in_16_threads(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        served.model.scripts[:] = [
            calls(
                *(
                    {
                        "call_id": f"call_{number}",
                        **command("echo $$; sleep 0.2", yield_time_ms=30_000),
                    }
                    for number in range(2)
                )
            )
        ] * 16
        pids: list[str] = []

        async def one() -> None:
            async with served.client() as client:
                thread_id = await client.start_thread(**ACCESS)
                params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
                await client.call("turn/start", params)
                messages = await client.until("turn/completed")
                for message in messages:
                    if message.get("method") == "item/completed":
                        item = message["params"]["item"]
                        if item["type"] == "commandExecution":
                            assert item["exitCode"] == 0
                            pids.append(item["aggregatedOutput"])

        async with anyio.create_task_group() as tasks:
            for _ in range(16):
                tasks.start_soon(one)
        assert len(set(pids)) == 32


def peak_kb(server: Running) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1])


@claim("commands:load")
@pytest.mark.process
@pytest.mark.parametrize(
    "printed",
    # One command may print 64 MiB a second.
    [256_000_000, pytest.param(1_000_000_000, marks=pytest.mark.slow, id="a-gigabyte")],
)
async def test_much_output_costs_the_server_less_than_50_mb(tmp_path: Path, printed: int) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        async with started(tmp_path) as server, server.client() as client:
            thread_id = await client.start_thread(**ACCESS)
            before = 0
            for line in ("true", f"head -c {printed} /dev/zero"):
                before = peak_kb(server)
                model.scripts[:] = [
                    calls({"call_id": "c", **command(line, yield_time_ms=30_000)}),
                    says("ok"),
                ]
                await client.turn(thread_id, "go")
            output = model.requests[-1]["input"][-1]["output"]
            result = CommandResult(output)
            if result.exit_code is None:
                # A busy machine: it goes on behind the turn, and is read like any other.
                await client.wait_for(
                    "item/completed", lambda p: p["item"]["type"] == "commandExecution"
                )
            else:
                assert result.tokens == printed // 4
            assert peak_kb(server) - before < 50_000


@claim("commands:load")
async def test_deltas_are_merged_within_a_rate(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        began = time.monotonic()
        result = await at.run(
            "i=0; while [ $i -lt 300 ]; do echo $i; i=$((i+1)); sleep 0.002; done",
            yield_time_ms=30_000,
        )
        took = time.monotonic() - began
        assert result.exit_code == 0
        assert "".join(at.deltas()).split() == [str(number) for number in range(300)]
        assert len(at.deltas()) <= took / 0.05 + 2
