"""`mcpMetaByServer`: how much of it a turn takes."""

from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json

from app_server.sessions.input import check_mcp_meta
from app_server.turns.slot import MAX_META_BYTES, McpMetaTooLarge
from tests.support.harness import WireError, claim, serve
from tests.support.large import Case, made
from tests.support.model import Gate, says

RULE = "must be at most 262144 bytes for one turn"


def meta(size: int) -> dict[str, Any]:
    """Make entries of exactly this many bytes of JSON."""
    rest = size - len(to_json({"s": {"k": ""}}))
    return {"s": {"k": "x" * rest}}


@pytest.mark.parametrize(
    ("known", "more", "fits"),
    [
        ({}, {}, True),
        ({}, lambda: meta(MAX_META_BYTES), True),
        ({}, lambda: meta(MAX_META_BYTES + 1), False),
        # Every one of these characters takes six bytes.
        ({}, {"s": {"k": "\x01" * (MAX_META_BYTES // 6)}}, False),
        ({}, {"s": {"k": [["x" * 1000] * 10] * 30}}, False),
        ({}, lambda: {"s": {"k" * 200_000: 1, "l" * 100_000: [None, True, 1.5]}}, False),
        # What is replaced does not count any more.
        (lambda: meta(MAX_META_BYTES), meta(5_000), True),
        (lambda: meta(MAX_META_BYTES), {"t": {}}, False),
        (lambda: meta(MAX_META_BYTES), {}, True),
    ],
)
def test_entries_of_a_turn_are_bounded_together(
    known: Case[dict[str, Any]], more: Case[dict[str, Any]], fits: bool
) -> None:
    if fits:
        check_mcp_meta(made(known), made(more))
    else:
        with pytest.raises(McpMetaTooLarge):
            check_mcp_meta(made(known), made(more))


def refused(error: WireError) -> None:
    assert (error.code, error.message, error.data) == (
        -32602,
        f"Invalid params: `mcpMetaByServer` {RULE}",
        {"code": "invalidParams", "field": "mcpMetaByServer", "rule": RULE},
    )


@claim("meta:bounded")
async def test_a_request_with_too_much_is_refused_and_its_input_not_taken(tmp_path: Path) -> None:
    gate = Gate()
    async with serve(tmp_path) as served, served.client() as client:
        served.model.scripts.append([*says("on")[:2], gate, *says("on")[2:]])
        thread_id = await client.start_thread()
        turn = {"threadId": thread_id, "input": [{"type": "text", "text": "hi"}]}
        large = {**turn, "mcpMetaByServer": meta(MAX_META_BYTES + 1)}
        refused(await client.refusal("turn/start", large))
        whole = {**turn, "mcpMetaByServer": meta(MAX_META_BYTES)}
        turn_id = (await client.call("turn/start", whole))["turn"]["id"]
        await gate.wait_until_reached()
        steer = {**turn, "expectedTurnId": turn_id, "mcpMetaByServer": {"t": {}}}
        refused(await client.refusal("turn/steer", steer))
        refused(await client.refusal("turn/start", {**turn, "mcpMetaByServer": {"t": {}}}))
        await client.call("turn/steer", {**steer, "mcpMetaByServer": {"s": {}}})
        gate.opened.set()
        await client.wait_for("turn/completed")
        read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        items = read["thread"]["turns"][0]["items"]
        assert [item["type"] for item in items].count("userMessage") == 2
