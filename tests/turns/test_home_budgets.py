"""Budgets of a day, of folders and of a home: all threads and servers together stay within them."""

import asyncio
import sqlite3
import tomllib
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from app_server.config.values import Config
from app_server.runtime.files.sqlite import connect
from app_server.threads.files import budgets
from app_server.turns.usage.budgets import BudgetExceeded, Reservation
from app_server.turns.usage.home import broken_limits, shared_limits
from protocol.model import JsonObject
from protocol.threads.thread import BudgetLimits, MoneyAmount
from tests.support.harness import WAIT_S, WireClient, claim, serve, write_config
from tests.support.model import Gate, ScriptedModel, says
from tests.support.processes import running
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
    using,
)
from tests.support.turns import start_turn


async def spent(client: WireClient) -> int:
    total = (await client.call("usage/read", {}))["total"]
    return int(total["inputTokens"] + total["outputTokens"])


async def comes_to(client: WireClient, tokens: int) -> None:
    """Wait until a server knows what others have used: rows follow logs, also of one that died."""
    async with asyncio.timeout(WAIT_S):
        while await spent(client) != tokens:
            await asyncio.sleep(0.01)


def spending(file: Path) -> list[tuple[str, str, str, str, int]]:
    with closing(sqlite3.connect(file)) as database:
        return database.execute("SELECT * FROM spending").fetchall()


@claim("budgets:parallel")
async def test_sixteen_threads_at_once_never_pass_the_budget_of_their_home(tmp_path: Path) -> None:
    async with serve(tmp_path, config=HOME) as served, AsyncExitStack() as stack:
        served.model.choose = small
        clients = [await stack.enter_async_context(served.client()) for _ in range(16)]
        threads = [await client.start_thread() for client in clients]
        stopped = await asyncio.gather(
            *(until_stopped(*one) for one in zip(clients, threads, strict=True))
        )
        used = await spent(clients[0])
        assert used == TOKENS * sum(turns for turns, _ in stopped)
        assert used == TOKENS * len(served.model.requests)
        assert LIMIT - 10_000 < used <= LIMIT
        assert all(why.startswith("the budget of the home is used up: ") for _, why in stopped)
        # The store has the same, and no request that is not settled.
        assert spending(tmp_path / "budgets.sqlite3") == [("home", "", "tokens", "", used)]


@claim("budgets:parallel")
async def test_sixteen_threads_never_pass_a_budget_with_a_model_that_counts_every_byte(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path, config=LARGE) as served, AsyncExitStack() as stack:
        served.model.choose = dearest
        clients = [await stack.enter_async_context(served.client()) for _ in range(16)]
        threads = [await client.start_thread() for client in clients]
        stopped = await asyncio.gather(
            *(
                until_stopped(client, thread_id, LONG_TEXT)
                for client, thread_id in zip(clients, threads, strict=True)
            )
        )
        assert LARGE_LIMIT - 100_000 < await spent(clients[0]) <= LARGE_LIMIT
        assert len(served.model.requests) >= sum(turns for turns, _ in stopped) > 16


@claim("budgets:parallel")
async def test_requests_of_one_thread_at_once_share_its_own_budget(tmp_path: Path) -> None:
    async with serve(tmp_path, config=HOME) as served, served.client() as client:
        thread_id = await client.start_thread(budget={"tokens": 5_000})
        session = served.services.sessions.find(thread_id)
        assert session is not None
        budgets = session.context.usage.budgets
        body: JsonObject = {"instructions": "", "tools": [], "input": []}
        outcomes = await asyncio.gather(
            *(budgets.reserve("turn", body) for _ in range(2)),
            return_exceptions=True,
        )
        # Each reads the settings first, so either may come first.
        assert {type(outcome) for outcome in outcomes} == {Reservation, BudgetExceeded}


