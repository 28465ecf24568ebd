"""Events of `app-server exec --json` and of `codex exec --json`, beside each other.

python -m tests.interop.exec_events --codex PATH

Each scenario is a scripted model and a command line, run by both programs with fresh homes. What is
compared are exit statuses and all events, without ids of threads, warnings, and the words of
failures. Prints a line a scenario, with both lists where they differ, and exits with 1 if they do
where that is not known. Not part of the tests, which do not have Codex.
Source: docs/exec.md, "Beside Codex".
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from tests.support.harness import environment_without, stdio_server, write_config
from tests.support.model import COMPLETED, Refusal, ScriptedModel, calls, says
from tests.support.processes import EXECUTABLE

RUN_S = 120.0
PATCH = (
    "*** Begin Patch\n*** Add File: new.txt\n+one\n"
    "*** Update File: a.txt\n@@\n-a\n+b\n*** End Patch\n"
)


def _done(**item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "item": item}


def _shell(line: str, **more: Any) -> dict[str, Any]:
    return {"name": "exec_command", "arguments": {"cmd": line, "login": False, **more}}


REASONING = _done(type="reasoning", id="rs", summary=[{"type": "summary_text", "text": "So."}])
SEARCH = {"type": "search", "query": "weather", "queries": ["weather"]}
ASKS = {"sandbox_permissions": "require_escalated", "justification": "so"}
PATCHES = _done(type="custom_tool_call", id="ct", call_id="c", name="apply_patch", input=PATCH)
WRITES = ("--sandbox", "workspace-write")


@dataclass(frozen=True)
class Scenario:
    """A run."""

    scripts: Sequence[Any]
    words: Sequence[str] = ()
    known: str = ""
    """Why the events differ, if they do."""
    config: str = field(default="")


SCENARIOS = {
    "text": Scenario([says("Hello.")]),
    "reasoning": Scenario([[REASONING, *says("Hello.")]]),
    "command": Scenario([calls(_shell("echo hello")), says("Done.")], WRITES),
    "command that fails": Scenario([calls(_shell("echo x; exit 3")), says("Done.")], WRITES),
    "command that may not leave": Scenario([calls(_shell("true", **ASKS)), says("Done.")]),
    "patch": Scenario([[PATCHES, COMPLETED], says("Done.")], WRITES),
    "patch that is refused": Scenario([[PATCHES, COMPLETED], says("Done.")]),
    "search": Scenario(
        [[_done(type="web_search_call", id="w", status="completed", action=SEARCH), *says("Ok.")]],
        ("-c", "web_search=live"),
        known="the id of web_search",
    ),
    "MCP tool that fails": Scenario(
        [calls({"namespace": "mcp__peer", "name": "fail", "arguments": {}}), says("Done.")],
        config=stdio_server("peer"),
    ),
    "no answer": Scenario([[COMPLETED]]),
    "failure": Scenario([Refusal(400, {"error": {"message": "not so"}})]),
}


async def run(program: str, scenario: Scenario) -> list[Any]:
    """Run a scenario; gives the exit status and the events."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as work:
        root = Path(work).resolve()
        folder, home = root / "folder", root / "home"
        folder.mkdir()
        await anyio.run_process(["git", "init", "-q", str(folder)])
        (folder / "a.txt").write_text("a\n")
        async with ScriptedModel().serve() as model:
            write_config(home, model.url, scenario.config)
            model.scripts += scenario.scripts
            variables = {"CODEX_HOME": str(home), "APP_SERVER_HOME": str(home), "HOME": str(root)}
            with anyio.fail_after(RUN_S):
                done = await anyio.run_process(
                    [program, "exec", "--json", "--model", "gpt-5.5", *scenario.words, "Go."],
                    env=environment_without("OPENAI_API_KEY") | variables | {"SHELL": "/bin/bash"},
                    cwd=folder,
                    input=b"",
                    check=False,
                )
    lines = done.stdout.decode().replace(str(root), "ROOT").splitlines()
    return [done.returncode, *filter(None, map(_plain, map(json.loads, lines)))]


def _plain(event: dict[str, Any]) -> Any:
    """Leave out what differs between two runs; None for a warning."""
    if event["type"] == "error" or event.get("item", {}).get("type") == "error":
        return None
    event.pop("thread_id", None)
    event.pop("error", None)
    return event


async def compare(codex: str) -> bool:
    """Compare all scenarios; returns whether they are equal, but where it is known."""
    is_as_known = True
    for name, scenario in SCENARIOS.items():
        ours, theirs = await run(str(EXECUTABLE), scenario), await run(codex, scenario)
        if ours == theirs:
            print(f"equal    {name}", flush=True)
            continue
        is_as_known = is_as_known and bool(scenario.known)
        print(
            f"differs  {name}: {scenario.known or 'UNEXPECTED'}\n  {ours}\n  {theirs}", flush=True
        )
    return is_as_known


def main() -> int:
    """Compare all scenarios."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.exec_events",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--codex", metavar="PATH", required=True)
    return 0 if anyio.run(compare, parser.parse_args().codex) else 1


if __name__ == "__main__":
    sys.exit(main())
