"""mcp: what goes into a call, and what the model reads of its result."""

from typing import Any

import pytest

from app_server.mcp.tools.call_contents import (
    MAX_MODEL_BLOCKS,
    MAX_RESULT_BYTES,
    CallOrigin,
    bounded_result,
    model_output,
    request_meta,
)
from tests.support.harness import (
    claim,
)


@claim("meta:reserved", "meta:members")
def test_metadata_of_a_client_cannot_take_our_place() -> None:
    origin = CallOrigin("t", "u", "call", "item", {"turn_id": "u"})
    reserved = {
        "callId": "evil",
        "itemId": "evil",
        "threadId": "evil",
        "sessionId": "evil",
        "windowId": "evil",
        "turnId": "evil",
        "x-codex-turn-metadata": "evil",
        "_codex_apps": "evil",
        "plugin_id": "evil",
        "codex_bridge_mcp_call_id": "evil",
        "progressToken": "evil",
        "openai/confirmation_policies": "evil",
        "codex/sandbox-state": "evil",
        "io.modelcontextprotocol/x": "evil",
    }
    assert request_meta(origin, {**reserved, "mine": {"nested": None}, "codexx": 1}) == {
        "mine": {"nested": None},
        "codexx": 1,
        "callId": "call",
        "codex/toolCallId": "call",
        "x-codex-turn-metadata": {"turn_id": "u"},
        "threadId": "t",
        "sessionId": "t",
        "windowId": "t:0",
        "itemId": "item",
    }
    assert "itemId" not in request_meta(CallOrigin("t", "u", "c", None, {}), {})


def test_what_the_model_reads_is_bounded_over_all_blocks() -> None:
    result = {"content": [{"type": "text", "text": "a" * 80}, {"type": "text", "text": "b" * 80}]}
    header, first, second = model_output(result, 1.5, 100)
    assert header["text"] == "Wall time: 1.5000 seconds\nOutput:"
    assert first["text"] == "a" * 80
    assert second["text"] == "b" * 10 + "…15 tokens truncated…" + "b" * 10
    structured = model_output({"structuredContent": {"a": "x" * 500}}, 0, 100)
    assert structured.startswith('Wall time: 0.0000 seconds\nOutput:\n{"a":"xxx')
    assert len(structured) < 200
    for value, text in (([1, "a"], '[1,"a"]'), ("a", '"a"'), (0, "0"), (False, "false")):
        output = model_output({"structuredContent": value}, 0, 100)
        assert output == f"Wall time: 0.0000 seconds\nOutput:\n{text}"
    assert len(model_output({"content": "strange"}, 0, 100)) == 1


IMAGE = {"type": "image", "data": "AA==", "mimeType": "image/png"}


def test_images_behind_the_last_text_are_seen() -> None:
    texts = [{"type": "text", "text": "a" * 200}, {"type": "text", "text": "b"}]
    _, *parts = model_output({"content": [*texts, IMAGE]}, 0, 100)
    assert [part["type"] for part in parts] == ["input_text", "input_image", "input_text"]
    assert parts[-1]["text"] == "…1 content blocks truncated…"


@pytest.mark.parametrize(
    ("block", "blocks", "shown", "left_out"),
    [
        ({"type": "text", "text": "a" * 60}, 1000, 2, 998),
        ({"type": "text", "text": ""}, MAX_MODEL_BLOCKS, MAX_MODEL_BLOCKS, None),
        (IMAGE, 1000, MAX_MODEL_BLOCKS, 744),
    ],
)
def test_what_the_model_reads_has_a_bounded_number_of_blocks(
    block: Any, blocks: int, shown: int, left_out: int | None
) -> None:
    _header, *parts = model_output({"content": [block] * blocks}, 0, 100)
    note = [] if left_out is None else [f"…{left_out} content blocks truncated…"]
    assert [part["text"] for part in parts[shown:]] == note


def test_a_result_that_fits_no_message_becomes_its_beginning_and_end() -> None:
    small: dict[str, Any] = {"content": [], "structuredContent": {}}
    assert bounded_result(small) is small
    (block,) = bounded_result({"content": [{"type": "text", "text": "é" * MAX_RESULT_BYTES}]})[
        "content"
    ]
    assert block["text"].startswith('Truncated tool output:\n{"content":')
    assert "chars truncated…" in block["text"]
    assert len(block["text"].encode()) < MAX_RESULT_BYTES + 100