@claim("budgets:servers")
async def test_two_servers_of_a_home_share_its_budget_also_when_one_is_killed(
    tmp_path: Path,
) -> None:
    async with ScriptedModel().serve() as model, AsyncExitStack() as stack:
        write_config(tmp_path, model.url, HOME)
        model.choose = small
        servers = [await stack.enter_async_context(running(tmp_path)) for _ in range(2)]
        clients = [
            await stack.enter_async_context(server.client()) for server in servers for _ in range(4)
        ]
        threads = [await client.start_thread() for client in clients]
        await asyncio.gather(*(until_stopped(*one) for one in zip(clients, threads, strict=True)))
        assert LIMIT - 10_000 < TOKENS * len(model.requests) <= LIMIT
        asked = len(model.requests)
        servers[0].process.kill()
        await servers[0].ended()
        async with running(tmp_path) as server, server.client() as client:
            await comes_to(client, TOKENS * asked)
            await until_stopped(client, await client.start_thread())
            assert (await spent(client)) == TOKENS * len(model.requests) <= LIMIT
            # What the store has lost is taken from the ledger.
            for file in tmp_path.glob("budgets.sqlite3*"):
                file.unlink()
            await until_stopped(client, await client.start_thread())
        assert TOKENS * len(model.requests) <= LIMIT


@claim("budgets:servers")
async def test_a_damaged_file_is_set_aside_and_made_again_from_the_ledger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "budgets.sqlite3"
    garbage = b"no database " * 1_000
    async with serve(tmp_path, config=HOME) as served, served.client() as client:
        served.model.choose = small
        thread_id = await client.start_thread()
        await client.turn(thread_id, "go")
        file.write_bytes(garbage)
        turn = await client.turn(thread_id, "go")
        problem = "budgets of the home cannot be used: file is not a database"
        assert (turn["status"], turn["error"]["message"]) == ("failed", problem)
        assert file.with_name("budgets.sqlite3.damaged").read_bytes() == garbage
        assert "the file of budgets is damaged" in caplog.text
        assert len(served.model.requests) == 1
        turns, _ = await until_stopped(client, thread_id)
        used = await spent(client)
        assert used == TOKENS * (1 + turns) == TOKENS * len(served.model.requests)
        assert LIMIT - 40_000 < used <= LIMIT
        assert spending(file) == [("home", "", "tokens", "", used)]


@claim("budgets:servers")
async def test_nothing_is_sent_while_the_disk_has_no_room_for_the_budgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full = True

    def connect_full(*arguments: Any, **more: Any) -> sqlite3.Connection:
        database = connect(*arguments, **more)
        if is_full:
            # SQLite refuses each page that a file does not have yet, as on a full disk.
            database.execute("PRAGMA max_page_count = 1")
        return database

    monkeypatch.setattr(budgets, "connect", connect_full)
    async with serve(tmp_path, config=HOME) as served, served.client() as client:
        served.model.choose = small
        thread_id = await client.start_thread()
        turn = await client.turn(thread_id, "go")
        problem = "budgets of the home cannot be used: database or disk is full"
        assert (turn["status"], turn["error"]["message"]) == ("failed", problem)
        assert served.model.requests == []
        is_full = False
        assert (await client.turn(thread_id, "go"))["status"] == "completed"
        assert spending(tmp_path / "budgets.sqlite3") == [("home", "", "tokens", "", TOKENS)]


