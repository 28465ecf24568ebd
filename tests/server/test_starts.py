"""Starts with everything to load at once; the long form is `python -m tests.long.starts`."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.long.starts import WAIT_S, Start, hosted_account, run, run_many, use_all
from tests.support.clients.lean import LeanClient, lean_client
from tests.support.harness import claim

NOT_INSTALLED = {"sniffio", "h2", "trio", "socksio"}
"""Looked for by libraries again and again, and not there: nothing is imported."""


@claim("loading:starts")
@pytest.mark.process
@pytest.mark.slow
async def test_apps_and_mcp_servers_are_there_after_every_start(tmp_path: Path) -> None:
    # Six at once keep every core busy by themselves.
    assert await run_many(tmp_path, starts=20, at_once=6) == []


async def use_much(url: str) -> str:
    """Call what has to load something, one after the other; errors are answers too."""
    fault = await use_all(url)
    async with lean_client(url) as client:
        with anyio.fail_after(WAIT_S):
            thread_id = (await client.call("thread/start", {}))["thread"]["id"]
            await client.turn(thread_id, '/tool first.meta {"text": "x"}')
            await client.turn(thread_id, "Hello.")
            thread = {"threadId": thread_id}
            signal = {"id": "1", "source": "s", "type": "T", "sender": "a", "summary": "x"}
            requests: list[tuple[str, Any]] = [
                ("account/read", {}),
                ("account/rateLimits/read", {}),
                ("app/installed", {"forceRefresh": True}),
                ("app/read", {"appIds": ["mail"]}),
                ("config/read", {}),
                ("configRequirements/read", None),
                ("model/list", {}),
                ("mcpServerStatus/list", {}),
                ("mcpServer/oauth/login", {"name": "first"}),
                ("config/mcpServer/reload", None),
                ("skills/list", {}),
                ("plugin/list", {}),
                ("marketplace/add", {"source": "/nowhere"}),
                ("server/diagnostics", {}),
                ("environment/status", {"environmentId": "e"}),
                ("environment/add", {"environmentId": "e", "execServerUrl": "ws://127.0.0.1:1"}),
                ("signal/deliver", {"signal": signal, "target": thread, "mode": "wake"}),
                ("project/list", {}),
                ("thread/goal/set", {**thread, "objective": "x"}),
                ("thread/queue/list", thread),
                ("thread/search", {"searchTerm": "Hello"}),
                ("thread/turns/list", thread),
                ("thread/read", {**thread, "includeTurns": True}),
                ("thread/list", {}),
                ("thread/compact/start", thread),
                ("thread/fork", thread),
                ("thread/archive", thread),
            ]
            faults = [await refusal(client, method, params) for method, params in requests]
    return "".join([fault, *faults])


async def refusal(client: LeanClient, method: str, params: Any) -> str:
    """Call a method; what is refused for its params loads nothing, and is a fault of the test."""
    try:
        await client.call(method, params)
    except RuntimeError as exc:
        return f"{exc}\n" if "-32602" in str(exc) else ""
    return ""


@pytest.mark.slow
@claim("loading:one-importer")
@pytest.mark.process
async def test_only_the_importer_imports_once_clients_can_connect(tmp_path: Path) -> None:
    async with hosted_account() as hosted:
        for apps in ("account", "demo"):
            found = tmp_path / f"imports-{apps}"
            start = Start(apps, tmp_path / apps)
            assert (
                await run(start, hosted, use_much, ("tests.support.import_watch", str(found))) == ""
            )
            lines = [line.split("\t") for line in found.read_text().splitlines()]
            # Threads are in files: nothing of the other store is looked for.
            of_database = ("psycopg", "app_server.threads.postgresql")
            assert [line for line in lines if line[2].startswith(of_database)] == []
            by_importer = [module for thread, _, module in lines if thread == "importer"]
            assert {"mcp.shared.auth", "app_server.apps.service"} <= set(by_importer)
            others = {
                (thread, module)
                for thread, when, module in lines
                if thread != "importer" and (thread != "MainThread" or when == "after")
            }
            assert {one for one in others if one[1] not in NOT_INSTALLED} == set()
