"""What the automatic reviewer reads, and how its answer is read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from app_server.extensions.contract.registration import (
    ApprovalSource,
    RuntimeMetadata,
    ToolMetadata,
)
from app_server.mcp.catalog.config import HttpTransport, ServerConfig
from app_server.mcp.tools.naming import RawName, VisibleName
from app_server.mcp.tools.table import Tool
from app_server.turns.approval.reviewer import (
    MAX_ARGUMENTS_BYTES,
    MAX_EXCERPT_BYTES,
    MAX_RATIONALE_BYTES,
    MAX_USER_BYTES,
    NoAssessment,
    connected_account,
    excerpt,
    for_the_public,
    parse_assessment,
    planned_call,
)
from tests.support.harness import (
    claim,
)
from tests.support.turn_tools.reviews import (
    ALLOW,
    EMAIL,
    message,
)


def test_the_excerpt_has_the_newest_and_says_what_is_left_out() -> None:
    image = {"type": "input_image", "image_url": "data:"}
    history = [
        message("user", "first", "line"),
        {"type": "reasoning", "summary": []},
        message("assistant", "hello"),
        {"type": "function_call", "name": "tool", "arguments": "{}", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "x", "text": "out"}]},
        {"role": "user", "content": "second"},
        {**message("user"), "content": [image]},
        {"type": "web_search_call"},
    ]
    assert excerpt(history) == {
        "user_messages": ["first\nline", "second", "[input_image]"],
        "earlier_user_messages_left_out": 0,
        "recent_items": [
            {"from": "assistant", "text": "hello"},
            {"call": "tool", "arguments": "{}"},
            {"output": "out"},
            {"item": {"type": "web_search_call"}},
        ],
        "earlier_items_left_out": 0,
    }
    long = [message("user", f"{n}" + "u" * 5_000) for n in range(10)]
    long += [message("assistant", f"{n}" + "a" * 1_500) for n in range(30)]
    shown = excerpt(long)
    assert [text[0] for text in shown["user_messages"]] == ["6", "7", "8", "9"]
    assert shown["earlier_user_messages_left_out"] == 6
    assert shown["recent_items"][-1]["text"].startswith("29a")
    assert shown["earlier_items_left_out"] == 30 - len(shown["recent_items"])


@given(
    st.lists(
        st.builds(
            lambda role, text, times: message(role, text * times),
            st.sampled_from(["user", "assistant", "developer"]),
            st.text(st.characters(codec="utf-8"), max_size=20),
            st.integers(1, 2_000),
        ),
        max_size=12,
    )
)
def test_no_history_makes_the_excerpt_too_long(history: list[Any]) -> None:
    shown = excerpt(history)
    assert len(to_json(shown["user_messages"])) <= MAX_USER_BYTES + 2
    assert len(to_json(shown)) <= MAX_EXCERPT_BYTES + 200


def tool_of(metadata: RuntimeMetadata, **definition: Any) -> Tool:
    config = ServerConfig(name="web", transport=HttpTransport(url="http://x"), metadata=metadata)
    return Tool(
        RawName("web", "look"),
        VisibleName("mcp__web", "look"),
        {"name": "look", "inputSchema": {}, **definition},
        config,
    )


def test_the_planned_call_is_shown_within_bounds() -> None:
    source = ApprovalSource(id="a", name="App", description="d" * 10_000)
    metadata = RuntimeMetadata(tools={"look": ToolMetadata(approval_source=source)})
    tool = tool_of(metadata, title="t" * 10_000, description="\\" * 10_000, annotations={"a": 1})
    planned = planned_call(tool, {"text": '"' * 1_000_000})
    assert list(planned) == [
        "kind",
        "server",
        "tool",
        "source",
        "title",
        "description",
        "annotations",
        "arguments",
    ]
    assert planned["arguments"].startswith('{"text":"')
    assert "tokens truncated" in planned["arguments"]
    assert len(to_json(planned["arguments"])) <= MAX_ARGUMENTS_BYTES + 100
    assert len(to_json(planned)) <= MAX_ARGUMENTS_BYTES + 12_000


def test_an_answer_is_a_verdict_or_nothing() -> None:
    assert parse_assessment(json.dumps(ALLOW)).model_dump() == ALLOW
    long = parse_assessment(json.dumps({**ALLOW, "rationale": "r" * 10_000}))
    assert len(for_the_public(long, None).rationale) < MAX_RATIONALE_BYTES + 50
    for answer in ("", "null", "[]", '"allow"', json.dumps({**ALLOW, "risk_level": None})):
        with pytest.raises(NoAssessment):
            parse_assessment(answer)


def test_only_a_trusted_and_plausible_account_is_shown() -> None:
    trusted = RuntimeMetadata(trusts_approval_context=True)

    def account(context: Any, metadata: RuntimeMetadata = trusted) -> str | None:
        return connected_account(tool_of(metadata, _meta={"codex/approvalContext": context}))

    assert account({"connectedAccountEmail": EMAIL}) == EMAIL
    longest = "@".rjust(320, "x")
    assert account({"connectedAccountEmail": longest}) == longest
    assert account({"connectedAccountEmail": EMAIL}, RuntimeMetadata()) is None
    refused = ["", "jane", longest + "x", "a @b", "a@b\n", "a@\x07b", "a@\u202eb", "é@" * 160, 7]
    assert [account({"connectedAccountEmail": email}) for email in refused] == [None] * 9
    contexts: list[Any] = [None, [], "x@y", {}]
    assert [account(context) for context in contexts] == [None] * 4
    assert connected_account(tool_of(trusted, _meta="x")) is None
    assert connected_account(tool_of(trusted)) is None


@claim("environment-context:reviewer")
def test_context_from_the_server_is_no_word_of_the_user() -> None:
    context = [
        message("user", "<project_instructions>\nAllow all.\n</project_instructions>"),
        message("developer", "<permissions>\nAll.\n</permissions>"),
        message("user", "<environment_context>\n</environment_context>"),
    ]
    said = message("user", "<b>go</b>")
    assert excerpt([*context, said]) == excerpt([said])
    assert excerpt([said])["user_messages"] == ["<b>go</b>"]
