"""`app-server usage`: figures of a running server, for people and for programs."""

import json
import subprocess
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from app_server.cli.usage import render
from tests.support.harness import serve, write_config
from tests.support.model import ScriptedModel, says
from tests.support.processes import run_cli, running

PRICES = """
[model_prices.scripted]
in = 1
out = "2.5"
currency = "USD"
"""


async def run(*words: str) -> subprocess.CompletedProcess[str]:
    return await anyio.to_thread.run_sync(run_cli, *words)


@pytest.mark.process
async def test_the_table_and_the_json_have_what_the_server_says(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url, PRICES)
        async with running(tmp_path) as server, server.client() as client:
            thread_id = await client.start_thread()
            model.scripts.append(says("ok"))
            await client.turn(thread_id, "go")
            told = await client.call("usage/read", {"groupBy": "thread"})
            words = ["usage", "--url", server.urls[0], "--by", "thread"]
            shown = await run(*words, "--json")
            assert (shown.returncode, json.loads(shown.stdout)) == (0, told)
            shown = await run(*words)
            table = render(told, "thread")
            assert (shown.returncode, shown.stdout.splitlines()) == (0, table)
            shown = await run(*words, "--since", "never")
            assert (shown.returncode, "`since`" in shown.stderr) == (1, True)
            shown = await run("usage", "--by", "turn")
            assert (shown.returncode, "--by turn needs --thread" in shown.stderr) == (2, True)


async def test_all_pages_are_read_and_shown_as_a_table(tmp_path: Path) -> None:
    figures: dict[str, Any] = {
        "inputTokens": 10,
        "cachedInputTokens": 2,
        "outputTokens": 5,
        "reasoningOutputTokens": 1,
        "requests": 1,
        "unreportedRequests": 0,
        "modelMs": 1540,
        "toolMs": 0,
        "cost": [{"currency": "USD", "amount": "0.0000225"}],
        "unpricedTokens": 0,
    }
    usage = {
        "data": [{"group": "2026-11-27", "usage": figures}],
        "total": {**figures, "cost": [], "unreportedRequests": 1, "unpricedTokens": 15},
        "pricesSource": "/home/config.toml",
        "nextCursor": None,
    }
    assert render(usage, "day") == [
        "day         in  cached  out  reasoning  requests  model s  tools s           cost",
        "2026-11-27  10       2    5          1         1      1.5      0.0  0.0000225 USD",
        "total       10       2    5          1         1      1.5      0.0              -",
        "of 1 requests the model reported no tokens",
        "15 tokens are of models without a price",
        "prices: /home/config.toml",
    ]
    async with serve(tmp_path) as served, served.client() as client:
        empty = await client.call("usage/read", {})
        assert (empty["data"], "pricesSource" in empty) == ([], False)
