"""Tools that clients declare and run: what is declared, called, answered, refused, kept."""

from pathlib import Path
from typing import Any, TypeAlias

import pytest

from app_server.tools.dynamic_tools import (
    FAILED,
    LEFT_OUT,
    MAX_BYTES,
    MAX_CONTENT_BYTES,
    MAX_TOOLS,
    METHOD,
    NOBODY,
    OWN_NAMES,
    bounded_content,
)
from protocol.turns.items import (
    DynamicToolCallOutputContentItem,
    InputImageDynamicToolCallOutputContentItem,
    InputTextDynamicToolCallOutputContentItem,
)
from tests.support.harness import Served, WireClient, claim, serve
from tests.support.large import Case, made
from tests.support.model import COMPLETED, Gate, calls, says

Content: TypeAlias = list[DynamicToolCallOutputContentItem]

SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}


def tool(name: str = "plain", **members: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "name": name,
        "description": f"Does {name}.",
        "inputSchema": SCHEMA,
        "deferLoading": False,
        **members,
    }


def group(name: str, *tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "description": "A group.", "tools": list(tools)}


def function(name: str, **marks: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "name": name,
        "description": f"Does {name}.",
        "strict": False,
        "parameters": SCHEMA,
        **marks,
    }


def declared(served: Served) -> list[dict[str, Any]]:
    """Return what a model was offered beside the server's own functions."""
    tools = served.model.requests[-1]["tools"]
    return [entry for entry in tools if entry.get("name") not in OWN_NAMES]


def output(served: Served) -> Any:
    return [item["output"] for item in served.model.items() if "output" in item][-1]


async def begin(client: WireClient, thread_id: str) -> None:
    said = [{"type": "text", "text": "go"}]
    await client.call("turn/start", {"threadId": thread_id, "input": said})


async def run(client: WireClient, served: Served, call: dict[str, Any], answer: Any) -> list[Any]:
    """Have the model call a tool, answer the request, and return the item's two states."""
    served.model.scripts += [calls(call), says("done")]
    thread_id = (await client.call("thread/loaded/list", {}))["data"][0]
    await begin(client, thread_id)
    items = []
    while True:
        message = await client.receive()
        method, params = message.get("method"), message.get("params", {})
        if method == METHOD:
            assert params.pop("turnId")
            items.append(params)
            await client.send({"id": message["id"], **answer})
        elif params.get("item", {}).get("type") == "dynamicToolCall":
            items.append(params["item"])
        elif method == "turn/completed":
            return items


