r"""Clients from npm, unmodified, with this server behind them.

python -m tests.interop.npm_clients --modules DIR

DIR has the `node_modules` of

  npm install --omit=optional ai@6 ai-sdk-provider-codex-cli@1.4.1 \
    ai-sdk-provider-codex-app-server@1.1.7 @openai/codex-sdk@0.163.0 \
    @modelcontextprotocol/inspector@0.15.0

The AI SDK starts the server, runs turns, streams one, goes on with a thread, runs a command, and
lists the models; then once more with a program in the server's place that speaks with a node which
owns none of its threads (this needs PostgreSQL). The provider for injected
messages starts the server and runs three turns of one thread. The SDK of Codex for TypeScript runs
two turns with `app-server exec`. MCP Inspector's command line starts
`app-server mcp-server`, lists its tools and calls them. Prints a line a check, `ok` or `FAIL`, and
exits with 1 if there was a failure, with 2 where a client is missing. Not part of the tests, which
do not need Node.js.
Source: docs/clients.md, "Clients from npm".
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from tests.long.real_servers import Report
from tests.support.clients.exec import usage
from tests.support.files.images import PNG
from tests.support.fleet.elsewhere import Elsewhere, program
from tests.support.harness import environment_without, write_config
from tests.support.model import ScriptedModel, calls, says
from tests.support.postgresql import prepare, running_cluster
from tests.support.threads.nodes import owners, running_nodes

RUN_S = 120.0
PROGRAM = Path(sys.executable).with_name("app-server")
SCRIPT = Path(__file__).with_name("ai_sdk.mjs")
OTHER_SCRIPT = Path(__file__).with_name("ai_sdk_app_server.mjs")
NEEDED = (
    "ai",
    "ai-sdk-provider-codex-app-server",
    "ai-sdk-provider-codex-cli",
    "@modelcontextprotocol/inspector",
    "@openai/codex-sdk",
)
SDK_SCRIPT = Path(__file__).with_name("codex_sdk.mjs")


async def check_all(modules: Path, work: Path, report: Report) -> None:
    """Run all checks, each with a server of its own."""
    folder = work / "folder"
    folder.mkdir()
    async with ScriptedModel().serve() as model:
        home = work / "home"
        write_config(home, model.url)
        with report.check("AI SDK"):
            thread_id = await _ai_sdk(modules, folder, home, PROGRAM, model)
            assert len(list(home.glob(f"threads/**/{thread_id}.jsonl"))) == 1
        with report.check("AI SDK with ai-sdk-provider-codex-app-server"):
            await _other_provider(modules, folder, home, model)
        with report.check("SDK of Codex for TypeScript"):
            await _codex_sdk(modules, folder, work / "sdk_home", model)
        with report.check("AI SDK at a node that owns none of its threads"):
            await _ai_sdk_elsewhere(modules, folder, work)
        inspect = partial(_inspect, modules, home)
        with report.check("MCP Inspector lists the tools"):
            await _lists_tools(inspect)
        with report.check("MCP Inspector calls them"):
            await _calls_tools(inspect, folder, model)


async def _ai_sdk_elsewhere(modules: Path, folder: Path, work: Path) -> None:
    with running_cluster() as cluster:
        prepare(cluster)
        with cluster.database() as database_url:
            async with running_nodes(work, database_url) as nodes:
                owner, asked = nodes.all
                elsewhere = Elsewhere(asked.urls[0], [owner.urls[0]])
                async with elsewhere.listening() as url:
                    started = program(work, url)
                    thread_id = await _ai_sdk(modules, folder, work, started, nodes.model)
                assert elsewhere.begun == [thread_id], elsewhere.begun
                owned = await anyio.to_thread.run_sync(owners, database_url)
                assert owned == {thread_id: owner.urls[0]}, owned


async def _ai_sdk(
    modules: Path, folder: Path, home: Path, started: Path, model: ScriptedModel
) -> str:
    """Use the SDK with the program that it starts; returns the thread that it went on with."""
    command = {
        "name": "exec_command",
        "arguments": {"cmd": "echo hello", "login": False},
        "call_id": "call_1",
    }
    model.scripts += [says("First."), says("Se", "cond."), calls(command), says("Done.")]
    script = modules / SCRIPT.name
    shutil.copyfile(SCRIPT, script)
    output = await _run(["node", str(script), str(started), str(folder), str(home)])
    # The provider logs there, too.
    [line] = [line for line in output.splitlines() if line.startswith("{")]
    found = json.loads(line)
    thread_id = str(found.pop("threadId"))
    assert found.pop("models"), found
    assert found == {
        "texts": ["First.", "Second.", "Done."],
        "pieces": 2,
        "usage": 15,
        "calls": ["exec"],
    }, found
    return thread_id


async def _other_provider(modules: Path, folder: Path, home: Path, model: ScriptedModel) -> None:
    command = {"name": "exec_command", "arguments": {"cmd": "echo hello", "login": False}}
    model.scripts += [says("First."), says("Se", "cond."), calls(command), says("Done.")]
    script = modules / OTHER_SCRIPT.name
    shutil.copyfile(OTHER_SCRIPT, script)
    found = json.loads(await _run(["node", str(script), str(PROGRAM), str(folder), str(home)]))
    # It tells neither tokens nor calls, with Codex too.
    assert found == {
        "texts": ["First.", "Second.", "Done."],
        "threads": 1,
        "usage": 0,
        "calls": [],
    }, found


async def _codex_sdk(modules: Path, folder: Path, home: Path, model: ScriptedModel) -> None:
    home.mkdir()
    (folder / "a.png").write_bytes(PNG)
    model.scripts += [says("{}"), says("Seen.")]
    script = modules / SDK_SCRIPT.name
    shutil.copyfile(SDK_SCRIPT, script)
    words = [str(PROGRAM), str(folder), str(home), model.url]
    found = json.loads(await _run(["node", str(script), *words]))
    assert found == {"texts": ["{}", "Seen."], "usage": dict(usage(2))}, found
    for headers in model.headers[-2:]:
        shown = headers["authorization"], headers["originator"]
        assert shown == ("bearer sk-of-the-sdk", "codex_sdk_ts"), shown


async def _inspect(modules: Path, home: Path, *arguments: str) -> Any:
    cli = str(modules / "node_modules" / ".bin" / "mcp-inspector")
    server = [str(PROGRAM), "--home", str(home), "mcp-server"]
    return json.loads(await _run([cli, "--cli", *server, *arguments]))


async def _lists_tools(inspect: Any) -> None:
    listed = await inspect("--method", "tools/list")
    assert [tool["name"] for tool in listed["tools"]] == ["codex", "codex-reply"], listed


async def _calls_tools(inspect: Any, folder: Path, model: ScriptedModel) -> None:
    model.scripts += [says("First."), says("Second.")]
    call = ("--method", "tools/call", "--tool-name")
    first = await inspect(*call, "codex", "--tool-arg", "prompt=Hello.", f"cwd={folder}")
    thread_id = first["structuredContent"]["threadId"]
    assert first["content"] == [{"type": "text", "text": "First."}], first
    again = ("--tool-arg", "prompt=Again.", f"threadId={thread_id}")
    second = await inspect(*call, "codex-reply", *again)
    assert second["structuredContent"] == {"threadId": thread_id, "content": "Second."}, second


async def _run(command: Sequence[str]) -> str:
    with anyio.fail_after(RUN_S):
        done = await anyio.run_process(command, env=environment_without("OPENAI_API_KEY"))
    return done.stdout.decode()


def main() -> int:
    """Run all checks."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.npm_clients",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--modules", metavar="DIR", type=Path, required=True)
    modules = parser.parse_args().modules.absolute()
    missing = [name for name in NEEDED if not (modules / "node_modules" / name).is_dir()]
    if missing or shutil.which("node", path=os.environ.get("PATH")) is None:
        print(f"nothing was checked: node, {', '.join(NEEDED)} are needed", file=sys.stderr)
        return 2
    report = Report()
    with tempfile.TemporaryDirectory() as work:
        anyio.run(check_all, modules, Path(work), report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
