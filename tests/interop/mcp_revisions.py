r"""MCP programs of others in both revisions, with this server before or behind them.

python -m tests.interop.mcp_revisions --modules DIR --python PYTHON

DIR has the `node_modules` of `npm install @modelcontextprotocol/server-everything@latest
@modelcontextprotocol/inspector@latest`, which run with Node.js 22 or newer on PATH; PYTHON is one
of an environment with `fastmcp`. The two servers run on pipes and behind a URL, each with every
`protocol`; a client calls one tool, and the model one with progress and one with a form. The
Inspector's command line lists and calls the tools of `app-server mcp-server`, and those of a local
route of apps. Prints a line a check with the version of MCP that was spoken; the first failure ends
it. Not part of the tests.
Source: docs/mcp.md, "Revisions of the protocol".
"""

import argparse
import json
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from tests.conformance.server import serve_routes
from tests.support.harness import WAIT_S, WireClient, environment_without, serve
from tests.support.mcp_peers.calls import answer_question, start_asking, steps_until_settled

PROTOCOLS = ("2025", "auto")
PROGRAM = Path(sys.executable).with_name("app-server")
FAST = """
import sys

from fastmcp import Context, FastMCP
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
fast = FastMCP("fast")


@fast.tool(annotations={"readOnlyHint": True})
def echo(message: str) -> str:
    return message


@fast.tool(annotations={"readOnlyHint": True})
async def count(context: Context) -> str:
    for step in (1, 2):
        await context.report_progress(step, 2, f"step {step}")
    return "counted"


@fast.tool(annotations={"readOnlyHint": True})
async def ask(context: Context) -> str | InputRequiredResult:
    if context.request_context.protocol_version != "2026-07-28":
        return (await context.elicit("Who?", str)).action
    if context.input_responses is None:
        asked = ElicitRequest(
            params=ElicitRequestFormParams(message="Who?", requested_schema=FORM)
        )
        return InputRequiredResult(input_requests={"who": asked})
    return context.input_responses["who"].action


if len(sys.argv) > 1:
    fast.run(transport="http", port=int(sys.argv[1]), show_banner=False)
else:
    fast.run(show_banner=False)
"""


@dataclass(frozen=True)
class Program:
    """A server that nobody here wrote, and what it has."""

    name: str
    stdio: list[str]
    http: list[str]
    """`{port}` stands for the port."""
    slow: str
    """Tool that reports progress."""
    arguments: dict[str, Any]
    steps: list[str]
    """Messages of that; numbers alone are no progress of an item."""
    form: str
    """Tool that asks with a form."""


def programs(modules: Path, python: str, folder: Path) -> list[Program]:
    """Return the servers."""
    script = folder / "fast.py"
    script.write_text(FAST)
    everything = str(modules / "node_modules" / ".bin" / "mcp-server-everything")
    return [
        Program(
            name="server-everything",
            stdio=[everything],
            http=["env", "PORT={port}", everything, "streamableHttp"],
            slow="trigger-long-running-operation",
            arguments={"duration": 1, "steps": 2},
            steps=[],
            form="trigger-elicitation-request",
        ),
        Program(
            name="FastMCP",
            stdio=[python, str(script)],
            http=[python, str(script), "{port}"],
            slow="count",
            arguments={},
            steps=["step 1", "step 2"],
            form="ask",
        ),
    ]


@asynccontextmanager
async def tables(program: Program, transport: str) -> AsyncIterator[str]:
    """Give the keys of the server's table; behind a URL it runs while the context lasts."""
    if transport == "stdio":
        executable, *arguments = program.stdio
        words = f"command = {json.dumps(executable)}\nargs = {json.dumps(arguments)}"
        yield f'{words}\nenv_vars = ["PATH"]'
        return
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [word.format(port=port) for word in program.http]
    quiet = subprocess.DEVNULL
    async with await anyio.open_process(command, stdout=quiet, stderr=quiet) as process:
        try:
            await _until_listening(port)
            yield f'url = "http://127.0.0.1:{port}/mcp"'
        finally:
            process.terminate()


async def _until_listening(port: int) -> None:
    with anyio.fail_after(WAIT_S):
        while True:
            try:
                stream = await anyio.connect_tcp("127.0.0.1", port)
            except OSError:
                await anyio.sleep(0.05)
            else:
                await stream.aclose()
                return


