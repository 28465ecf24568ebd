"""The log of a real server: JSON lines that say which request, thread and turn they are about."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.harness import claim, stdio_server, write_config
from tests.support.model import ScriptedModel, calls, says
from tests.support.processes import Running, run_cli, running

SECRET = "hunter2-Zx9_qwerty"

LOGS_MUCH = """
import logging
import os
import select
from app_server.observability.log import LogSettings, set_up_logs
from app_server.runtime.standard_streams import standard_streams

with standard_streams("logs-much") as end:
    set_up_logs(LogSettings())
    for _ in range(300):
        logging.getLogger("app_server").warning("x" * 1024)
    while select.select([], [2], [], 0)[1]:
        os.sched_yield()
    end.status = 7
raise SystemExit(end.status)
"""
"""A program that logs more than a pipe holds, and ends when the pipe is full."""


async def lines_of(server: Running) -> list[dict[str, Any]]:
    server.process.terminate()
    server.process.terminate()
    assert server.process.stderr is not None
    with anyio.fail_after(60):
        text = (await server.process.stderr.read()).decode()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.process
@claim("log:ids", "log:secrets")
async def test_every_line_about_a_turn_names_request_thread_and_turn(tmp_path: Path) -> None:
    call = {"namespace": "mcp__files", "name": "meta", "arguments": json.dumps({"text": SECRET})}
    model = ScriptedModel()
    async with model.serve():
        write_config(tmp_path, f"{model.url}?key={SECRET}", stdio_server("files"))
        levels = {"LOG_FORMAT": "json", "LOG_LEVEL": "info,mcp=debug,mcp_wire=warning"}
        async with running(tmp_path, **levels, SOME_API_KEY=SECRET) as server:
            async with server.client() as client:
                thread_id = await client.start_thread(approvalPolicy="never")
                model.scripts += [calls(call), says("done")]
                turn = await client.turn(thread_id, SECRET)
                await client.refusal("thread/read", {"threadId": "x" * 8})
            lines = await lines_of(server)
    ids = ("connectionId", "method", "threadId", "turnId")
    of_turn = [line for line in lines if line.get("turnId") == turn["id"]]
    assert [line["fields"]["message"] for line in of_turn][-1] == "turn completed"
    assert any(line["fields"]["message"].startswith("call server='files'") for line in of_turn)
    assert {tuple(line[name] for name in ids) for line in of_turn} == {
        (1, "turn/start", thread_id, turn["id"])
    }
    assert len({line["requestId"] for line in of_turn}) == 1
    answered = {
        line["method"]: line for line in lines if line["fields"]["message"].startswith("answered")
    }
    assert answered["thread/read"]["fields"]["message"].endswith(" ms: invalidThreadId")
    assert answered["turn/start"]["threadId"] == thread_id
    assert "threadId" not in answered["initialize"]
    assert SECRET not in json.dumps(lines)


@pytest.mark.process
def test_a_wrong_level_ends_the_program_with_the_rule() -> None:
    result = run_cli("--listen", "off", LOG_LEVEL="loud")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.endswith(
        "app-server: error: LOG_LEVEL: `loud` is none of debug, info, warning, error\n"
    )


@pytest.mark.process
def test_a_program_whose_stderr_is_not_read_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", LOGS_MUCH], stderr=subprocess.PIPE) as process:
        try:
            assert process.wait(60) == 7
        finally:
            process.kill()
