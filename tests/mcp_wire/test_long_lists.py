"""Long lists of messages, parsed in pieces."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from app_server.mcp_wire.messages import (
    LARGE_BYTES,
    PIECE_BYTES,
    ErrorData,
    JSONRPCError,
    NoMessage,
    parse_in_pieces,
    parse_message,
    read_message,
)
from protocol.jsonrpc.errors import INTERNAL_ERROR
from tests.support.event_loop.turns import counted_turns

TRAPS = ["},{", "[{", "}]", '"},{"', "\\", '"tools":[{', "é"]
VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from(TRAPS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab{"), inner),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.sampled_from(["name", "anyOf", "},{"]), VALUES)


def response(tools: object, **more: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "result": {"tools": tools, **more}}
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def tool(number: int) -> dict[str, Any]:
    return {"name": f"tool_{number}", "inputSchema": {"anyOf": [{"a": "},{"}, {"b": []}]}}


@given(st.lists(OBJECTS | VALUES, max_size=30), VALUES, st.integers(1, 60))
@settings(deadline=None)
async def test_pieces_give_what_the_whole_gives(tools: Any, more: Any, piece_bytes: int) -> None:
    content = response(tools, nextCursor=more)
    parsed = await parse_in_pieces(content, piece_bytes)
    assert parsed in (None, from_json(content))


async def test_a_list_of_objects_is_cut_wherever_it_may_be() -> None:
    tools = [tool(number) for number in range(200)]
    content = response(tools, nextCursor="]")
    for spaced in (content, json.dumps(from_json(content), indent=1).encode()):
        assert await parse_in_pieces(spaced, 100) == from_json(content)


async def test_texts_of_tools_are_not_kept_by_the_parser() -> None:
    content = response([tool(1), tool(2)], nextCursor="the next page")
    for place in ("tools", "nextCursor"):
        values = []
        for _ in range(2):
            message: Any = await parse_in_pieces(content, 1)
            value = message["result"][place]
            values.append(value if isinstance(value, str) else value[0]["name"])
        assert values[0] == values[1]
        assert values[0] is not values[1]


async def test_others_run_between_two_pieces() -> None:
    content = response([tool(number) for number in range(20_000)])
    assert len(content) > 20 * PIECE_BYTES
    async with counted_turns() as turns:
        message = await read_message(content)
    assert turns.count >= len(content) // PIECE_BYTES
    assert message == parse_message(content)


@pytest.mark.parametrize(
    "content",
    [
        b'{"result":{"tools":[{"a":1},{"a":2}],"tools":[]}}',
        b'{"result":{"tools":[{"a":1},{"a":2}]},"result":{}}',
        b'{"error":{"tools":[{"a":1},{"a":2}]}}',
        b'[{"tools":[{"a":1},{"a":2}]}]',
        b'{"result":{"tools":[{"a":1},{"a":2]}}',
        b'{"result":{"tools":[{"a":1},{"a":2}]}',
        b'{"result":{"tools":[{"a":"\xff"},{"a":2}]}}',
        b'{"result":{"tools":{"a":1}}}',
    ],
)
async def test_what_is_no_list_of_a_result_is_parsed_as_a_whole(content: bytes) -> None:
    assert await parse_in_pieces(content, 1) is None


async def test_the_error_of_a_large_message_is_that_of_a_small_one() -> None:
    content = response([tool(number) for number in range(5_000)])[:-1]
    assert len(content) > LARGE_BYTES
    with pytest.raises(NoMessage) as large:
        await read_message(content)
    with pytest.raises(NoMessage) as whole:
        parse_message(content)
    assert str(large.value) == str(whole.value)


def test_an_answer_with_a_wrong_result_says_what_is_wrong_with_it() -> None:
    assert parse_message(b'{"jsonrpc":"2.0","id":1,"result":3}') == JSONRPCError(
        jsonrpc="2.0",
        id=1,
        error=ErrorData(
            code=INTERNAL_ERROR, message="the answer is none: Input should be a valid dictionary"
        ),
    )