async def use(home: Path, program: Program, table: str, protocol: str) -> str:
    """Start a server, call its tools, and say which version was spoken."""
    config = f'[mcp_servers.raw]\nprotocol = "{protocol}"\n{table}\n'
    async with serve(home, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        step = (await steps_until_settled(client, "raw"))["raw"][-1]
        assert step == ("ready", None), step
        params: dict[str, Any] = {"threadId": thread_id, "server": "raw", "tool": "echo"}
        result = await client.call("mcpServer/tool/call", {**params, "arguments": {"message": "x"}})
        assert "x" in result["content"][0]["text"], result
        await start_asking(served, client, thread_id, _of_model(program.slow, program.arguments))
        item, steps = await _completed(client)
        assert (item["status"], steps) == ("completed", program.steps), (item, steps)
        await start_asking(served, client, thread_id, _of_model(program.form, {}))
        asked = await answer_question(client, {"result": {"action": "decline"}})
        assert (asked["threadId"], asked["mode"]) == (thread_id, "form"), asked
        item, _ = await _completed(client)
        assert "decline" in json.dumps(item), item
        status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
        return str(status["data"][0].get("protocolVersion"))


def _of_model(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    name = re.sub(r"[^A-Za-z0-9_]", "_", tool)
    return {"namespace": "mcp__raw", "name": name, "arguments": arguments}


async def _completed(client: WireClient) -> tuple[Any, list[str]]:
    """Wait for the end of a turn; gives the item of its call, and the messages of progress."""
    messages = await client.until("turn/completed")
    items = [one["params"]["item"] for one in messages if one.get("method") == "item/completed"]
    steps = [
        one["params"]["message"]
        for one in messages
        if one.get("method") == "item/mcpToolCall/progress"
    ]
    return next(item for item in items if item["type"] == "mcpToolCall"), steps


class Inspector:
    """The Inspector's command line."""

    def __init__(self, modules: Path, home: Path) -> None:
        """Keep its catalog of servers in a home of its own."""
        self._command = [str(modules / "node_modules" / ".bin" / "mcp-inspector"), "--cli"]
        self._environment = environment_without("CODEX_HOME") | {"HOME": str(home)}

    async def _ask(self, *words: str) -> Any:
        done = await anyio.run_process([*self._command, *words], env=self._environment)
        return json.loads(done.stdout)

    async def look_at_server(self, home: Path) -> str:
        """List and call the tools of `app-server mcp-server`."""
        (home / "config.toml").write_text('model_provider = "offline"\n')
        server = [str(PROGRAM), "mcp-server", "--home", str(home)]
        listed = await self._ask(*server, "--method", "tools/list")
        names = [tool["name"] for tool in listed["tools"]]
        assert names == ["codex", "codex-reply"], names
        call = ["--method", "tools/call", "--tool-name", "codex", "--tool-arg", "prompt=Hello"]
        called = await self._ask(*server, *call)
        text = called["structuredContent"]["content"]
        assert text.endswith("You said: Hello"), text
        return ", ".join(names)

    async def look_at_routes(self, *, json_answers: bool) -> str:
        """List and call the tools of a connector, and read one of the resources."""
        async with serve_routes(json_answers=json_answers) as urls:
            connector = [urls["connector"], "--transport", "http"]
            listed = await self._ask(*connector, "--method", "tools/list")
            assert "test_simple_text" in [tool["name"] for tool in listed["tools"]], listed
            call = ["--method", "tools/call", "--tool-name", "test_simple_text"]
            called = await self._ask(*connector, *call)
            assert called["content"][0]["text"].startswith("This is a simple text"), called
            read = ["--method", "resources/read", "--uri", "test://static-text"]
            found = await self._ask(urls["resources"], "--transport", "http", *read)
            assert found["contents"][0]["uri"] == "test://static-text", found
            return f"{len(listed['tools'])} tools"


async def check_all(modules: Path, python: str) -> None:
    """Run all checks; the first that fails ends it."""
    with tempfile.TemporaryDirectory() as folder:
        for program in programs(modules, python, Path(folder)):
            for transport in ("stdio", "http"):
                for protocol in PROTOCOLS:
                    home = Path(folder) / f"{program.name}-{transport}-{protocol}"
                    home.mkdir()
                    async with tables(program, transport) as table:
                        spoken = await use(home, program, table, protocol)
                    print(f"ok {program.name}, {transport}, {protocol}: {spoken}", flush=True)
        inspector = Inspector(modules, Path(folder))
        print(f"ok Inspector, mcp-server: {await inspector.look_at_server(Path(folder))}")
        for json_answers in (True, False):
            said = await inspector.look_at_routes(json_answers=json_answers)
            kind = "JSON" if json_answers else "events"
            print(f"ok Inspector, local routes in {kind}: {said}", flush=True)


def main() -> None:
    """Run all checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=Path, required=True)
    parser.add_argument("--python", required=True)
    options = parser.parse_args()
    anyio.run(check_all, options.modules, options.python)


if __name__ == "__main__":
    main()
