"""The ledger of usage: every request to a model, once, in the sums that clients read."""

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app_server.config.effective import ConfigSources, Configuration
from app_server.config.values import Config
from app_server.models.catalogue.prices import broken_prices, read_prices
from app_server.rpc.hub import Hub
from app_server.runtime.clock import SystemClock
from app_server.threads.files.budgets import FileBudgets
from app_server.threads.files.store import FileStore
from app_server.threads.log.live import LiveThread
from app_server.threads.log.state import begin
from app_server.threads.usage import (
    MAX_SUMS,
    Usage,
    UsageLedger,
    UsageQuery,
    sum_of_rows,
)
from app_server.turns.clients import ThreadClients
from app_server.turns.slot import SessionStatus, TurnSlot
from app_server.turns.usage.budgets import ThreadBudgets
from app_server.turns.usage.home import HomeBudgets
from app_server.turns.usage.recorder import UsageRecorder
from protocol.log.rollout import UsageRecorded
from tests.support.harness import WireClient, claim, serve, write_config
from tests.support.model import BREAK, Gate, ScriptedModel, calls, says
from tests.support.processes import running
from tests.support.threads.stores import created
from tests.support.turn_tools.usage import (
    LIST,
    RETRYING,
    requests_of_all_kinds,
    used,
    using,
    without_times,
)
from tests.support.turn_tools.usage_kills import ledger_over_kills
from tests.support.turns import start_turn

NONE = {
    "inputTokens": 0,
    "cachedInputTokens": 0,
    "outputTokens": 0,
    "reasoningOutputTokens": 0,
    "requests": 0,
    "unreportedRequests": 0,
    "cost": [],
    "unpricedTokens": 0,
}


async def by(client: WireClient, group_by: str, **params: Any) -> dict[str, Any]:
    """Read usage by group, and check that the total is the sum."""
    answer = await client.call("usage/read", {"groupBy": group_by, **params})
    groups = {row["group"]: without_times(row["usage"]) for row in answer["data"]}
    sums: Counter[str] = Counter()
    for figures in groups.values():
        sums.update({name: value for name, value in figures.items() if name != "cost"})
    total = without_times(answer["total"])
    assert {**NONE, **sums, "cost": total["cost"]} == total
    assert list(groups) == sorted(groups)
    return groups


