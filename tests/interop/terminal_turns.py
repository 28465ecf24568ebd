"""Turns in the terminal client of Codex: commands, patches, plans, reviews, interrupts.

The model is scripted: what it does follows from what the user types. Everything else is real.
Source: docs/clients.md, "The terminal client".
"""

import json
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from tests.interop.elsewhere import Serving
from tests.interop.screen import READY, SCREEN_S, TYPING_S, Terminal, terminal
from tests.long.real_servers import Report
from tests.support.harness import stdio_server, write_config
from tests.support.model import ScriptedModel, calls, says
from tests.support.paths import MCP_PEER

SLEEP = "sleep 3600.25"
TURNS = 4
CONFIRM = "Press enter to confirm or esc to cancel"
IMPLEMENT = "Implement this plan?"
PLAN = "<proposed_plan>\n# Steps\n\n- say goodbye\n</proposed_plan>"
PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-hello\n+goodbye\n*** End Patch\n"
REVIEW = {
    "findings": [
        {
            "title": "[P1] The greeting is gone",
            "body": "Somebody may miss it.",
            "code_location": {
                "absolute_file_path": "/a.txt",
                "line_range": {"start": 1, "end": 1},
            },
        }
    ],
    "overall_explanation": "A greeting is missing.",
}


def _command(line: str, **members: Any) -> list[Any]:
    return calls({"name": "exec_command", "arguments": {"cmd": line, "login": False, **members}})


def chooser(outside: Path) -> Any:
    """Make the model: it acts on what was typed last, then says what came back."""
    escalated = {
        "sandbox_permissions": "require_escalated",
        "justification": "May I write outside?",
    }
    deeds = {
        "write outside": _command(f"touch {outside}", **escalated),
        "sleep": _command(SLEEP, yield_time_ms=30_000),
        "write inside": _command("touch inside.txt"),
        "look": _command("ls"),
        "patch": calls({"name": "apply_patch", "arguments": {"input": PATCH}}),
        "plan it": says(PLAN),
    }

    def choose(body: dict[str, Any]) -> list[Any]:
        items = body["input"]
        if "output" in items[-1]:
            is_review = "You review code" in body["instructions"]
            return says(json.dumps(REVIEW) if is_review else "The tool has answered.")
        text = items[-1]["content"][-1]["text"]
        if text.startswith("Review what is not committed"):
            return _command("git diff")
        if text in deeds:
            return deeds[text]
        return says(f"You said: {text}"[:200])

    return choose


def _repository(folder: Path) -> None:
    folder.mkdir()
    (folder / "a.txt").write_text("hello\n")
    names = "-c", "user.name=t", "-c", "user.email=t@example.com"
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", *names, *words], cwd=folder, check=True, timeout=30)


def _sleepers() -> int:
    count = 0
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        count += words == SLEEP.replace(" ", "\0").encode() + b"\0"
    return count


async def until(done: Callable[[], object], what: str) -> None:
    """Wait until something is done.

    Raises:
        AssertionError: it is not; with `what`.
    """
    with anyio.move_on_after(SCREEN_S):
        while not done():
            await anyio.sleep(0.1)
        return
    raise AssertionError(what)


async def check_turns(codex: str, serving: Serving, work: Path, report: Report) -> None:
    """Try everything with files in `work`."""
    home, client, outside = work / "home", work / "client", Path("/opt") / f"outside-{os.getpid()}"
    trusted, distrusted = work / "trusted", work / "distrusted"
    home.mkdir()
    client.mkdir()
    _repository(trusted)
    _repository(distrusted)
    levels = f'[projects."{trusted}"]\ntrust_level = "trusted"\n'
    levels += f'[projects."{distrusted}"]\ntrust_level = "untrusted"\n'
    async with ScriptedModel().serve() as model:
        model.choose = chooser(outside)
        write_config(home, model.url, levels)
        async with serving(home) as url:
            with terminal(codex, url, client, trusted) as screen:
                try:
                    await _in_trusted(screen, trusted, outside, report)
                    await _in_another(screen, report)
                finally:
                    outside.unlink(missing_ok=True)
            with terminal(codex, url, client, distrusted) as screen:
                await _in_distrusted(screen, distrusted, report)


