"""protocol: envelopes, types, the experimental gate, rollout lines; and the table of claims."""

import importlib
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from app_server.rpc.dispatch import first_problem
from protocol.contract.gate import stable_exclude, used_experimental
from protocol.contract.methods import METHODS, NOTIFICATIONS
from protocol.integrations.mcp import McpServerToolCallResponse
from protocol.jsonrpc.envelope import (
    Answer,
    Batch,
    Invalid,
    Notification,
    Request,
    parse_message,
    render_batch,
    render_error,
    render_notification,
    render_request,
    render_result,
)
from protocol.jsonrpc.errors import RpcError
from protocol.log.rollout import HistoryAppended, parse_record, render_record
from protocol.model import WireModel, experimental
from protocol.threads.changes import ThreadUnsubscribeResponse
from protocol.threads.lists import ThreadListParams, ThreadListResponse, ThreadReadResponse
from protocol.threads.notifications import ServerRequestResolvedNotification
from protocol.threads.thread import Thread
from protocol.turns.items import AgentMessageThreadItem, ItemStartedNotification
from protocol.turns.requests import TurnStartParams
from protocol.turns.turn import Turn
from tests.support.harness import CLAIMS, claim
from tests.support.paths import ROOT
from tests.support.wire.json_values import json_values


@claim("framing:with-or-without-jsonrpc")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"id":1,"method":"m"}', Request(1, "m", None)),
        (
            '{"jsonrpc":"2.0","id":"a","method":"m","params":{"x":1}}',
            Request("a", "m", {"x": 1}, True),
        ),
        ('{"id":7,"method":"m","params":[1]}', Request(7, "m", [1])),
        ('{"method":"m","params":{}}', Notification("m", {})),
        ('{"id":1,"result":{}}', Answer(1, {}, None)),
        ('{"id":"e999","method":"1e300","params":1e300}', Request("e999", "1e300", 1e300)),
        ('{"id":"a","error":{"code":1}}', Answer("a", None, {"code": 1})),
        ('{"id":-9223372036854775808,"method":"m"}', Request(-(2**63), "m", None)),
    ],
)
def test_a_message_is_read_as_what_it_is(text: str, expected: object) -> None:
    assert parse_message(text) == expected


@claim("errors:invalid-request", "errors:parse")
@pytest.mark.parametrize(
    ("text", "request_id", "code", "message"),
    [
        ("{", None, -32700, "Parse error: EOF while parsing an object at line 1 column 1"),
        ("", None, -32700, "Parse error: EOF while parsing a value at line 1 column 0"),
        ("[" * 5000, None, -32700, "Parse error: recursion limit exceeded at line 1 column 202"),
        ('{"a":NaN}', None, -32700, "Parse error: expected value at line 1 column 6"),
        ('{"a":[{"b":-1e999}]}', None, -32700, "Parse error: number out of range"),
        (f'{{"a":1{"0" * 400}.0}}', None, -32700, "Parse error: number out of range"),
        ("5", None, -32600, "Invalid request: a message must be a JSON object"),
        ("null", None, -32600, "Invalid request: a message must be a JSON object"),
        ("[]", None, -32600, "Invalid request: a batch must hold at least one message"),
        ("{}", None, -32600, "Invalid request: `method` is missing"),
        ('{"id":3}', 3, -32600, "Invalid request: `method` is missing"),
        ('{"id":3,"method":5}', 3, -32600, "Invalid request: `method` must be a string"),
        ('{"result":{}}', None, -32600, "Invalid request: `method` is missing"),
        *(
            (
                f'{{"id":{bad},"method":"m"}}',
                None,
                -32600,
                "Invalid request: `id` must be a string or an integer of 64 bits",
            )
            for bad in ("null", "1.5", "true", "{}", "9223372036854775808")
        ),
    ],
)
def test_what_is_no_message_comes_with_its_answer(
    text: str, request_id: int | None, code: int, message: str
) -> None:
    parsed = parse_message(text)
    assert isinstance(parsed, Invalid)
    assert (parsed.id, parsed.error.code, parsed.error.message) == (request_id, code, message)


