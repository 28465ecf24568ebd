"""The recipes of docs/unattended.md, as a user runs them."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.harness import WAIT_S, environment_without, serve
from tests.support.notifications.receiver import Receiver, rendered, write_secret
from tests.support.paths import ROOT
from tests.support.processes import EXECUTABLE

pytestmark = pytest.mark.process

PAGE = (ROOT / "docs" / "unattended.md").read_text()


async def run_recipe(home: Path, start: str, **variables: str) -> str:
    """Run the command of the page that begins so, as a shell does; returns what it printed."""
    (command,) = [
        block
        for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
        if block.startswith(start)
    ]
    path = f"{EXECUTABLE.parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *("sh", "-ec", command),
        env=environment_without("APP_SERVER_URL")
        | {"APP_SERVER_HOME": str(home), "PATH": path, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 2 * WAIT_S)
    assert (process.returncode, err) == (0, b"")
    return out.decode()


async def test_step_of_a_pipeline_wakes_an_agent_once(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.call("thread/name/set", {"threadId": thread_id, "name": "the build"})
        variables = {"BUILD_NUMBER": "7", "LOG": "/var/log/build-7"}
        await run_recipe(tmp_path, "app-server signal send", **variables)
        await client.until("turn/completed")
        await run_recipe(tmp_path, "app-server signal send", **variables)
        asked = "\n".join(text for _, text in served.model.inputs())
        assert "Build 7 of main has failed. Read /var/log/build-7, and mend it." in asked
        assert len(served.model.requests) == 1


async def test_nightly_timer_is_armed_and_its_use_is_shown(tmp_path: Path) -> None:
    (budget,) = re.findall(r"```toml\n(\[budget.*?)```", PAGE, re.DOTALL)
    async with serve(tmp_path, config=budget) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")
        tonight = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        named = {"THREAD": thread_id, "TONIGHT": tonight}
        armed = await run_recipe(tmp_path, "app-server signal wake set", **named)
        assert "every=86400" in armed
        (wake,) = (await client.call("thread/wake/list", {"threadId": thread_id}))["data"]
        assert (wake["state"], wake["source"]["everySecs"]) == ("armed", 86400)
        table = await run_recipe(tmp_path, "app-server usage", **named)
        assert [line.split()[0] for line in table.splitlines()[:3]] == ["origin", "user", "total"]


@asynccontextmanager
async def relay(secret: Path, topic: str) -> AsyncIterator[int]:
    """Run the relay of the page on a free port while the context lasts; gives the port."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, str(secret), "0", topic),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        yield int((await process.stdout.readline()).split()[-1])
    finally:
        process.kill()
        await process.wait()


async def test_relay_passes_on_what_is_signed(tmp_path: Path) -> None:
    secret = write_secret(tmp_path)
    async with (
        Receiver().serve() as ntfy,
        relay(secret, f"http://127.0.0.1:{ntfy.port}/topic") as port,
    ):
        entry = {"events": ["turnCompleted"], "secret_file": str(secret)}
        config = 'notification_link = "http://127.0.0.1:4580/"\n' + rendered(
            url=f"http://127.0.0.1:{port}/", **entry
        )
        async with serve(tmp_path / "home", config=config) as served, served.client() as client:
            thread_id = await client.start_thread()
            await client.call("thread/name/set", {"threadId": thread_id, "name": "the build"})
            await client.turn(thread_id, "hello")
            (request,) = await ntfy.wait_for(1)
    assert (request.target, request.body) == ("/topic", b"turnCompleted: the build")
    assert request.headers["click"] == f"http://127.0.0.1:4580/#/threads/{thread_id}"
