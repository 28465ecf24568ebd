"""Calls of tools of MCP servers, by a model and by clients."""

import json
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import (
    StreamableHTTPASGIApp,
    StreamableHTTPSessionManager,
)

from app_server.config.values import Config
from app_server.mcp.catalog.tables import read_mcp_settings
from tests.support.harness import WireClient, serve, stdio_server
from tests.support.mcp_peers.web_servers import listening
from tests.support.model import calls

ALLOWED_MIB = 160
"""More memory than before, with a bound of 16 MiB a message and a few copies of one."""


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def read(servers: Any, **more: Any) -> Any:
    return read_mcp_settings(Config({"mcp_servers": servers, **more}))


async def settled(client: WireClient, name: str = "raw") -> tuple[str, str | None]:
    """Wait for the end of a server's start-up; gives its status and its error."""
    message = await client.wait_for(
        "mcpServer/startupStatus/updated",
        lambda p: p["name"] == name and p["status"] != "starting",
    )
    return message["params"]["status"], message["params"]["error"]


async def steps_until_settled(client: WireClient, *names: str) -> dict[str, list[Any]]:
    """Collect the start-up notifications until every named server has settled."""
    told: dict[str, list[Any]] = {name: [] for name in names}
    while any(not steps or steps[-1][0] == "starting" for steps in told.values()):
        message = await client.wait_for("mcpServer/startupStatus/updated")
        params = message["params"]
        told[params["name"]].append((params["status"], params["error"]))
        assert params["failureReason"] is None
    return told


@asynccontextmanager
async def with_peer(
    tmp_path: Path, *arguments: str, **keys: str
) -> AsyncIterator[tuple[Any, WireClient, str]]:
    """Give a server and a thread with one connected MCP server named `raw`."""
    config = stdio_server("raw", *arguments, **keys)
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        assert (await steps_until_settled(client, "raw"))["raw"][-1] == ("ready", None)
        yield served, client, thread_id


def raw_call(name: str, arguments: Any = None) -> dict[str, Any]:
    return {"namespace": "mcp__raw", "name": name, "arguments": arguments or {}}


async def call_items(
    served: Any, client: WireClient, thread_id: str, *functions: Any, **options: Any
) -> tuple[list[Any], list[Any]]:
    """Run a turn whose model makes calls; gives the completed items and outputs, in call order."""
    served.model.scripts.append(calls(*functions))
    params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}], **options}
    await client.call("turn/start", params)
    messages = await client.until("turn/completed")
    items = [m["params"]["item"] for m in messages if m.get("method") == "item/completed"]
    outputs = [
        item["output"]
        for item in served.model.requests[-1]["input"]
        if item["type"] == "function_call_output"
    ]
    items = [item for item in items if item["type"] == "mcpToolCall"]
    return sorted(items, key=lambda item: item["id"]), outputs[-len(functions) :]


def input_text(text: str) -> dict[str, str]:
    return {"type": "input_text", "text": text}


def asking(params: Any, method: str = "elicitation/create") -> Any:
    """Make a call whose server asks the client for something."""
    return raw_call("request", {"method": method, "params": params})


def answer_of(output: Any) -> Any:
    """Read what the server was answered."""
    return json.loads(output[1]["text"])


async def start_asking(served: Any, client: WireClient, thread_id: str, *functions: Any) -> str:
    served.model.scripts.append(calls(*functions))
    params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
    return str((await client.call("turn/start", params))["turn"]["id"])


def outputs_of(served: Any) -> list[Any]:
    return [
        item["output"]
        for item in served.model.requests[-1]["input"]
        if item["type"] == "function_call_output"
    ]


async def answer_question(client: WireClient, answer: Any) -> Any:
    """Answer the next question; gives its params."""
    question = await client.wait_for("mcpServer/elicitation/request")
    await client.send({"id": question["id"], **answer})
    return question["params"]


async def _list_tools(context: Any, params: Any) -> types.ListToolsResult:
    schema: dict[str, Any] = {"type": "object"}
    annotations = types.ToolAnnotations(read_only_hint=True)
    return types.ListToolsResult(
        tools=[types.Tool(name="look", input_schema=schema, annotations=annotations)]
    )


async def _look(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    header = context.request.headers.get("x-test", "")
    size = int((params.arguments or {}).get("size", 0))
    text = types.TextContent(type="text", text=header + "x" * size)
    return types.CallToolResult(content=[text])


@asynccontextmanager
async def http_peer(
    *, json_response: bool, status: int | None = None, certificate: Path | None = None
) -> AsyncIterator[Any]:
    """Run a real MCP server over HTTP; with `status` it refuses. Gives its URL and requests.

    With a `certificate`, a file that has its key too, it is HTTPS for `localhost`.
    """
    manager = StreamableHTTPSessionManager(
        app=Server("web", version="1", on_list_tools=_list_tools, on_call_tool=_look),
        json_response=json_response,
    )
    app = StreamableHTTPASGIApp(manager)
    requests: list[str] = []

    async def recording(scope: Any, receive: Any, send: Any) -> None:
        requests.append(scope["method"])
        if status is None:
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    async with manager.run(), listening(recording, certificate) as port:
        host = "http://127.0.0.1" if certificate is None else "https://localhost"
        yield f"{host}:{port}/mcp", requests
