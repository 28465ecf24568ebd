"""MCP servers of others, through a real app-server process.

python -m tests.long.real_servers [--tools FOLDER]

Installs the servers (npm and PyPI, the newest there are) into a temporary folder, or once into
FOLDER; starts an app-server that has them in its config.toml, and asks for everything over the
wire. Prints a line a check, `ok` or `FAIL`, and exits with 1 if there was a failure. Not part of
the tests: it needs the network, git, and what others publish today.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from app_server.clients.demo.process import start_server
from app_server.peer.connection import Client, open_client
from tests.long.real_server_tools import NPM, Tools, serving_over_http

START_S = 30.0


@dataclass(frozen=True)
class Call:
    """A tool call, and what its result must contain as JSON text."""

    tool: str
    arguments: dict[str, Any]
    expected: str
    fails: bool = False


@dataclass(frozen=True)
class Case:
    """One server: how it is configured, and what it is asked."""

    name: str
    table: Mapping[str, Any]
    calls: Sequence[Call]
    """The first is also what the model calls."""
    resource: str | None = None
    interrupted: Call | None = None
    """A call that takes long, to be interrupted."""


@dataclass
class Report:
    """Prints checks and counts failures."""

    failures: list[str] = field(default_factory=list)

    @contextmanager
    def check(self, what: str) -> Iterator[None]:
        """Print how the block went; what it raises is a failure, and goes no further."""
        try:
            yield
        except Exception as exc:  # noqa: BLE001
            self.failures.append(what)
            where = traceback.extract_tb(exc.__traceback__)[-1]
            print(f"FAIL {what}: {type(exc).__name__}: {exc} ({where.name}:{where.lineno})")
        else:
            print(f"ok   {what}", flush=True)


def cases(tools: Tools, work: Path, everything_url: str) -> list[Case]:
    """Return what is tried, with files in `work`."""
    (work / "hello.txt").write_text("hello from a file")
    repository = work / "repository"
    repository.mkdir()
    subprocess.run(["git", "init", "-q", str(repository)], check=True, timeout=30)
    (repository / "new.txt").write_text("new")
    everything: dict[str, Any] = {
        "calls": [
            Call("get-sum", {"a": 20, "b": 22}, "42"),
            Call("echo", {"message": "grüße 🎈"}, "grüße 🎈"),
            Call("get-structured-content", {"location": "Chicago"}, '"structuredContent"'),
            Call("get-tiny-image", {}, '"mimeType": "image/png"'),
            Call("get-resource-links", {"count": 2}, '"resource_link"'),
            Call("trigger-long-running-operation", {"duration": 0.2, "steps": 2}, "completed"),
            Call("get-sum", {"a": "x"}, "nvalid", fails=True),
        ],
        "resource": "demo://resource/dynamic/text/1",
        "interrupted": Call("trigger-long-running-operation", {"duration": 60, "steps": 2}, ""),
    }
    memory = work / "memory.jsonl"
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    return [
        Case("everything", stdio(tools.node(NPM[0], "stdio")), **everything),
        Case("everything-http", {"url": everything_url}, **everything),
        Case(
            "filesystem",
            stdio(tools.node(NPM[1], str(work))),
            [
                Call("read_text_file", {"path": str(work / "hello.txt")}, "hello from a file"),
                Call("write_file", {"path": str(work / "out.txt"), "content": "x"}, "out.txt"),
                Call("list_directory", {"path": str(work)}, "[FILE] out.txt"),
                Call("read_text_file", {"path": "/etc/passwd"}, "denied", fails=True),
            ],
        ),
        Case(
            "memory",
            {**stdio(tools.node(NPM[2])), "env": {"MEMORY_FILE_PATH": str(memory)}},
            [
                Call("create_entities", {"entities": [entity]}, ""),
                Call("read_graph", {}, "wrote the first program"),
                Call("search_nodes", {"query": "Ada"}, "Ada"),
            ],
            resource="memory://knowledge-graph",
        ),
        Case(
            "time",
            stdio([str(tools.python / "mcp-server-time"), "--local-timezone", "Europe/Berlin"]),
            [
                Call("get_current_time", {"timezone": "Asia/Tokyo"}, "+09:00"),
                Call(
                    "convert_time",
                    {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Kolkata"},
                    "17:30",
                ),
                Call("get_current_time", {"timezone": "Nowhere"}, "Nowhere", fails=True),
            ],
        ),
        Case(
            "git",
            stdio([str(tools.python / "mcp-server-git"), "--repository", str(repository)]),
            [
                Call("git_status", {"repo_path": str(repository)}, "new.txt"),
                Call("git_add", {"repo_path": str(repository), "files": ["new.txt"]}, ""),
                Call("git_diff_staged", {"repo_path": str(repository)}, "+new"),
                Call("git_status", {"repo_path": "/"}, "", fails=True),
            ],
        ),
    ]


def stdio(command: Sequence[str]) -> dict[str, Any]:
    """Return the table of a server that is a command."""
    return {"command": command[0], "args": list(command[1:])}


def config_of(every: Sequence[Case]) -> str:
    """Write config.toml: the servers, and nobody is asked."""
    lines = []
    for case in every:
        lines.append(f"[mcp_servers.{case.name}]")
        lines.append('default_tools_approval_mode = "approve"')
        for key, value in case.table.items():
            if isinstance(value, dict):
                pairs = ", ".join(f"{name} = {json.dumps(text)}" for name, text in value.items())
                lines.append(f"{key} = {{ {pairs} }}")
            else:
                lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"


async def settle(client: Client, report: Report, names: Sequence[str]) -> None:
    """Wait until every server's start is decided."""
    waiting = set(names)
    while waiting:
        told = await client.wait_for(
            "mcpServer/startupStatus/updated",
            lambda params: params["status"] != "starting",
            timeout_s=START_S,
        )
        waiting.discard(told["name"])
        with report.check(f"{told['name']}: starts"):
            assert told["status"] == "ready", told


