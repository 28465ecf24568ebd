r"""MCP programs of others in both revisions, with this server before or behind them.

python -m tests.interop.mcp_revisions --modules DIR --python PYTHON

DIR has the `node_modules` of `npm install @modelcontextprotocol/server-everything
@modelcontextprotocol/inspector`, PYTHON is one of an environment with `fastmcp`. The two servers
are started by this server with each `protocol`, and one tool is called; the Inspector's command
line lists the tools of `app-server mcp-server`. Prints a line a check with the
version of MCP that was spoken; the first failure ends it. Not part of the tests.
Source: docs/mcp.md, "Revisions of the protocol".
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio

from tests.support.harness import environment_without, serve
from tests.support.mcp_peers.calls import steps_until_settled

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


async def use(home: Path, command: list[str], protocol: str) -> str:
    """Start a server, call its tool `echo`, and say which version was spoken."""
    table = f"command = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\n"
    config = f'[mcp_servers.raw]\nprotocol = "{protocol}"\nenv_vars = ["PATH"]\n{table}'
    async with serve(home, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        step = (await steps_until_settled(client, "raw"))["raw"][-1]
        assert step == ("ready", None), step
        params: dict[str, Any] = {"threadId": thread_id, "server": "raw", "tool": "echo"}
        result = await client.call("mcpServer/tool/call", {**params, "arguments": {"message": "x"}})
        assert "x" in result["content"][0]["text"], result
        status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
        return str(status["data"][0].get("protocolVersion"))


async def inspect(modules: Path, home: Path) -> str:
    """List the tools of our own server with the Inspector's command line."""
    inspector = [str(modules / "node_modules" / ".bin" / "mcp-inspector"), "--cli"]
    server = [str(PROGRAM), "mcp-server", "--home", str(home)]
    done = await anyio.run_process(
        [*inspector, *server, "--method", "tools/list"], env=environment_without("CODEX_HOME")
    )
    names = [tool["name"] for tool in json.loads(done.stdout)["tools"]]
    assert names == ["codex", "codex-reply"], names
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
                print(f"ok {name}, {protocol}: {await use(home, command, protocol)}")
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