@claim("budgets:servers")
async def test_what_cannot_be_settled_stays_counted_with_the_most_it_may_have_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    is_away = False

    def connect_away(path: Path, **more: Any) -> sqlite3.Connection:
        # A folder that is not there refuses as a disk that has gone.
        return connect(path.parent / "gone" / path.name if is_away else path, **more)

    monkeypatch.setattr(budgets, "connect", connect_away)
    gate = Gate()
    async with serve(tmp_path, config=HOME) as served, served.client() as client:
        served.model.scripts.append([gate, *using(says("ok"), 1)])
        thread_id = await client.start_thread()
        turn_id = await start_turn(client, thread_id, "go")
        await gate.wait_until_reached()
        ((*_, reserved),) = [row for row in spending(tmp_path / "budgets.sqlite3") if row[3]]
        is_away = True
        gate.opened.set()
        completed = (await client.wait_for("turn/completed"))["params"]["turn"]
        assert (completed["id"], completed["status"]) == (turn_id, "completed")
        assert "what a request has used of budgets of the home cannot be written" in caplog.text
        is_away = False
        # There was room for one such response, and not for two.
        assert LIMIT / 2 < reserved <= LIMIT
        served.model.choose = small
        turns, _ = await until_stopped(client, thread_id)
        assert reserved + TOKENS * turns <= LIMIT
        rows = spending(tmp_path / "budgets.sqlite3")
        assert sum(row[4] for row in rows) == reserved + TOKENS * turns


@claim("budgets:shared-told")
async def test_thresholds_are_told_once_and_a_raised_budget_lets_threads_go_on(
    tmp_path: Path,
) -> None:
    config = '\n[budget.day]\ntokens = 80000\n\n[budget.folders."{}"]\ntokens = 40000\n'
    inner = tmp_path / "in"
    inner.mkdir()
    async with serve(tmp_path, config=config.format(inner)) as served, served.client() as client:
        served.model.choose = lambda _: using(says("ok"), 26)
        outside = await client.start_thread()
        inside = await client.start_thread(cwd=str(inner))
        told = []
        for thread_id in (inside, outside, inside, outside):
            await start_turn(client, thread_id, "go")
            while True:
                message = await client.receive()
                params = message.get("params", {})
                if message.get("method") == "thread/budget/updated":
                    assert params["name"] in (None, str(inner)) or params["scope"] == "day"
                    how = params["threshold"], params["exceeded"], params["budget"]["percent"]
                    told.append((params["scope"], *how))
                if message.get("method") == "turn/completed":
                    break
        assert told == [
            ("folder", 50, False, 65),
            ("day", 50, False, 65),
            ("folder", None, True, 65),
            ("day", 80, False, 98),
        ]
        assert len(served.model.requests) == 3
        write_config(tmp_path, served.model.url)
        await client.call("thread/budget/set", {"threadId": inside})
        turn = (await client.wait_for("turn/completed"))["params"]["turn"]
        assert turn["status"] == "completed"


def limits_of(text: str) -> Config:
    return Config(tomllib.loads(text))


def test_budgets_are_read_from_the_settings_and_a_bad_one_leaves_the_others() -> None:
    config = limits_of(
        """
        [budget.day]
        cost = 2.5
        currency = "USD"
        [budget.home]
        tokens = 0
        [budget.folders]
        "/srv/app/" = { tokens = 5 }
        "relative" = { tokens = 5 }
        "/srv/other" = { cost = "-1", currency = "USD" }
        "/srv/third" = { cost = 1 }
        """
    )
    day = BudgetLimits(cost=MoneyAmount(currency="USD", amount="2.5"))
    found = [(one.scope, one.name, one.limits) for one in shared_limits(config, "d", "/srv/app/x")]
    assert found == [("day", "d", day), ("folder", "/srv/app", BudgetLimits(tokens=5))]
    assert [one.scope for one in shared_limits(config, "d", "/srv/apple")] == ["day"]
    assert [error.path for error in broken_limits(config)] == [
        ("budget", "home", "tokens"),
        ("budget", "folders", "relative"),
        ("budget", "folders", "/srv/other", "cost"),
        ("budget", "folders", "/srv/third"),
    ]


@pytest.mark.parametrize("table", ["budget = 1", "[budget]\nfolders = 1", "[budget]\nday = 1"])
def test_a_table_that_is_none_is_named(table: str) -> None:
    assert len(list(broken_limits(limits_of(table)))) == 1
    assert shared_limits(limits_of(table), "d", "/") == []
