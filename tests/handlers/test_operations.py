"""Requests that their client named: one effect, and one answer, for every method that changes."""

import errno
import os
import re
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app_server.threads.files.operations import FileOperationLedger
from app_server.threads.operations import KEEP_MS, Operation
from protocol.contract.methods import METHODS
from protocol.contract.specs import READS
from tests.support.again.cases import named, requests
from tests.support.again.questions import ASKED, EVERYWHERE, answer_over_reconnects
from tests.support.again.scene import make_marketplace, set_up, settled
from tests.support.harness import WireClient, claim, serve
from tests.support.paths import DOCS

PAGE = DOCS / "sending_again.md"
CHANGING = [name for name, spec in METHODS.items() if spec.takes_operation]


async def outcome(client: WireClient, method: str, params: Any) -> Any:
    """Return the result of a request, or its error."""
    message = await client.answer(await client.request(method, params))
    return message.get("result", message.get("error"))


def test_the_page_has_every_method_that_changes_something_with_its_effect() -> None:
    table = dict(re.findall(r"^\| `([\w/]+)` \| `(\w+)` \|$", PAGE.read_text(), re.MULTILINE))
    assert table == {
        name: spec.effect.value for name, spec in METHODS.items() if spec.effect is not READS
    }


async def test_refusal_is_answered_where_its_id_cannot_be_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(ledger: FileOperationLedger, operation_id: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with serve(tmp_path) as served, served.client() as client:
        monkeypatch.setattr(FileOperationLedger, "forget", fail)
        params = {"threadId": str(uuid.uuid4()), "name": "a"}
        plain = await client.refusal("thread/name/set", params)
        refused = await client.refusal("thread/name/set", named(params))
        assert (refused.code, refused.data) == (plain.code, plain.data)


@claim("again:operation", "again:operation-taken")
@pytest.mark.parametrize("method", CHANGING)
async def test_a_request_that_is_sent_twice_has_its_effect_once(
    tmp_path: Path, method: str
) -> None:
    async with (
        set_up(tmp_path / "twice") as (served, client, scene),
        served.client() as other,
        set_up(tmp_path / "once") as (once, plain, reference),
    ):
        params = named(requests(scene)[method])
        # At once on two connections, and later.
        at_once = [(each, await each.request(method, params)) for each in (client, other)]
        answers = [await each.answer(request) for each, request in at_once]
        first, joined = [each.get("result", each.get("error")) for each in answers]
        assert joined == first
        assert await outcome(other, method, params) == first
        if "code" not in first:
            other_method = "thread/start" if method != "thread/start" else "threadSection/create"
            for taken in (
                (method, {**params, "another": 1}),
                (other_method, named(requests(scene)[other_method])),
            ):
                error = await outcome(client, *taken)
                if error["data"].get("field") != "another":
                    assert error["data"] == {"code": "operationIdTaken", "operationId": "op"}
        expected = await outcome(plain, method, requests(reference)[method])
        assert shape(first) == shape(expected)
        assert await settled(served.home, client) == await settled(once.home, plain)


def shape(value: Any) -> Any:
    """Return the names of members, and no values."""
    return sorted(value) if isinstance(value, dict) else value


@claim("again:operation-at-once")
async def test_named_requests_at_once_are_one(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as one, served.client() as two:
        sent = [(each, await each.request("thread/start", named({}))) for each in (one, two) * 3]
        answers = [(await each.answer(request))["result"] for each, request in sent]
        assert answers == [answers[0]] * 6
        assert len(list((tmp_path / "threads").rglob("*.jsonl"))) == 1


@claim("again:operation-kept")
async def test_an_answer_is_given_again_after_a_restart(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        said = named({"threadId": thread_id, "name": "A"}, "name")
        started = named({"threadId": thread_id, "input": []}, "turn")
        first = [
            await client.call("thread/name/set", said),
            await client.call("turn/start", started),
        ]
        await client.wait_for("turn/completed")
        ran = await client.call("command/exec", named({"command": ["true"]}, "exec"))
        assert await client.call("command/exec", named({"command": ["true"]}, "exec")) == ran
    async with serve(tmp_path) as served, served.client() as client:
        again = [
            await client.call("thread/name/set", said),
            await client.call("turn/start", started),
        ]
        assert again == first
        error = await client.refusal("command/exec", named({"command": ["true"]}, "exec"))
        assert (error.code, error.data) == (
            -32603,
            {
                "code": "operationOutcomeUnknown",
                "operationId": "exec",
                "done": True,
                "retriable": False,
            },
        )
        assert served.model.requests == []


async def test_a_marketplace_that_the_first_try_has_added_is_no_one_from_before(
    tmp_path: Path,
) -> None:
    make_marketplace(tmp_path / "market", "market")
    params = named({"source": str(tmp_path / "market")})
    async with serve(tmp_path) as served, served.client() as client:
        first = await client.call("marketplace/add", params)
    # As if the server had died before it noted its answer.
    with closing(sqlite3.connect(tmp_path / "operations" / "ledger.sqlite3")) as ledger:
        ledger.execute("UPDATE operations SET is_done = 0, answer = NULL")
        ledger.commit()
    async with serve(tmp_path) as served, served.client() as client:
        assert await client.call("marketplace/add", params) == first
        other = named({"source": str(tmp_path / "market")}, "other")
        known = await client.call("marketplace/add", other)
        assert known == {**first, "alreadyAdded": True}


@claim("again:operation-bad")
@pytest.mark.parametrize("name", ["", "x" * 129, "x" * 10_000, 7, ["x"], {}, True, "a\nb", "\0"])
async def test_a_bad_name_is_refused_by_field_and_rule(tmp_path: Path, name: Any) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        for params in ({"threadId": "x", "name": "A"}, None):
            method = "account/logout" if params is None else "thread/name/set"
            error = await client.refusal(method, named(params, name))
            rule = "must be a text of 1 to 128 printable characters"
            assert (error.code, error.message, error.data) == (
                -32602,
                f"Invalid params: `_meta.operationId` {rule}",
                {"code": "invalidParams", "field": "_meta.operationId", "rule": rule},
            )
        longest = await client.call("thread/start", named({}, "x" * 128))
        assert longest["thread"]["id"]
        assert not (tmp_path / "operations" / "missing").exists()


async def test_a_name_needs_the_opt_in(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client(experimental=False) as client:
        error = await client.refusal("thread/start", named({}))
        assert error.message == "thread/start._meta.operationId requires experimentalApi capability"
        await client.call("thread/start", {"_meta": {"other": 1}})


async def test_a_refused_request_leaves_its_name_free(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        unknown = "01900000-0000-7000-8000-000000000000"
        error = await client.refusal("turn/start", named({"threadId": unknown, "input": []}))
        assert error.data["code"] == "threadNotFound"
        started = await client.call("thread/start", named({}))
        assert await client.call("thread/start", named({})) == started


@claim("again:operation-kept")
def test_the_ledger_forgets_what_is_old_and_what_is_too_much(tmp_path: Path) -> None:
    ledger = FileOperationLedger(tmp_path, max_kept=3)
    begun = [Operation(str(n), "m", "d", 1000 + n, ledger.own_id) for n in range(4)]
    assert [ledger.begin(one) for one in begun] == [None] * 4
    assert ledger.begin(begun[3]) == begun[3]
    ledger.finish("3", "{}")
    assert ledger.begin(begun[3]) == Operation("3", "m", "d", 1003, ledger.own_id, True, "{}")
    # The oldest was forgotten, and counts as new.
    assert ledger.begin(begun[0]) is None
    late = Operation("late", "m", "d", 1003 + KEEP_MS, ledger.own_id)
    assert ledger.begin(late) is None
    assert ledger.begin(begun[3]) is None
    ledger.close()


def test_an_operation_of_a_server_that_died_is_taken_over_once(tmp_path: Path) -> None:
    dead, one, two = (FileOperationLedger(tmp_path) for _ in range(3))
    operation = Operation("op", "m", "d", 1, dead.own_id)
    assert dead.begin(operation) is None
    assert one.is_living(dead.own_id)
    dead.close()
    assert not one.is_living(dead.own_id)
    assert [each.take_over(operation) for each in (one, two)] == [True, False]
    for each in (one, two):
        each.close()


def test_a_damaged_ledger_is_set_aside(tmp_path: Path) -> None:
    ledger = FileOperationLedger(tmp_path)
    ledger.close()
    (tmp_path / "ledger.sqlite3").write_bytes(b"no database" * 1000)
    again = FileOperationLedger(tmp_path)
    assert again.begin(Operation("op", "m", "d", 1, again.own_id)) is None
    again.close()
    assert (tmp_path / "ledger.sqlite3.damaged").exists()


def test_the_id_of_what_an_operation_makes_is_a_uuid_of_its_time() -> None:
    made = Operation("op", "m", "d", 1_795_884_960_044, "h").made_id
    assert (uuid.UUID(made).version, uuid.UUID(made).int >> 80) == (7, 1_795_884_960_044)
    assert made == Operation("op", "x", "y", 1_795_884_960_044, "z").made_id


@claim("questions:again")
@pytest.mark.parametrize("kind", ASKED)
async def test_an_answer_to_a_question_counts_once_over_reconnects(
    tmp_path: Path, kind: str
) -> None:
    ids = []
    for _ in range(2):
        # A server that was started anew has other ids.
        async with serve(tmp_path, config=EVERYWHERE) as served:
            ids.append(await answer_over_reconnects(served, ASKED[kind]()))
    assert ids[0].isdisjoint(ids[1])
