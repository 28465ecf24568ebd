"""A host for the official MCP conformance suite: connects, lists tools, calls each of them once.

`python -m tests.conformance.client --output-dir FOLDER COMMAND...` runs `COMMAND client ...`. The
suite starts what it is given for every scenario, plays the server at a URL, and judges what it saw.
Everything goes through this project's own servers and connections, as in a thread; the exit status
says whether they came to an end as they should.
Source: docs/mcp.md, "Conformance".
"""

import argparse
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

import tests.support.forks_loaded  # noqa: F401 (what a scenario would import)
from app_server.mcp.catalog.config import HttpTransport, McpSettings, ServerConfig
from app_server.mcp.elicitation import ServerQuestion
from app_server.mcp.servers.pool import ServerPool
from app_server.mcp.servers.requests import call_tool
from app_server.mcp.servers.server import ServerNews
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.tools.table import Tool
from app_server.mcp_wire.errors import McpError
from protocol.model import JsonObject
from tests.conformance import sign_in
from tests.conformance.warm import warm_command
from tests.support.mcp_peers.no_processes import NoProcesses

SERVER = "conformance"
TOTAL_S = 120.0
"""For one scenario."""

SCENARIO_S = 300
"""After which the process of a scenario is ended, whatever it does."""

SUITE_MS = 600_000
"""For all scenarios: it starts them at once, and they come one after the other."""

REVISIONS = ("2026-07-28", "2025-11-25")
"""Sets of scenarios."""

ARGUMENTS: dict[str, JsonObject] = {"add_numbers": {"a": 5, "b": 3}}
"""What a tool is called with; others get what the scenario says, or no arguments."""

ECHO = "json_schema_echo"
"""A tool that is to get its own schema back."""


class Defaults:
    """A user who accepts every form with its defaults."""

    async def elicit(self, question: ServerQuestion) -> JsonObject:
        """Fill in the form."""
        schema = question.params.get("requestedSchema") or {}
        members = schema.get("properties", {})
        content = {name: part["default"] for name, part in members.items() if "default" in part}
        return {"action": "accept", "content": content}


async def run_scenario(url: str) -> list[str]:
    """Connect to the server, call its tools, disconnect; returns what went wrong."""
    config = ServerConfig(name=SERVER, transport=HttpTransport(url), startup_timeout_s=TOTAL_S)
    problems: list[str] = []

    def on_news(news: Sequence[ServerNews]) -> None:
        problems.extend(one.error for one in news if one.error is not None)

    servers = ServerSet(
        McpSettings({SERVER: config}), ".", ServerPool(NoProcesses()), on_news, Defaults()
    )
    with anyio.fail_after(TOTAL_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(servers.run)
            await servers.server(SERVER).settled.wait()
            wanted = _wanted()
            for tool in servers.tools().tools:
                problems += await _call(servers, tool, wanted.get(tool.raw.tool, {}))
            servers.stop()
    return problems


def _wanted() -> dict[str, JsonObject]:
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    calls = context.get("toolCalls", [])
    return {**ARGUMENTS, **{call["name"]: call["arguments"] for call in calls}}


async def _call(servers: ServerSet, tool: Tool, arguments: JsonObject) -> list[str]:
    if tool.raw.tool == ECHO:
        listing = servers.server(SERVER).listing
        assert listing is not None
        schema = next(iter(listing.tools.values()))["inputSchema"]
        arguments = {"schema": schema}
    try:
        result = await call_tool(servers, tool.raw, arguments, {})
    except McpError as exc:
        return [f"{tool.raw.tool}: {exc}"]
    return [f"{tool.raw.tool}: {result.get('content')}"] if result.get("isError") else []


def play(arguments: list[str]) -> int:
    """Run the scenario of a URL; returns 1 if something went wrong."""
    [url] = arguments
    logging.basicConfig(level=os.environ.get("LOG_LEVEL", "WARNING").upper())
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    run = sign_in.run_scenario if scenario.startswith("auth/") else run_scenario
    problems = anyio.run(run, url)
    for problem in problems:
        print(f"{scenario}: {problem}", file=sys.stderr)
    return 1 if problems else 0


def main() -> int:
    """Run the suite for each revision; returns 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("command", nargs="+", help="that runs the suite")
    options = parser.parse_args()
    failed = 0
    with warm_command(play, seconds=SCENARIO_S) as command:
        suite = [*options.command, "client", "--command", command]
        suite += ["--timeout", str(SUITE_MS), "--output-dir", str(options.output_dir)]
        for revision in REVISIONS:
            run = [*suite, "--requirements", revision]
            done = subprocess.run(run, capture_output=True, text=True, check=False)
            totals = re.findall(r"^Total: .*$", done.stdout, re.MULTILINE)
            print(f"{revision}: {totals[-1] if totals else done.returncode}", flush=True)
            if done.returncode:
                failed += 1
                print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
