"""Threads that work on another machine: an exec server, added as `there`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from app_server.host.environments import Environments
from app_server.host.exec.client.address import parse_exec_address
from app_server.host.exec.client.environment import RemoteEnvironment
from tests.support.harness import Served, WireClient, serve
from tests.support.host.exec_conversations import listening
from tests.support.turn_tools.turn_commands import Desk

THERE = "there"


def entry(folder: Path, environment_id: str = THERE, **more: Any) -> dict[str, Any]:
    """Choose an environment, and a folder of it."""
    return {"environmentId": environment_id, "cwd": str(folder), **more}


async def add(client: WireClient, url: str, environment_id: str = THERE) -> None:
    """Make an exec server known."""
    params = {"environmentId": environment_id, "execServerUrl": url}
    assert await client.call("environment/add", params) == {}


def facts(served: Served) -> list[str]:
    """Give every environment context that the model was sent."""
    texts = [
        part["text"]
        for item in served.model.requests[-1]["input"]
        if item["type"] == "message"
        for part in item["content"]
        if part["type"] == "input_text"
    ]
    return [text for text in texts if text.startswith("<environment_context>")]


def put(environments: Environments, environment_id: str, url: str) -> None:
    """Make the exec server at a URL an environment."""
    address = parse_exec_address(url, None, None, None)
    environments.add(environment_id, RemoteEnvironment, address)


@asynccontextmanager
async def machines() -> AsyncIterator[Environments]:
    """Give a table of environments that has this machine alone."""
    async with anyio.create_task_group() as tasks:
        environments = Environments(tasks)
        try:
            yield environments
        finally:
            with anyio.CancelScope(shield=True):
                await environments.aclose()
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def desk_there(
    root: Path, sandbox: str = "danger-full-access", policy: str = "never", config: str = ""
) -> AsyncIterator[Desk]:
    """Serve, and start a thread whose only environment is a folder behind an exec server."""
    folder = root / "far"
    folder.mkdir(parents=True)
    async with (
        listening() as url,
        serve(root / "home", config=config) as served,
        served.client() as client,
    ):
        await add(client, url)
        thread_id = await client.start_thread(
            environments=[entry(folder)], sandbox=sandbox, approvalPolicy=policy
        )
        yield Desk(served, client, thread_id, folder.resolve())