async def try_case(client: Client, report: Report, thread_id: str, case: Case) -> None:
    """Ask one server for everything."""
    name = case.name
    of_server = {"threadId": thread_id, "server": name}
    for scope in ({"threadId": thread_id}, {}):
        with report.check(f"{name}: mcpServerStatus/list {'of the thread' if scope else 'alone'}"):
            (status,) = (await client.call("mcpServerStatus/list", {**scope, "serverName": name}))[
                "data"
            ]
            assert {call.tool for call in case.calls} <= set(status["tools"]), status["tools"]
            assert status["runtimeStatus"] == ("connected" if scope else None)
            assert status["toolsError"] is None
            assert status["serverInfo"]["version"]
            assert bool(status["resources"]) == (case.resource is not None), status["resources"]
    for call in case.calls:
        with report.check(f"{name}: mcpServer/tool/call {call.tool}, {call.expected or 'any'}"):
            result = await client.call(
                "mcpServer/tool/call",
                {**of_server, "tool": call.tool, "arguments": call.arguments},
            )
            assert bool(result.get("isError")) == call.fails, result
            assert call.expected in json.dumps(result, ensure_ascii=False), result
    if case.resource is not None:
        uris = [case.resource, status["resources"][0]["uri"]]
        for uri in uris:
            with report.check(f"{name}: mcpServer/resource/read {uri}"):
                read = await client.call("mcpServer/resource/read", {**of_server, "uri": uri})
                assert read["contents"][0].get("text") or read["contents"][0].get("blob"), read
    with report.check(f"{name}: a turn calls {case.calls[0].tool}"):
        item, turn, said = await run_turn(client, thread_id, case, case.calls[0])
        assert (item["status"], turn["status"]) == ("completed", "completed"), item
        assert case.calls[0].expected in said, said
    if case.interrupted is not None:
        with report.check(f"{name}: an interrupted call, and the next one"):
            turn = await interrupt_turn(client, thread_id, case, case.interrupted)
            assert turn["status"] == "interrupted", turn
            item, _, _ = await run_turn(client, thread_id, case, case.calls[0])
            assert item["status"] == "completed", item