def test_a_batch_is_split_into_its_messages() -> None:
    parsed = parse_message('[{"id":1,"method":"m"},5]')
    assert isinstance(parsed, Batch)
    assert parsed.messages[0] == Request(1, "m", None)
    assert isinstance(parsed.messages[1], Invalid)


@given(st.text() | json_values.map(json.dumps) | st.lists(json_values).map(json.dumps))
def test_any_text_gives_a_message_or_a_listed_error(text: str) -> None:
    parsed = parse_message(text)
    messages = parsed.messages if isinstance(parsed, Batch) else [parsed]
    for message in messages:
        assert isinstance(message, Request | Notification | Answer | Invalid)
        if isinstance(message, Invalid):
            assert message.error.code in (-32700, -32600)


def test_messages_are_rendered_without_jsonrpc_unless_it_is_asked_for() -> None:
    error = RpcError(-32600, "no", "word", fact=1).to_wire()
    resolved = ServerRequestResolvedNotification(thread_id="t", request_id=0)
    unsubscribed = ThreadUnsubscribeResponse(status="notLoaded")
    assert render_result(1, unsubscribed) == '{"id":1,"result":{"status":"notLoaded"}}'
    assert render_result("a", {"x": 1}) == '{"id":"a","result":{"x":1}}'
    assert render_result(1, {}, jsonrpc=True) == '{"jsonrpc":"2.0","id":1,"result":{}}'
    assert render_error(None, error) == (
        '{"id":null,"error":{"code":-32600,"message":"no","data":{"code":"word","fact":1}}}'
    )
    assert render_notification("m", resolved, 5) == (
        '{"method":"m","params":{"threadId":"t","requestId":0},"emittedAtMs":5}'
    )
    assert render_request(3, "m", resolved, jsonrpc=True) == (
        '{"jsonrpc":"2.0","method":"m","id":3,"params":{"threadId":"t","requestId":0}}'
    )
    assert render_batch(["1", "2"]) == "[1,2]"


def test_an_error_without_a_word_has_no_data() -> None:
    assert (
        render_error(1, RpcError(-1, "x").to_wire()) == '{"id":1,"error":{"code":-1,"message":"x"}}'
    )


def test_numbers_that_json_cannot_represent_become_null() -> None:
    assert render_result(1, {"x": float("inf")}) == '{"id":1,"result":{"x":null}}'


def test_nulls_are_kept_and_marked_members_vanish() -> None:
    item = AgentMessageThreadItem(id="a", text="")
    started = ItemStartedNotification(item=item, thread_id="t", turn_id="u", started_at_ms=1)
    rendered = json.loads(started.model_dump_json())["item"]
    assert rendered["phase"] is None
    response = McpServerToolCallResponse(content=[])
    assert response.model_dump(mode="json") == {"content": []}


def test_nothing_is_coerced() -> None:
    for params in ({"limit": "5"}, {"limit": True}, {"limit": 1.5}, {"archived": 1}, {"cwd": 5}):
        with pytest.raises(ValidationError):
            ThreadListParams.model_validate(params)


@claim("errors:invalid-params")
def test_the_first_problem_names_field_and_rule() -> None:
    granular = {"granular": {"rules": 1}}
    policies = "'untrusted', 'on-request' or 'never'"
    for params, field, rule in (
        ({}, "threadId", "missing field `threadId`"),
        ({"threadId": 5, "input": []}, "threadId", "Input should be a valid string"),
        ({"threadId": "t", "input": [{"type": "image"}]}, "input.0", "needs one of url, fileId"),
        (
            {"threadId": "t", "input": [{"type": "text"}]},
            "input.0.text",
            "missing field `input.0.text`",
        ),
        (
            {"threadId": "t", "input": [], "approvalPolicy": "x"},
            "approvalPolicy",
            f"Input should be {policies}",
        ),
        (
            {"threadId": "t", "input": [], "approvalPolicy": granular},
            "approvalPolicy",
            f"Input should be {policies}",
        ),
    ):
        with pytest.raises(ValidationError) as caught:
            TurnStartParams.model_validate(params)
        problem = first_problem(caught.value, params)
        assert (problem.code, problem.message) == (-32602, f"Invalid params: `{field}`: {rule}")
        assert problem.data == {"code": "invalidParams", "field": field, "rule": rule}