@claim("usage:sum")
async def test_usage_is_the_sum_of_what_the_model_has_reported(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        model = served.model
        thread_id = await client.start_thread(config=RETRYING)
        first_id, steered_id = await requests_of_all_kinds(client, model, thread_id)
        assert await by(client, "thread") == {thread_id: used(1, 2, 3, 4, 5, 6, unreported=2)}
        assert await by(client, "origin") == {
            "user": used(1, 2, 3, unreported=2),
            "compaction": used(4),
            "review": used(5, 6),
        }
        turns = await by(client, "turn", threadId=thread_id)
        assert turns[first_id] == used(1, 2, unreported=1)
        assert turns[steered_id] == used(3, unreported=1)
        assert len(turns) == 4
        assert await by(client, "model") == {"scripted": used(1, 2, 3, 4, 5, 6, unreported=2)}
        assert await by(client, "folder") == {str(tmp_path): used(1, 2, 3, 4, 5, 6, unreported=2)}
        (day,) = await by(client, "day")
        assert await by(client, "day", since=day, until=day) == await by(client, "day")
        assert await by(client, "day", since="2999-01-01") == {}
        assert await by(client, "turn", threadId=thread_id, until="1999-12-31") == {}


@claim("usage:failed")
async def test_usage_of_a_response_that_failed_counts_as_far_as_it_is_reported(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(using(says("half"), 3, "incomplete"))
        assert (await client.turn(thread_id, "one"))["status"] == "failed"
        served.model.scripts.append([*says("half")[:2], BREAK])
        assert (await client.turn(thread_id, "two"))["status"] == "failed"
        assert await by(client, "thread") == {thread_id: used(3, unreported=1)}


@claim("usage:fork", "usage:revert")
async def test_a_fork_counts_its_own_and_what_is_reverted_stays_spent(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        model = served.model
        thread_id = await client.start_thread()
        model.scripts += [using(says("one"), 1), using(says("two"), 2)]
        await client.turn(thread_id, "one")
        second = await client.turn(thread_id, "two")
        fork = (await client.call("thread/fork", {"threadId": thread_id}))["thread"]["id"]
        assert await by(client, "thread") == {thread_id: used(1, 2)}
        model.scripts += [using(says("three"), 3)]
        await client.turn(fork, "three")
        assert await by(client, "thread") == {thread_id: used(1, 2), fork: used(3)}
        revert = {"threadId": thread_id, "beforeTurnId": second["id"]}
        await client.call("thread/revert", revert)
        assert await by(client, "thread") == {thread_id: used(1, 2), fork: used(3)}
        turns = await by(client, "turn", threadId=thread_id)
        assert turns[second["id"]] == used(2)
        await client.call("thread/delete", {"threadId": fork})
        assert await by(client, "thread") == {thread_id: used(1, 2)}
    # The index is made again from the logs.
    (tmp_path / "index" / "threads.sqlite3").unlink()
    async with serve(tmp_path) as served, served.client() as client:
        assert await by(client, "thread") == {thread_id: used(1, 2)}


@claim("usage:crash")
async def test_usage_is_exact_after_the_server_was_killed(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        gate, expected = Gate(), list[int]()
        thread_id = ""
        for number in range(1, 6):
            gate = Gate()
            model.scripts += [
                using(calls(LIST), number),
                using(calls(LIST), 10 * number),
                [*says("never")[:2], gate],
            ]
            expected += [number, 10 * number]
            async with running(tmp_path) as server, server.client() as client:
                if number == 1:
                    thread_id = await client.start_thread()
                else:
                    await client.call("thread/resume", {"threadId": thread_id})
                await start_turn(client, thread_id, "go")
                await gate.wait_until_reached()
                os.kill(server.process.pid, signal.SIGKILL)
                await server.ended()
            gate.opened.set()
        async with running(tmp_path) as server, server.client() as client:
            assert await by(client, "thread") == {thread_id: used(*expected)}
            turns = await by(client, "turn", threadId=thread_id)
            assert list(turns.values()) == [used(n, 10 * n) for n in range(1, 6)]


@claim("usage:crash")
async def test_usage_is_exact_whenever_the_server_is_killed(tmp_path: Path) -> None:
    await ledger_over_kills(tmp_path, [0.0, 0.1, 0.3])


PRICES = """
[model_prices.scripted]
in = 1.25
cached = "0.125"
out = 10
currency = "USD"

[model_prices."scripted/other"]
in = 0.1
out = 0.000000001
currency = "EUR"

[model_prices.broken]
in = -1
out = 1
currency = "USD"
"""


@claim("usage:cost")
async def test_cost_is_exact_and_a_sum_for_each_currency(tmp_path: Path) -> None:
    async with serve(tmp_path, config=PRICES) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts += [using(says("one"), 1), using(says("two"), 3)]
        served.model.scripts += [using(says("three"), 7)]
        await client.turn(thread_id, "one")
        await client.turn(thread_id, "two", model="other")
        await client.turn(thread_id, "three", model="unknown")
        answer = await client.call("usage/read", {"groupBy": "model"})
        costs = {row["group"]: row["usage"]["cost"] for row in answer["data"]}
        assert costs == {
            "other": [{"currency": "EUR", "amount": "0.00030000000003"}],
            "scripted": [{"currency": "USD", "amount": "0.0012375"}],
            "unknown": [],
        }
        assert answer["total"]["cost"] == [*costs["other"], *costs["scripted"]]
        assert answer["total"]["unpricedTokens"] == 7070
        assert answer["pricesSource"] == str(tmp_path / "config.toml")
        thread = (await client.call("usage/read", {"threadId": thread_id}))["data"]
        assert thread[0]["usage"]["cost"] == answer["total"]["cost"]


GOOD = {"in": "0.000000001", "cached": 0, "out": 1_000_000, "currency": "USD"}
RULE = "a price must be a number, or the text of one, from 0 to 1000000, with at most 9 decimals"


@claim("usage:cost")
@pytest.mark.parametrize(
    ("wrong", "path", "rule"),
    [
        ({"in": -1}, ("in",), RULE),
        ({"in": "-0.1"}, ("in",), RULE),
        ({"cached": -0.001}, ("cached",), RULE),
        ({"out": 1_000_000.5}, ("out",), RULE),
        ({"out": "1e7"}, ("out",), RULE),
        ({"in": "0.0000000001"}, ("in",), RULE),
        ({"in": True}, ("in",), RULE),
        ({"in": "nan"}, ("in",), RULE),
        ({"in": float("inf")}, ("in",), RULE),
        ({"in": "much"}, ("in",), RULE),
        ({"in": [1]}, ("in",), RULE),
        ({"out": None}, (), "`in` and `out` are needed: the prices of a million tokens"),
        ({"currency": "usd"}, ("currency",), "`currency` must be three capital letters"),
        ({"currency": None}, (), "`currency` must be three capital letters"),
    ],
)
def test_a_price_that_makes_no_sense_is_named_and_the_others_hold(
    wrong: dict[str, Any], path: tuple[str, ...], rule: str
) -> None:
    entry = {key: value for key, value in {**GOOD, **wrong}.items() if value is not None}
    config = Config({"model_prices": {"bad": entry, "good": GOOD}})
    (error,) = broken_prices(config)
    assert error.path == ("model_prices", "bad", *path)
    assert str(error).startswith(rule)
    assert list(read_prices(config).by_name) == ["good"]


@claim("usage:cost")
async def test_clients_are_warned_of_a_price_below_zero_and_none_is_written(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path, config=PRICES) as served, served.client() as client:
        warning = (await client.wait_for("configWarning"))["params"]
        assert "model_prices" in warning["summary"]
        assert RULE in warning["details"]
        params = {"keyPath": "model_prices.scripted.out", "value": -1, "mergeStrategy": "replace"}
        refused = await client.refusal("config/value/write", params)
        assert RULE in refused.message
        answer = await client.call("usage/read", {})
        assert answer["pricesSource"] == str(tmp_path / "config.toml")


@claim("usage:pages")
async def test_groups_come_in_pages(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        threads = [await client.start_thread() for _ in range(5)]
        for number, thread_id in enumerate(threads, start=1):
            served.model.scripts.append(using(says("ok"), number))
            await client.turn(thread_id, "go")
        params: dict[str, Any] = {"groupBy": "thread", "limit": 2}
        found: list[str] = []
        sizes = []
        while True:
            page = await client.call("usage/read", params)
            found += [row["group"] for row in page["data"]]
            sizes.append(len(page["data"]))
            assert without_times(page["total"]) == used(1, 2, 3, 4, 5)
            if page["nextCursor"] is None:
                break
            params["cursor"] = page["nextCursor"]
        assert (found, sizes) == (threads, [2, 2, 1])
        other = {"groupBy": "model", "cursor": params["cursor"]}
        assert (await client.refusal("usage/read", other)).data["code"] == "invalidCursor"


@claim("usage:refused")
@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"groupBy": "turn"}, "threadId"),
        ({"since": "2026-02-30"}, "since"),
        ({"until": "yesterday"}, "until"),
        ({"since": "2026-11-02", "until": "2026-11-01"}, "until"),
    ],
)
async def test_a_wrong_question_is_refused_with_field_and_rule(
    tmp_path: Path, params: dict[str, Any], field: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        error = await client.refusal("usage/read", params)
        assert (error.code, error.data["field"]) == (-32602, field)
        assert error.data["rule"] in error.message
        error = await client.refusal("usage/read", {"groupBy": "week"})
        assert error.code == -32602
        assert "groupBy" in json.dumps(error.data)
        missing = {"threadId": "01990000-0000-7000-8000-000000000000"}
        assert (await client.refusal("usage/read", missing)).data["code"] == "threadNotFound"


class StoodClock(SystemClock):
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.at_ms = 0

    def monotonic_ms(self) -> int:
        return self.at_ms


async def test_the_time_of_tools_is_recorded_without_the_time_of_people(tmp_path: Path) -> None:
    clock, hub = StoodClock(), Hub()
    log = LiveThread(begin(created()), None, lambda _: None)
    clients = ThreadClients(hub, log.id)
    budgets = ThreadBudgets(
        log,
        clients,
        clock,
        Configuration(ConfigSources(tmp_path, tmp_path)),
        HomeBudgets(FileBudgets(tmp_path), FileStore(tmp_path).lists),
    )
    status = SessionStatus(TurnSlot(), clients, clock)
    usage = UsageRecorder(log, clients, clock, status, budgets)
    with usage.tools():
        clock.at_ms += 100
        with status.waiting_on("waitingOnApproval"):
            clock.at_ms += 5_000
            with status.waiting_on("waitingOnUserInput"):
                clock.at_ms += 5_000
        clock.at_ms += 11
    async with usage.request("turn", "user", {}):
        clock.at_ms += 300
    with usage.tools(), status.waiting_on("waitingOnApproval"):
        clock.at_ms += 1_000
    assert usage.rest("turn", "user") == []
    with usage.tools():
        clock.at_ms += 7
    await log.append(*usage.rest("turn", "user"))
    assert usage.rest("turn", "user") == []
    total = log.state.ledger.total()
    assert total == Usage(requests=1, unreported_requests=1, model_ms=300, tool_ms=118)


def test_sums_of_a_thread_are_bounded_and_keep_the_total() -> None:
    ledger, day_ms = UsageLedger(), 86_400_000
    for day in range(2 * MAX_SUMS):
        record = UsageRecorded(
            at_ms=day * day_ms,
            turn_id=str(day),
            origin="user",
            model="m" if day % 3 else "n",
            model_provider="p",
            cwd="/",
            request_id="r",
            model_ms=1,
        )
        ledger.apply(record)
    assert len(ledger.sums) == MAX_SUMS
    total = Usage(requests=512, unreported_requests=512, model_ms=512)
    assert (ledger.total(), ledger.turns) == (total, 512)
    by_model = sum_of_rows([("t", ledger.render())], UsageQuery("model"))
    assert {model: sums["p", model].requests for model, sums in by_model.items()} == {
        "m": 341,
        "n": 171,
    }
    last = sum_of_rows([("t", ledger.render())], UsageQuery("day", since="1971-05-27"))
    assert [
        day["p", "m" if number % 3 else "n"].requests
        for number, day in enumerate(last.values(), start=511)
    ] == [1]
