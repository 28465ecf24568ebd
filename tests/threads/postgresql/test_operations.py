"""Requests that are sent again to another server of a database."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import psycopg
import pytest

from app_server.config.store_url import StoreUrl
from app_server.threads.failures import StoreUnavailable
from app_server.threads.nodes import ALONE
from app_server.threads.operations import KEEP_MS, Operation
from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.nodes import PostgresNodes
from app_server.threads.postgresql.operations import PostgresOperationLedger
from tests.support.again.cases import named
from tests.support.again.dying import dying
from tests.support.again.questions import ASKED, EVERYWHERE, answer_over_reconnects
from tests.support.again.scene import logged, text
from tests.support.harness import WireClient, claim, serve, write_config
from tests.support.model import ScriptedModel
from tests.support.postgresql import Cluster, name_of
from tests.support.processes import running

pytestmark = pytest.mark.postgresql

MAX_STEPS = 30


@contextmanager
def opened(url: str, max_kept: int = 3) -> Iterator[PostgresOperationLedger]:
    database = Database(url)
    database.open()
    try:
        yield PostgresOperationLedger(database, PostgresNodes(database, ALONE), max_kept=max_kept)
    finally:
        database.close()


@claim("again:operation-kept")
def test_the_ledger_forgets_what_is_old_and_what_is_too_much(database_url: str) -> None:
    with opened(database_url) as ledger:
        begun = [Operation(str(n), "m", "d", 1000 + n, "one") for n in range(4)]
        assert [ledger.begin(one) for one in begun] == [None] * 4
        assert ledger.begin(begun[3]) == begun[3]
        ledger.finish("3", '{"text":"\\u0000"}')
        done = Operation("3", "m", "d", 1003, "one", True, '{"text":"\\u0000"}')
        assert ledger.begin(begun[3]) == done
        assert ledger.begin(begun[0]) is None
        ledger.forget("0")
        assert ledger.begin(begun[0]) is None
        assert ledger.begin(Operation("late", "m", "d", 1003 + KEEP_MS, "one")) is None
        assert ledger.begin(begun[3]) is None


def test_an_operation_of_a_server_that_died_is_taken_over_once(database_url: str) -> None:
    with opened(database_url) as ledger, opened(database_url) as other:
        operation = Operation("op", "m", "d", 1, str(uuid4()))
        assert ledger.begin(operation) is None
        assert not other.is_living(operation.holder)
        assert [each.take_over(operation) for each in (ledger, other)] == [True, False]


def test_operation_that_others_forget_again_and_again_is_not_taken_for_begun(
    database_url: str, cluster: Cluster
) -> None:
    # What is inserted is gone at once.
    cluster.administer(
        "CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER forget BEFORE INSERT ON operations FOR EACH ROW EXECUTE FUNCTION forget()",
        name_of(database_url),
    )
    with opened(database_url) as ledger:
        with pytest.raises(StoreUnavailable) as refused:
            ledger.begin(Operation("op", "m", "d", 1, "one"))
        assert (refused.value.reason, refused.value.retriable) == ("databaseBusy", True)


@claim("again:operation")
async def test_another_server_gives_the_answer_again(tmp_path: Path, database_url: str) -> None:
    store = StoreUrl.parse(database_url)
    async with (
        serve(tmp_path / "one", store=store) as one,
        serve(tmp_path / "two", store=store) as two,
        one.client() as here,
        two.client() as there,
    ):
        started = await here.call("thread/start", named({}))
        assert await there.call("thread/start", named({})) == started
        thread_id = started["thread"]["id"]
        turn = named({"threadId": thread_id, "input": []}, "turn")
        begun = await here.call("turn/start", turn)
        assert await there.call("turn/start", turn) == begun
        error = await there.refusal("turn/start", {**turn, "model": "other"})
        assert error.data == {"code": "operationIdTaken", "operationId": "turn"}
        await here.wait_for("turn/completed")


@claim("again:operation-kill")
@pytest.mark.parametrize("step", range(4))
async def test_another_server_goes_on_with_what_a_dead_one_began(
    tmp_path: Path, database_url: str, step: int
) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path / "one", model.url)
        options = ["--store", database_url]
        async with (
            running(tmp_path / "one", options=options, **dying(step)) as server,
            server.client() as client,
        ):
            request = await client.request("thread/start", named({}))
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await client.answer(request)
            await server.ended()
        store = StoreUrl.parse(database_url)
        async with serve(tmp_path / "two", model=model, store=store) as two, two.client() as there:
            started = await there.call("thread/start", named({}))
            assert await there.call("thread/start", named({})) == started
            listed = await there.call("thread/loaded/list", {})
            assert listed["data"] == [started["thread"]["id"]]


APPENDING: dict[str, Any] = {
    "thread/name/set": {"name": "A name"},
    "thread/goal/set": {"objective": "Be done.", "status": "paused"},
    "turn/start": {"input": text("go")},
}
"""A method that appends one record, one that appends two, and one that appends several times."""


@claim("again:operation-kill")
@pytest.mark.parametrize("method", APPENDING)
async def test_another_server_goes_on_at_each_step_of_an_append(
    tmp_path: Path, database_url: str, method: str
) -> None:
    options = ["--store", database_url]
    store = StoreUrl.parse(database_url)
    left = []
    async with ScriptedModel().serve() as model:
        write_config(tmp_path / "one", model.url, "lease_seconds = 3")
        async with serve(tmp_path / "two", model=model, store=store) as two, two.client() as there:
            for step in range(MAX_STEPS):
                name = f"{method}-{step}"
                async with (
                    running(tmp_path / "one", options=options, **dying(step)) as server,
                    server.client() as client,
                ):
                    thread_id = await client.start_thread()
                    params = named({"threadId": thread_id, **APPENDING[method]}, name)
                    first = await outcome(client, method, params)
                    if first is None:
                        await server.ended()
                loads = {"threadId": thread_id, "excludeTurns": True}
                while "code" in await outcome(there, "thread/resume", loads):
                    # Until the server that died is known to be dead.
                    pass
                again = await outcome(there, method, params)
                assert await outcome(there, method, params) == again
                await two.services.sessions.get(thread_id).slot.idle.wait()
                left.append(await asyncio.to_thread(_logged, database_url, thread_id))
                if first is not None:
                    assert again == first
                    break
                assert "code" not in again, (step, again)
            else:
                raise AssertionError(f"{method} takes more than {MAX_STEPS} steps")
    # Before and behind what notes it, its append, and what keeps its answer.
    assert step >= 6
    assert left == [left[-1]] * len(left)


async def outcome(client: WireClient, method: str, params: Any) -> Any:
    """Return the result of a request, or its error; None: its server died."""
    try:
        message = await client.answer(await client.request(method, params))
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return None
    return message.get("result", message.get("error"))


def _logged(url: str, thread_id: str) -> Counter[str]:
    """Count what requests have written to the log of a thread. Blocks."""
    with psycopg.connect(url) as connection:
        statement = "SELECT body FROM records WHERE thread_id = %s ORDER BY position"
        rows = connection.execute(statement, (thread_id,)).fetchall()
    found = logged(b"".join(row[0] for row in rows))
    # A turn adds to it by itself.
    del found["historyAppended"]
    return found


@claim("questions:again")
@pytest.mark.parametrize("kind", ASKED)
async def test_an_answer_to_a_question_counts_once_over_reconnects(
    tmp_path: Path, database_url: str, kind: str
) -> None:
    store = StoreUrl.parse(database_url)
    async with serve(tmp_path, config=EVERYWHERE, store=store) as served:
        await answer_over_reconnects(served, ASKED[kind]())