@claim("experimental:descriptor")
@pytest.mark.parametrize(
    ("method", "params", "descriptor"),
    [
        ("thread/start", {"dynamicTools": []}, "thread/start.dynamicTools"),
        ("thread/start", {"dynamicTools": None}, None),
        ("thread/start", {"experimentalRawEvents": False}, None),
        ("thread/start", {"experimentalRawEvents": True}, "thread/start.experimentalRawEvents"),
        (
            "thread/start",
            {
                "approvalPolicy": {
                    "granular": {"mcp_elicitations": True, "rules": True, "sandbox_approval": True}
                }
            },
            "askForApproval.granular",
        ),
        ("thread/start", {"approvalPolicy": "never", "cwd": "/x"}, None),
        (
            "turn/start",
            {"threadId": "t", "input": [{"type": "text", "text": ""}], "mcpMetaByServer": {}},
            "turn/start.mcpMetaByServer",
        ),
    ],
)
def test_the_gate_names_what_was_used(
    method: str, params: dict[str, Any], descriptor: str | None
) -> None:
    parsed = METHODS[method].params.model_validate(params)
    assert used_experimental(method, parsed) == descriptor


class Inner(WireModel):
    """Has a member that needs the opt-in."""

    plain: int = 1
    secret: int | None = experimental()


class Outer(WireModel):
    """Has it further in."""

    one: Inner | None = None
    many: list[Inner] = []


def test_the_gate_looks_into_objects_and_lists() -> None:
    assert used_experimental("m", Outer(one=Inner(), many=[Inner()])) is None
    assert used_experimental("m", Outer(one=Inner(secret=1))) == "m.secret"
    assert used_experimental("m", Outer(many=[Inner(), Inner(secret=1)])) == "m.secret"


def test_what_is_hidden_is_hidden_in_objects_and_lists() -> None:
    full = Outer(one=Inner(secret=1), many=[Inner(secret=2)])
    assert full.model_dump(by_alias=True, exclude=stable_exclude(Outer)) == {
        "one": {"plain": 1},
        "many": [{"plain": 1}],
    }


def test_the_gate_knows_what_to_leave_out() -> None:
    of_thread = {
        "environments": True,
        "extra": True,
        "attached_to_thread_id": True,
        "can_accept_direct_input": True,
        "daybreak_enabled": True,
    }
    assert stable_exclude(Thread) == of_thread
    assert stable_exclude(ThreadListResponse) == {
        "data": {"__all__": of_thread},
        "read_states": True,
    }
    assert stable_exclude(ThreadReadResponse) == {"thread": of_thread, "read_state": True}
    assert stable_exclude(Turn) is None


@given(st.lists(st.dictionaries(st.text(), json_values), max_size=3), st.integers(0, 2**50))
@settings(max_examples=40)  # Each is large, and takes 20 ms to make.
def test_a_rollout_line_survives_writing_and_reading(
    items: list[dict[str, Any]], at_ms: int
) -> None:
    record = HistoryAppended(at_ms=at_ms, items=items)
    line = render_record(record)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert parse_record(line) == record


def test_a_line_of_another_kind_is_no_record() -> None:
    assert parse_record(b'{"v":9,"atMs":1,"type":"somethingNew"}') is None
    assert parse_record(b"torn") is None


def test_every_type_says_what_it_is() -> None:
    """Docstrings of wire types become descriptions in the schema."""
    models: list[type[WireModel]] = [WireModel]
    for model in models:
        models.extend(model.__subclasses__())
        assert model.__doc__, model


def test_notifications_and_methods_do_not_share_names() -> None:
    assert METHODS.keys().isdisjoint(NOTIFICATIONS)


def test_every_claim_has_a_test_and_every_marked_test_a_claim() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    table = (ROOT / "docs" / "wire.md").read_text()
    documented = set(re.findall(r"^\| `([a-z-]+:[a-z0-9-]+)` \|", table, re.MULTILINE))
    assert documented == CLAIMS.keys()
