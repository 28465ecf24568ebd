"""Nodes that share a budget of a home."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest

from tests.support.harness import claim
from tests.support.threads.nodes import running_nodes
from tests.support.turn_tools.usage import (
    HOME,
    LARGE,
    LARGE_LIMIT,
    LIMIT,
    LONG_TEXT,
    TOKENS,
    dearest,
    small,
    until_stopped,
)

pytestmark = pytest.mark.postgresql

THREADS = 16


@claim("budgets:servers")
async def test_sixteen_threads_of_two_nodes_never_pass_their_budget(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        running_nodes(tmp_path, database_url, config=HOME) as nodes,
        AsyncExitStack() as stack,
    ):
        nodes.model.choose = small
        clients = [
            await stack.enter_async_context(nodes.all[number % 2].client())
            for number in range(THREADS)
        ]
        threads = [await client.start_thread() for client in clients]
        # Each node has taken what the ledger has.
        for client, thread_id in zip(clients[:2], threads[:2], strict=True):
            await client.turn(thread_id, "go")
        stopped = await asyncio.gather(
            *(until_stopped(*one) for one in zip(clients, threads, strict=True))
        )
        asked = len(nodes.model.requests)
        assert asked == 2 + sum(turns for turns, _ in stopped)
        assert LIMIT - 10_000 < TOKENS * asked <= LIMIT
        assert all(why.startswith("the budget of the home is used up: ") for _, why in stopped)
        rows = await asyncio.to_thread(_spending, database_url)
        assert rows == [("home", "", "tokens", "", TOKENS * asked)]


@claim("budgets:servers", "budgets:parallel")
async def test_sixteen_threads_of_two_nodes_never_pass_with_a_model_that_counts_every_byte(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        running_nodes(tmp_path, database_url, config=LARGE) as nodes,
        AsyncExitStack() as stack,
    ):
        nodes.model.choose = dearest
        clients = [
            await stack.enter_async_context(nodes.all[number % 2].client())
            for number in range(THREADS)
        ]
        threads = [await client.start_thread() for client in clients]
        stopped = await asyncio.gather(
            *(
                until_stopped(client, thread_id, LONG_TEXT)
                for client, thread_id in zip(clients, threads, strict=True)
            )
        )
        assert sum(turns for turns, _ in stopped) > THREADS
        ((*_, used),) = await asyncio.to_thread(_spending, database_url)
        assert LARGE_LIMIT - 100_000 < used <= LARGE_LIMIT


def _spending(database_url: str) -> list[tuple[str, str, str, str, int]]:
    statement = "SELECT scope, name, unit, request_id, amount FROM spending"
    with psycopg.connect(database_url) as connection:
        return connection.execute(statement).fetchall()