async def check_servers(codex: str, serving: Serving, work: Path, report: Report) -> None:
    """Count MCP servers after each turn: the client starts a thread for each title, without any."""
    home, client, folder = work / "home", work / "client", work / "folder"
    client.mkdir()
    _repository(folder)
    config = f'[projects."{folder}"]\ntrust_level = "trusted"\n{stdio_server("raw")}'
    async with ScriptedModel().serve() as model:
        model.choose = chooser(work)
        write_config(home, model.url, config)
        async with serving(home) as url:
            with (
                report.check(f"{TURNS} turns: one process of one MCP server"),
                terminal(codex, url, client, folder) as screen,
            ):
                counts = []
                for number in range(TURNS):
                    await screen.say(f"turn {number}")
                    await screen.shows(f"You said: turn {number}")
                    # The thread for a title comes with the turn, and asks the model too.
                    asked = 2 * (number + 1)
                    await until(partial(_has_asked, model, asked), "the title was not asked for")
                    counts.append(_running(MCP_PEER, folder))
                await screen.quit()
                assert counts == [1] * TURNS, counts


def _has_asked(model: ScriptedModel, count: int) -> bool:
    return len(model.requests) >= count


def _running(program: Path, folder: Path) -> int:
    """Count processes that run a program in a folder."""
    count = 0
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if str(program).encode() in words.split(b"\0"):
                count += Path(entry, "cwd").readlink() == folder
        except OSError:
            continue
    return count


async def _in_trusted(screen: Terminal, folder: Path, outside: Path, report: Report) -> None:
    with report.check("a command that wants out of the sandbox is declined: nothing runs"):
        await screen.say("write outside")
        await screen.shows("May I write outside?", CONFIRM)
        await screen.answer("Escape", CONFIRM)
        await screen.shows("You canceled the request", "interrupted")
        assert not outside.exists()
    with report.check("the same command is approved: it runs outside"):
        await screen.say("write outside")
        await screen.shows("May I write outside?", CONFIRM)
        await screen.answer("Enter", CONFIRM)
        await screen.shows("You approved codex to run", "The tool has answered.")
        assert outside.exists()
    with report.check("a patch inside of the project needs no question, and /diff shows it"):
        await screen.say("/permissions")
        await screen.shows("Update Model Permissions")
        await screen.answer("1", "Update Model Permissions")
        await screen.say("patch")
        await screen.shows("Edited a.txt")
        await until(
            lambda: (folder / "a.txt").read_text() == "goodbye\n", "the file was not changed"
        )
        await screen.say("/diff")
        await screen.shows("-hello", "+goodbye", "q close")
        await screen.press("q")
    with report.check("Esc ends a command that sleeps, and nothing of it stays"):
        await screen.say("sleep")
        await until(lambda: _sleepers() > 0, "the command does not run")
        await screen.press("Escape")
        await screen.shows("Conversation interrupted")
        await until(lambda: _sleepers() == 0, "the command still runs")
    with report.check("!ls shows the folder"):
        await screen.shows(READY)
        await screen.press("!ls")
        await screen.shows("Shell mode")
        await anyio.sleep(TYPING_S)
        await screen.press("Enter")
        await screen.shows("You ran ls", "a.txt")
    with report.check("/review reads the change and shows what it found"):
        await screen.say("/review")
        await screen.shows("Review uncommitted changes")
        await screen.answer("2", "Review uncommitted changes")
        await screen.shows("<< Code review finished >>", "[P1] The greeting is gone")
    with report.check("/plan proposes a plan, and it is implemented"):
        await screen.say("/plan")
        await screen.shows("Plan mode (shift+tab to cycle)")
        await screen.say("plan it")
        await screen.shows("Proposed Plan", "say goodbye", IMPLEMENT)
        await screen.answer("1", IMPLEMENT)
        await screen.shows("You said: Implement the plan.")
        await screen.lacks("Plan mode (shift+tab to cycle)")


async def _in_another(screen: Terminal, report: Report) -> None:
    with report.check("/new begins another thread over the connection, and a turn runs in it"):
        await screen.say("/new")
        await screen.lacks("Implement the plan.")
        await screen.say("hello again")
        await screen.shows("You said: hello again")
        await screen.quit()


async def _in_distrusted(screen: Terminal, folder: Path, report: Report) -> None:
    with report.check("an untrusted folder: a command that only reads runs"):
        await screen.say("look")
        await screen.shows("List ls", "The tool has answered.")
    with report.check("an untrusted folder: a command that writes is asked about, and declined"):
        await screen.say("write inside")
        await screen.shows("touch inside.txt", CONFIRM)
        await screen.answer("Escape", CONFIRM)
        await screen.shows("You canceled the request")
        assert not (folder / "inside.txt").exists()
    with report.check("an untrusted folder: a patch is asked about, and approved"):
        await screen.say("patch")
        await screen.shows("make the following edits", CONFIRM)
        assert (folder / "a.txt").read_text() == "hello\n"
        await screen.answer("Enter", CONFIRM)
        await screen.shows("Edited a.txt", "The tool has answered.")
        await until(
            lambda: (folder / "a.txt").read_text() == "goodbye\n", "the file was not changed"
        )
        await screen.quit()
