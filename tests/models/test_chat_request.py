"""A body of the Responses API as one of Chat Completions."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.models.chat_completions import MAX_LENGTH, CalledTool, ChatCompletions, ToolNames

READ = {
    "type": "function",
    "name": "read",
    "description": "Read.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}
FILES = {"type": "namespace", "name": "mcp__files", "description": "Files.", "tools": [READ]}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Patch files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: LINE"},
}
SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "Find tools.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
}


def message_item(role: str, *parts: Any) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": part} if isinstance(part, str) else part for part in parts]
    return {"type": "message", "role": role, "content": content}


def called(call_id: str, arguments: str = "{}", **members: Any) -> dict[str, Any]:
    item = {"type": "function_call", "name": "read", "call_id": call_id, "arguments": arguments}
    return {**item, **members}


def output(call_id: str, value: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": value}


def translated(*history: dict[str, Any], **members: Any) -> dict[str, Any]:
    body = {"model": "m", "instructions": "Be brief.", "input": list(history), **members}
    return ChatCompletions().begin(body)[0]


def messages(*history: dict[str, Any], **members: Any) -> list[dict[str, Any]]:
    conversation: list[dict[str, Any]] = translated(*history, **members)["messages"]
    assert conversation[0] == {"role": "system", "content": "Be brief."}
    return conversation[1:]


def tool_call(call_id: str, name: str, arguments: str = "{}") -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def test_only_what_every_server_knows_is_sent() -> None:
    assert translated(
        message_item("user", "hi"),
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=True,
        store=False,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="t",
        client_metadata={"a": "b"},
        text={"verbosity": "low"},
    ) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_what_was_chosen_is_sent() -> None:
    form = {"type": "json_schema", "name": "o", "strict": True, "schema": {"type": "object"}}
    body = translated(
        message_item("user", "hi"),
        tools=[READ],
        parallel_tool_calls=False,
        reasoning={"effort": "high", "summary": "auto"},
        service_tier="priority",
        text={"format": form},
    )
    assert body["reasoning_effort"] == "high"
    assert body["service_tier"] == "priority"
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("auto", False)
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "o", "strict": True, "schema": {"type": "object"}},
    }


def test_tools_become_functions_under_flat_names() -> None:
    web = {"type": "web_search"}
    strict = {**READ, "name": "strict", "strict": True}
    tools = translated(tools=[READ, FILES, PATCH, SEARCH, web, strict])["tools"]
    assert {tool["type"] for tool in tools} == {"function"}
    functions = {tool["function"].pop("name"): tool["function"] for tool in tools}
    read = {"description": "Read.", "parameters": READ["parameters"]}
    assert functions == {
        "read": read,
        "mcp__files__read": read,
        "apply_patch": {
            "description": "Patch files.\n\nThe text has to follow this lark grammar:\nstart: LINE",
            "parameters": {
                "type": "object",
                "properties": {"input": {"type": "string", "description": "The whole text."}},
                "required": ["input"],
                "additionalProperties": False,
            },
        },
        "tool_search": {"description": "Find tools.", "parameters": SEARCH["parameters"]},
        "strict": {**read, "strict": True},
    }


def test_what_a_search_found_is_declared() -> None:
    found = {
        "type": "tool_search_output",
        "call_id": "s",
        "tools": [{**FILES, "tools": [{**READ, "defer_loading": True}]}],
    }
    search = {"type": "tool_search_call", "call_id": "s", "arguments": {"query": "files"}}
    body = translated(message_item("user", "hi"), search, found, tools=[SEARCH])
    assert [tool["function"]["name"] for tool in body["tools"]] == [
        "tool_search",
        "mcp__files__read",
    ]
    assert body["messages"][2:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [tool_call("s", "tool_search", '{"query":"files"}')],
        },
        {
            "role": "tool",
            "tool_call_id": "s",
            "content": "Found, and declared from now on: mcp__files__read",
        },
    ]
    nothing = messages(search, {**found, "tools": []}, tools=[SEARCH])
    assert nothing[1]["content"] == "Found nothing."


def test_there_is_one_system_message_and_it_comes_first() -> None:
    body = translated(
        message_item("developer", "Note one."),
        message_item("system", "Note two."),
        message_item("user", "hi"),
        message_item("developer", "Note three."),
        message_item("assistant", "hello"),
        message_item("developer", "Note four."),
    )
    assert body["messages"] == [
        {"role": "system", "content": "Be brief.\n\nNote one.\n\nNote two."},
        {"role": "user", "content": "hi\n\nNote three."},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "Note four."},
    ]
    assert translated(message_item("user", "hi"), instructions="")["messages"] == [
        {"role": "user", "content": "hi"}
    ]


def test_what_was_said_and_called_in_one_answer_is_one_message() -> None:
    assert messages(
        message_item("user", "go"),
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}]},
        message_item("assistant", "I look."),
        called("a", '{"path": "a"}', namespace="mcp__files"),
        called("b"),
        output("a", "A"),
        output("b", "B"),
        {"type": "web_search_call", "id": "w", "status": "completed"},
        message_item("assistant", "Done."),
        tools=[FILES, READ],
    ) == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                tool_call("a", "mcp__files__read", '{"path": "a"}'),
                tool_call("b", "read"),
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "A"},
        {"role": "tool", "tool_call_id": "b", "content": "B"},
        {"role": "assistant", "content": "Done."},
    ]


def test_outputs_stand_right_behind_their_calls() -> None:
    assert messages(
        called("a"),
        message_item("assistant", "meanwhile"),
        message_item("user", "steered"),
        called("b"),
        output("b", "B"),
        output("a", "A"),
        output("a", "again"),
        output("stranger", "C"),
    ) == [
        {
            "role": "assistant",
            "content": "meanwhile",
            "tool_calls": [tool_call("a", "read"), tool_call("b", "read")],
        },
        {"role": "tool", "tool_call_id": "b", "content": "B"},
        {"role": "tool", "tool_call_id": "a", "content": "A"},
        {"role": "user", "content": "steered"},
    ]


def test_a_call_without_an_output_gets_one() -> None:
    assert messages(called("a"), message_item("user", "and?")) == [
        {"role": "assistant", "content": "", "tool_calls": [tool_call("a", "read")]},
        {"role": "tool", "tool_call_id": "a", "content": "aborted before there was a result"},
        {"role": "user", "content": "and?"},
    ]


def test_custom_calls_and_arguments_that_are_no_json_become_json() -> None:
    custom = {
        "type": "custom_tool_call",
        "call_id": "a",
        "name": "apply_patch",
        "input": '*** "Begin"',
    }
    done = {"type": "custom_tool_call_output", "call_id": "a", "output": "ok"}
    said_so, _, broken, _ = messages(custom, done, called("b", "{broken"), output("b", "err"))
    assert said_so["tool_calls"] == [tool_call("a", "apply_patch", '{"input":"*** \\"Begin\\""}')]
    assert broken["tool_calls"] == [tool_call("b", "read", '{"invalid":"{broken"}')]
    empty, _ = messages(called("c", ""), output("c", ""))
    assert empty["tool_calls"] == [tool_call("c", "read", "{}")]


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "high"}
SHOWN = {
    "type": "image_url",
    "image_url": {"url": "data:image/png;base64,AA==", "detail": "high"},
}


def test_images_and_sounds_are_parts() -> None:
    sound = {"type": "input_audio", "audio_url": "data:audio/x-wav;base64,AA=="}
    assert messages(message_item("user", "look", IMAGE, sound)) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                SHOWN,
                {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
            ],
        }
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_file", "file_id": "f"},
        {"type": "input_image", "file_id": "f"},
        {"type": "input_audio", "audio_url": "https://example.com/a.wav"},
        {"type": "future"},
    ],
)
def test_parts_that_have_no_form_are_named(part: dict[str, Any]) -> None:
    [message] = messages(message_item("user", "look", part))
    assert message["content"] == "look\n\n[something that is neither text nor image was here]"


def test_the_image_of_an_output_is_shown_behind_all_outputs() -> None:
    shown = [{"type": "input_text", "text": "a.png"}, IMAGE]
    assert messages(called("a"), called("b"), output("a", shown), output("b", "B"))[1:] == [
        {"role": "tool", "tool_call_id": "a", "content": "a.png"},
        {"role": "tool", "tool_call_id": "b", "content": "B"},
        {"role": "user", "content": [SHOWN]},
    ]


# Properties.

ITEMS = st.one_of(
    st.builds(
        message_item, st.sampled_from(["user", "developer", "assistant"]), st.text(max_size=3)
    ),
    st.builds(called, st.sampled_from("abcd")),
    st.builds(output, st.sampled_from("abcd"), st.text(max_size=3)),
    st.just({"type": "reasoning", "summary": []}),
)


@given(st.lists(ITEMS, max_size=12))
def test_any_history_becomes_a_conversation_that_servers_take(history: Any) -> None:
    expected: set[str] = set()
    before = "system"
    for message in translated(*history)["messages"][1:]:
        role = message["role"]
        if role == "tool":
            expected.remove(message["tool_call_id"])
        else:
            assert not expected, "an output is missing"
            assert role != before, "the same role twice"
            ids = [call["id"] for call in message.get("tool_calls", ())]
            expected = set(ids)
            assert len(expected) == len(ids)
            for call in message.get("tool_calls", ()):
                json.loads(call["function"]["arguments"])
        before = role
    assert not expected


NAME = st.text("ab_.-ü ", min_size=1, max_size=80)
TOOLS = st.builds(CalledTool, st.sampled_from(["function", "custom"]), st.none() | NAME, NAME)


@given(st.lists(TOOLS, max_size=8, unique_by=lambda tool: tool.identity))
def test_every_tool_has_a_flat_name_that_leads_back(tools: list[CalledTool]) -> None:
    names, reverse = ToolNames(tools), ToolNames(tools[::-1])
    flat = [names.flat(tool) for tool in tools]
    assert len(set(flat)) == len(tools)
    assert all(len(name) <= MAX_LENGTH and name.isascii() and " " not in name for name in flat)
    assert [names.tool(name) for name in flat] == tools
    assert [reverse.flat(tool) for tool in tools] == flat


@pytest.mark.parametrize("name", ["read", "r" * 70])
def test_tools_of_two_kinds_with_one_name_have_two_flat_names(name: str) -> None:
    tools = [CalledTool("function", "mcp__files", name), CalledTool("custom", "mcp__files", name)]
    names = ToolNames(tools)
    assert [names.tool(names.flat(tool)) for tool in tools] == tools


def test_a_long_name_is_cut_and_gets_a_hash() -> None:
    tool = CalledTool("function", "mcp__" + "s" * 60, "read")
    assert tool.flat == "mcp__" + "s" * 46 + "_" + tool.flat[-12:]
    assert len(tool.flat) == MAX_LENGTH
