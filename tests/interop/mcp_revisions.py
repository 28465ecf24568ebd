r"""MCP programs of others in both revisions, with this server before or behind them.

python -m tests.interop.mcp_revisions --modules DIR --python PYTHON

DIR has the `node_modules` of `npm install @modelcontextprotocol/server-everything
@modelcontextprotocol/inspector`, PYTHON is one of an environment with `fastmcp`. The two servers
are started by this server with each `protocol`; a client calls one tool, and the model two of the
first server, one with progress and one with a form. The Inspector's command line lists the tools
of `app-server mcp-server`, and runs a turn. Prints a line a check with the
version of MCP that was spoken; the first failure ends it. Not part of the tests.
Source: docs/mcp.md, "Revisions of the protocol".
"""

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio

from tests.support.harness import WireClient, environment_without, serve
from tests.support.mcp_peers.calls import answer_question, start_asking, steps_until_settled

PROTOCOLS = ("2025", "auto")
PROGRAM = Path(sys.executable).with_name("app-server")
FAST = (
    "from fastmcp import FastMCP\n"
    "mcp = FastMCP('fast')\n"
    "@mcp.tool\n"
    "def echo(message: str) -> str:\n"
    "    return message\n"
    "mcp.run(show_banner=False)\n"
)


async def use(home: Path, command: list[str], protocol: str, name: str) -> str:
    """Start a server, call its tools, and say which version was spoken."""
    table = f"command = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\n"
    config = f'[mcp_servers.raw]\nprotocol = "{protocol}"\nenv_vars = ["PATH"]\n{table}'
    async with serve(home, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        step = (await steps_until_settled(client, "raw"))["raw"][-1]
        assert step == ("ready", None), step
        params: dict[str, Any] = {"threadId": thread_id, "server": "raw", "tool": "echo"}
        result = await client.call("mcpServer/tool/call", {**params, "arguments": {"message": "x"}})
        assert "x" in result["content"][0]["text"], result
        if name == "server-everything":
            # Its progress has numbers alone, which are no progress of an item.
            arguments = {"duration": 1, "steps": 2}
            slow = _of_model("trigger-long-running-operation", arguments)
            await start_asking(served, client, thread_id, slow)
            item = await _completed(client)
            assert item["status"] == "completed", item
            await start_asking(
                served, client, thread_id, _of_model("trigger-elicitation-request", {})
            )
            asked = await answer_question(client, {"result": {"action": "decline"}})
            assert (asked["threadId"], asked["mode"]) == (thread_id, "form"), asked
            item = await _completed(client)
            assert "decline" in json.dumps(item), item
        status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
        return str(status["data"][0].get("protocolVersion"))


def _of_model(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    name = re.sub(r"[^A-Za-z0-9_]", "_", tool)
    return {"namespace": "mcp__raw", "name": name, "arguments": arguments}


async def _completed(client: WireClient) -> Any:
    """Wait for the end of a turn, and give the item of its call."""
    messages = await client.until("turn/completed")
    items = [one["params"]["item"] for one in messages if one.get("method") == "item/completed"]
    return next(item for item in items if item["type"] == "mcpToolCall")


async def inspect(modules: Path, home: Path) -> str:
    """List and call the tools of our own server with the Inspector's command line."""
    inspector = [str(modules / "node_modules" / ".bin" / "mcp-inspector"), "--cli"]
    server = [str(PROGRAM), "mcp-server", "--home", str(home)]
    done = await anyio.run_process(
        [*inspector, *server, "--method", "tools/list"], env=environment_without("CODEX_HOME")
    )
    names = [tool["name"] for tool in json.loads(done.stdout)["tools"]]
    assert names == ["codex", "codex-reply"], names
    (home / "config.toml").write_text('model_provider = "offline"\n')
    arguments = ["--method", "tools/call", "--tool-name", "codex", "--tool-arg", "prompt=Hello"]
    done = await anyio.run_process(
        [*inspector, *server, *arguments], env=environment_without("CODEX_HOME")
    )
    text = json.loads(done.stdout)["structuredContent"]["content"]
    assert text.endswith("You said: Hello"), text
    return ", ".join(names)


async def check_all(modules: Path, python: str) -> None:
    """Run all checks; the first that fails ends it."""
    everything = [str(modules / "node_modules" / ".bin" / "mcp-server-everything")]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "fast.py"
        script.write_text(FAST)
        servers = {"server-everything": everything, "FastMCP": [python, str(script)]}
        for name, command in servers.items():
            for protocol in PROTOCOLS:
                home = Path(folder) / f"{name}-{protocol}"
                home.mkdir()
                print(f"ok {name}, {protocol}: {await use(home, command, protocol, name)}")
        print(f"ok Inspector: {await inspect(modules, Path(folder))}")


def main() -> None:
    """Run all checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=Path, required=True)
    parser.add_argument("--python", required=True)
    options = parser.parse_args()
    anyio.run(check_all, options.modules, options.python)


if __name__ == "__main__":
    main()