@claim("dynamic:call", "dynamic:declared")
async def test_a_client_runs_its_tool_and_the_model_reads_the_answer(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        specs = [tool(), group("ns", tool("inner"), tool("later", deferLoading=True))]
        thread_id = await client.start_thread(dynamicTools=specs)
        content = [
            {"type": "inputText", "text": "hello"},
            {"type": "inputImage", "imageUrl": "data:image/png;base64,AA=="},
        ]
        answer = {"result": {"contentItems": content, "success": True}}
        started, asked, ended = await run(
            client, served, {"name": "plain", "arguments": {"x": "1"}}, answer
        )
        assert (started["status"], started["contentItems"], started["success"]) == (
            "inProgress",
            None,
            None,
        )
        assert asked == {
            "threadId": thread_id,
            "callId": "call_1",
            "namespace": None,
            "tool": "plain",
            "arguments": {"x": "1"},
        }
        assert {key: ended[key] for key in ("status", "contentItems", "success", "arguments")} == {
            "status": "completed",
            "contentItems": content,
            "success": True,
            "arguments": {"x": "1"},
        }
        assert output(served) == [
            {"type": "input_text", "text": "hello"},
            {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
        ]
        assert declared(served) == [
            {"type": "tool_search"} | declared(served)[0],
            function("plain"),
            {
                "type": "namespace",
                "name": "ns",
                "description": "A group.",
                "tools": [function("inner")],
            },
        ]
        text = {"type": "inputText", "text": "no luck"}
        answer = {"result": {"contentItems": [text], "success": False}}
        call = {"namespace": "ns", "name": "inner", "arguments": {}}
        *_, ended = await run(client, served, call, answer)
        assert (ended["namespace"], ended["status"], ended["success"]) == ("ns", "failed", False)
        assert output(served) == "no luck"


@claim("dynamic:deferred")
async def test_a_deferred_tool_is_found_by_a_search_and_called(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        later = tool("sendLetter", description="Writes to people.", deferLoading=True)
        thread_id = await client.start_thread(dynamicTools=[group("post", later)])
        search = {
            "type": "tool_search_call",
            "call_id": "s1",
            "execution": "client",
            "arguments": {"query": "send a letter"},
        }
        served.model.scripts.append(
            [{"type": "response.output_item.done", "item": search}, COMPLETED]
        )
        await client.turn(thread_id, "go")
        (found,) = [i for i in served.model.items() if i["type"] == "tool_search_output"]
        members = [function("sendLetter", description="Writes to people.", defer_loading=True)]
        namespace = {"type": "namespace", "name": "post", "description": "A group."}
        assert found["tools"] == [{**namespace, "tools": members}]
        assert [entry["type"] for entry in declared(served)] == ["tool_search"]
        assert "- post: A group." in served.model.inputs()[0][1]
        call = {"namespace": "post", "name": "sendLetter", "arguments": {"x": "1"}}
        answer = {"result": {"contentItems": [], "success": True}}
        *_, ended = await run(client, served, call, answer)
        assert (ended["tool"], ended["status"]) == ("sendLetter", "completed")
        assert output(served) == []


@claim("dynamic:refused")
@pytest.mark.parametrize(
    "answer", [{"error": {"code": -32000, "message": "no"}}, {"result": {"nope": 1}}]
)
async def test_a_refusal_or_nonsense_fails_the_call_and_the_turn_goes_on(
    tmp_path: Path, answer: dict[str, Any]
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        await client.start_thread(dynamicTools=[tool()])
        *_, ended = await run(client, served, {"name": "plain", "arguments": {}}, answer)
        text = [{"type": "inputText", "text": FAILED}]
        assert (ended["status"], ended["success"], ended["contentItems"]) == ("failed", False, text)
        assert output(served) == FAILED


@claim("dynamic:nobody")
async def test_without_a_client_the_model_gets_an_error(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(dynamicTools=[tool()])
        gate = Gate()
        served.model.scripts.append([gate, *calls({"name": "plain", "arguments": {}})])
        await begin(client, thread_id)
        await gate.wait_until_reached()
        await client.call("thread/unsubscribe", {"threadId": thread_id})
        gate.opened.set()
        await served.services.sessions.get(thread_id).slot.idle.wait()
        assert output(served) == NOBODY


async def test_arguments_that_are_no_json_reach_no_client(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        await client.start_thread(dynamicTools=[tool()])
        assert await run(client, served, {"name": "plain", "arguments": "{"}, {}) == []
        assert output(served).startswith("failed to parse function arguments: err: ")


@claim("dynamic:kept")
async def test_the_tools_of_a_thread_outlive_the_server_and_are_those_of_its_forks(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(dynamicTools=[tool(), group("ns", tool("inner"))])
        await client.turn(thread_id, "one")
        before = declared(served)
    async with serve(tmp_path) as served, served.client() as client:
        await client.call("thread/resume", {"threadId": thread_id})
        await client.turn(thread_id, "two")
        assert declared(served) == before
        fork = await client.call("thread/fork", {"threadId": thread_id})
        await client.turn(fork["thread"]["id"], "three")
        assert declared(served) == before


@claim("dynamic:checked")
@pytest.mark.parametrize(
    ("specs", "field", "rule"),
    [
        ([tool("")], "[0].name", "must not be empty"),
        ([tool("a b")], "[0].name", "may have letters, digits, `_` and `-` alone"),
        ([tool("x" * 129)], "[0].name", "has more than 128 characters"),
        ([tool(), tool()], "[1].name", "`plain` is there twice"),
        ([tool("exec_command")], "[0].name", "`exec_command` is a tool of this server"),
        ([tool("mcp__a")], "[0].name", "names that begin with `mcp__` are reserved"),
        (
            [tool(deferLoading=True)],
            "[0].deferLoading",
            "a tool that is deferred needs a namespace",
        ),
        ([tool(inputSchema=[])], "[0].inputSchema", "must be an object"),
        ([tool(inputSchema=None)], "[0].inputSchema", "must be an object"),
        (
            [tool(inputSchema={"type": "string"})],
            "[0].inputSchema.type",
            "must be `object`: arguments have names",
        ),
        ([tool(inputSchema={"properties": 1})], "[0].inputSchema.properties", "must be an object"),
        ([group("ns")], "[0].tools", "must not be empty"),
        ([group("n s", tool())], "[0].name", "may have letters, digits, `_` and `-` alone"),
        ([group("x" * 65, tool())], "[0].name", "has more than 64 characters"),
        ([group("functions", tool())], "[0].name", "`functions` is reserved"),
        ([group("ns", tool()), group("ns", tool("b"))], "[1].name", "`ns` is there twice"),
        ([group("ns", tool(), tool())], "[0].tools[1].name", "`plain` is there twice"),
        ([tool(f"t{n}") for n in range(MAX_TOOLS + 1)], "", f"has more than {MAX_TOOLS} tools"),
        (lambda: [tool(description="x" * MAX_BYTES)], "", f"has more than {MAX_BYTES} bytes"),
    ],
)
async def test_a_tool_that_cannot_be_declared_is_named(
    tmp_path: Path, specs: Case[list[Any]], field: str, rule: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        error = await client.refusal("thread/start", {"dynamicTools": made(specs)})
        named = f"dynamicTools{field}"
        assert (error.code, error.message) == (-32602, f"Invalid params: `{named}` {rule}")
        assert error.data == {"code": "invalidParams", "field": named, "rule": rule}
        assert (await client.call("thread/loaded/list", {}))["data"] == []


async def test_the_servers_own_functions_are_those_that_no_client_may_replace(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.call("thread/goal/set", {"threadId": thread_id, "objective": "x"})
        await client.wait_for("turn/completed")
        await client.call("thread/goal/clear", {"threadId": thread_id})
        for request in served.model.requests:
            names = {t.get("name", t["type"]) for t in request["tools"] if t["type"] != "namespace"}
            assert names <= OWN_NAMES


@claim("dynamic:bounds")
def test_what_a_tool_returns_fits_into_a_message() -> None:
    text = InputTextDynamicToolCallOutputContentItem
    small: Content = [
        text(text="a"),
        InputImageDynamicToolCallOutputContentItem(image_url="data:x"),
    ]
    assert bounded_content(small) == small
    image = InputImageDynamicToolCallOutputContentItem(image_url="x" * MAX_CONTENT_BYTES)
    cut = bounded_content([text(text='"' * MAX_CONTENT_BYTES), image, text(text="b")])
    assert [part.model_dump()["type"] for part in cut] == ["inputText"] * 3
    assert cut[1:] == [text(text=LEFT_OUT), text(text="b")]
    assert sum(len(part.model_dump_json()) for part in cut) < MAX_CONTENT_BYTES + 200
