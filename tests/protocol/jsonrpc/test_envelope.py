"""protocol.jsonrpc: text is read as messages, and messages are written as text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from protocol.threads.changes import ThreadUnsubscribeResponse
from protocol.threads.notifications import ServerRequestResolvedNotification
from tests.support.harness import claim
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
