"""Demo of tools: commands and patches in a scratch repository, and sandbox refusals."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from app_server.clients.demo.process import shown_server
from app_server.clients.demo.thread import DemoThread
from app_server.clients.demo.transcript import Transcript
from protocol.model import JsonObject

CONFIG = 'model_provider = "offline"\n'
ASKED = "item/commandExecution/requestApproval"
BROKEN = "def add(a, b):\n    return a - b\n"
TEST = """\
import unittest

from calc import add


class TestAdd(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), 5)
"""
PATCH = """\
*** Begin Patch
*** Update File: calc.py
@@ def add(a, b):
-    return a - b
+    return a + b
*** End Patch"""
OUTSIDE = Path("/var/tmp")  # noqa: S108 - everybody may write here, but for the sandbox
SECRET = "not-for-models"


def _prepare(home: Path, work: Path) -> None:
    """Make a home with a credential, and a repository with a fault that its test finds."""
    home.mkdir()
    (home / "config.toml").write_text(CONFIG)
    (home / "auth.json").write_text(f'{{"OPENAI_API_KEY": "{SECRET}"}}')
    work.mkdir()
    (work / "calc.py").write_text(BROKEN)
    (work / "test_calc.py").write_text(TEST)
    git = shutil.which("git")
    if git is None:
        # What is protected is the folder, whoever made it.
        (work / ".git" / "hooks").mkdir(parents=True)
    else:
        subprocess.run([git, "init", "-q", str(work)], check=True)


async def run(transcript: Transcript, folder: Path, /) -> None:
    """Run the demo in an empty folder."""
    home, work = folder / "home", folder / "work"
    _prepare(home, work)
    title = "Start a server with the offline model"
    async with shown_server(transcript, home, title) as server, server.connect() as client:
        with transcript.step("Start a thread that may only read"):
            chosen = {"cwd": str(work), "sandbox": "read-only", "approvalPolicy": "on-request"}
            started = await client.call("thread/start", chosen)
            transcript.say("server", f"sandbox: {started['sandbox']['type']}")
        thread = DemoThread(transcript, client, started["thread"]["id"])
        await _read(thread)
        await _fail_to_write(thread, work)
        await _run_unsandboxed(thread, work)
        await _patch(thread)
        await _run_tests(thread)
        await _try_to_escape(thread, home, work, server.url)


async def _read(thread: DemoThread) -> None:
    with thread.transcript.step("A command that reads"):
        item = await _command(thread, "/exec cat calc.py")
        thread.transcript.check("the output is the file", item["aggregatedOutput"] == BROKEN)
        shown = item["commandActions"][0]["type"] == "read"
        thread.transcript.check("clients are shown what it reads", shown)


async def _fail_to_write(thread: DemoThread, work: Path) -> None:
    with thread.transcript.step("A command that may not write"):
        item = await _command(thread, "/exec touch made.txt", answer="decline")
        thread.transcript.check("it failed", item["status"] == "failed")
        thread.transcript.check("there is no file", not (work / "made.txt").exists())


async def _run_unsandboxed(thread: DemoThread, work: Path) -> None:
    with thread.transcript.step("A command that the user allows"):
        item = await _command(thread, "/outside touch made.txt", answer="accept")
        thread.transcript.check("it ran", item["status"] == "completed")
        thread.transcript.check("there is a file", (work / "made.txt").exists())


async def _patch(thread: DemoThread) -> None:
    with thread.transcript.step("A patch, now that the thread may write in its folder"):
        await thread.client.call(
            "thread/settings/update",
            {
                "threadId": thread.id,
                "approvalPolicy": "never",
                "sandboxPolicy": {"type": "workspaceWrite"},
            },
        )
        await thread.begin(f"/patch {PATCH}")
        item = (await thread.items("fileChange"))[-1]
        thread.transcript.check("the file was changed", item["status"] == "completed")
        event = await thread.client.wait_for("turn/diff/updated", lambda params: True)
        await thread.end()
        for line in event["diff"].splitlines():
            thread.transcript.say("diff", line)
        thread.transcript.check("the diff shows it", "+    return a + b" in event["diff"])


async def _run_tests(thread: DemoThread) -> None:
    with thread.transcript.step("The tests of the repository, in the sandbox"):
        python = shlex.quote(sys.executable)
        item = await _command(thread, f"/exec {python} -B -m unittest -q 2>&1")
        thread.transcript.check("they pass", item["exitCode"] == 0)


async def _try_to_escape(thread: DemoThread, home: Path, work: Path, url: str) -> None:
    with thread.transcript.step("Ways out of the sandbox"):
        outside = OUTSIDE / f"app-server-demo-{os.getpid()}"
        await _refused(thread, "a file outside of the folder", f"touch {_quoted(outside)}")
        thread.transcript.check("it was not made", not outside.exists())
        settings = home / "config.toml"
        await _refused(thread, "the server's settings", f"echo >> {_quoted(settings)}")
        hook = work / ".git" / "hooks" / "pre-commit"
        await _refused(thread, "a hook of git", f"touch {_quoted(hook)}")
        link = f"ln -s {OUTSIDE} link && touch link/{outside.name}"
        await _refused(thread, "a link that leads out", link)
        item = await _command(thread, f"/exec cat {_quoted(home / 'auth.json')}")
        thread.transcript.check(
            "credentials cannot be read", SECRET not in str(item["aggregatedOutput"])
        )
        port = url.rsplit(":", 1)[1]
        await _refused(thread, "the network", f"exec 3<>/dev/tcp/127.0.0.1/{port}", "bash")


async def _refused(thread: DemoThread, what: str, line: str, shell: str | None = None) -> None:
    text = line if shell is None else f"{shell} -c {shlex.quote(line)}"
    item = await _command(thread, f"/exec {text}")
    thread.transcript.check(f"refused: {what}", item["status"] == "failed")


async def _command(thread: DemoThread, text: str, answer: str | None = None) -> JsonObject:
    """Have the model run a command; gives its item. A question is answered if one is wanted."""
    await thread.begin(text)
    if answer is not None:
        request_id, asked = await thread.client.asked(ASKED)
        thread.transcript.say("server", f"may it run? {asked['reason'] or ''}")
        thread.transcript.say("user", answer)
        await thread.client.reply(request_id, {"decision": answer})
    item = (await thread.items("commandExecution"))[-1]
    thread.transcript.say("command", str(item["aggregatedOutput"] or "(no output)"))
    await thread.end()
    return item


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
