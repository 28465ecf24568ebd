"""The ledger of usage with threads in a database: exact, whatever happens to the server."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.harness import claim
from tests.support.threads.nodes import running_nodes
from tests.support.turn_tools.usage import (
    RETRYING,
    requests_of_all_kinds,
    used,
    without_times,
)
from tests.support.turn_tools.usage_kills import ledger_over_kills

pytestmark = pytest.mark.postgresql


@claim("usage:sum", "usage:crash")
async def test_usage_of_a_killed_owner_is_the_sum_of_what_the_model_has_reported(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        async with owner.client() as client:
            thread_id = await client.start_thread(config=RETRYING)
            turns = await requests_of_all_kinds(client, nodes.model, thread_id)
            os.kill(owner.process.pid, signal.SIGKILL)
            await owner.ended()
        async with other.client() as client:
            (row,) = (await client.call("usage/read", {"threadId": thread_id}))["data"]
            assert without_times(row["usage"]) == used(1, 2, 3, 4, 5, 6, unreported=2)
            params = {"threadId": thread_id, "groupBy": "turn"}
            rows = (await client.call("usage/read", params))["data"]
            figures = {row["group"]: without_times(row["usage"]) for row in rows}
            expected = used(1, 2, unreported=1), used(3, unreported=1)
            assert tuple(figures[turn] for turn in turns) == expected


@claim("usage:crash")
async def test_usage_is_exact_whenever_a_server_of_a_database_is_killed(
    tmp_path: Path, database_url: str
) -> None:
    await ledger_over_kills(tmp_path, [0.0, 0.2], ["--store", database_url])