async def start_turn(client: Client, thread_id: str, case: Case, call: Call) -> str:
    """Have the offline model call a tool; returns the turn's id."""
    visible = [re.sub(r"\W", "_", part, flags=re.ASCII) for part in (case.name, call.tool)]
    text = f"/tool {visible[0]}.{visible[1]} {json.dumps(call.arguments)}"
    user_input = [{"type": "text", "text": text}]
    started = await client.call("turn/start", {"threadId": thread_id, "input": user_input})
    turn_id: str = started["turn"]["id"]
    return turn_id


async def run_turn(client: Client, thread_id: str, case: Case, call: Call) -> tuple[Any, Any, str]:
    """Run a turn to its end; returns the call's item, the turn, and what the model said."""
    turn_id = await start_turn(client, thread_id, case, call)

    def of_type(kind: str) -> Any:
        return lambda p: p["turnId"] == turn_id and p["item"]["type"] == kind

    item = (await client.wait_for("item/completed", of_type("mcpToolCall")))["item"]
    said = (await client.wait_for("item/completed", of_type("agentMessage")))["item"]["text"]
    ended = await client.wait_for("turn/completed", lambda p: p["turn"]["id"] == turn_id)
    return item, ended["turn"], said


async def interrupt_turn(client: Client, thread_id: str, case: Case, call: Call) -> Any:
    """Start a turn and interrupt it in its call; returns the turn."""
    turn_id = await start_turn(client, thread_id, case, call)
    await client.wait_for("item/started", lambda p: p["item"]["type"] == "mcpToolCall")
    await client.call("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
    ended = await client.wait_for("turn/completed", lambda p: p["turn"]["id"] == turn_id)
    return ended["turn"]


def descendants(pid: int) -> dict[int, str]:
    """Return the processes below one, with their commands."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
        except (OSError, ValueError):
            continue
    below = {pid}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return {child: command_of(child) for child in below - {pid}}


def command_of(pid: int) -> str:
    """Return a process's command, empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


async def try_all(report: Report, every: Sequence[Case], home: Path) -> None:
    """Start an app-server, try every server, and stop it."""
    (home / "config.toml").write_text(config_of(every))
    before = set(descendants(os.getpid()))
    async with start_server(home) as server:
        async with open_client(server.url, "real-servers", experimentalApi=True) as client:
            started = await client.call("thread/start", {})
            thread_id: str = started["thread"]["id"]
            await settle(client, report, [case.name for case in every])
            for case in every:
                await try_case(client, report, thread_id, case)
        children = {
            pid: command for pid, command in descendants(os.getpid()).items() if pid not in before
        }
        with report.check(f"{len(children)} processes, of which none is left after SIGTERM"):
            assert len(children) > len(every) - 1, children
            status = await server.stop()
            left = [command for pid, command in children.items() if command_of(pid) == command]
            assert (status, left) == (0, [])


def main() -> int:
    """Install, try everything, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=Path, help="where the servers are, or will be, installed")
    options = parser.parse_args()
    report = Report()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        work, home = Path(temporary) / "work", Path(temporary) / "home"
        work.mkdir()
        home.mkdir()
        tools = Tools((options.tools or Path(temporary) / "tools").resolve())
        tools.folder.mkdir(parents=True, exist_ok=True)
        tools.install()
        print(", ".join(tools.versions()), flush=True)
        with serving_over_http(tools.node(NPM[0], "streamableHttp")) as url:
            anyio.run(try_all, report, cases(tools, work, url), home)
    print(f"{len(report.failures)} failed, {time.monotonic() - began:.0f} s")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
