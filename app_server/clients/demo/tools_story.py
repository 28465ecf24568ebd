"""The demo of tools: commands and patches in a scratch repository, and what the sandbox stops."""

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
        story = _Story(DemoThread(transcript, client, started["thread"]["id"]), work)
        await story.read()
        await story.fail_to_write()
        await story.run_unsandboxed()
        await story.patch()
        await story.run_tests()
        await story.try_to_escape(home, server.url)


class _Story:
    """What happens in one thread."""

    def __init__(self, thread: DemoThread, work: Path) -> None:
        self._thread = thread
        self._transcript = thread.transcript
        self._check = thread.transcript.check
        self._client = thread.client
        self._work = work

    async def read(self) -> None:
        """Show a file, which needs nobody's word."""
        with self._transcript.step("A command that reads"):
            item = await self._command("/exec cat calc.py")
            self._check("the output is the file", item["aggregatedOutput"] == BROKEN)
            shown = item["commandActions"][0]["type"] == "read"
            self._check("clients are shown what it reads", shown)

    async def fail_to_write(self) -> None:
        """Try to write where nothing may be written, and be refused more."""
        with self._transcript.step("A command that may not write"):
            item = await self._command("/exec touch made.txt", answer="decline")
            self._check("it failed", item["status"] == "failed")
            self._check("there is no file", not (self._work / "made.txt").exists())

    async def run_unsandboxed(self) -> None:
        """Ask the user to run a command outside of the sandbox."""
        with self._transcript.step("A command that the user allows"):
            item = await self._command("/outside touch made.txt", answer="accept")
            self._check("it ran", item["status"] == "completed")
            self._check("there is a file", (self._work / "made.txt").exists())

    async def patch(self) -> None:
        """Let the thread write in its folder, and change a file."""
        with self._transcript.step("A patch, now that the thread may write in its folder"):
            await self._client.call(
                "thread/settings/update",
                {
                    "threadId": self._thread.id,
                    "approvalPolicy": "never",
                    "sandboxPolicy": {"type": "workspaceWrite"},
                },
            )
            await self._thread.begin(f"/patch {PATCH}")
            item = (await self._thread.items("fileChange"))[-1]
            self._check("the file was changed", item["status"] == "completed")
            event = await self._client.wait_for("turn/diff/updated", lambda params: True)
            await self._thread.end()
            for line in event["diff"].splitlines():
                self._transcript.say("diff", line)
            self._check("the diff shows it", "+    return a + b" in event["diff"])

    async def run_tests(self) -> None:
        """Run the tests of the repository in the sandbox."""
        with self._transcript.step("The tests of the repository, in the sandbox"):
            python = shlex.quote(sys.executable)
            item = await self._command(f"/exec {python} -B -m unittest -q 2>&1")
            self._check("they pass", item["exitCode"] == 0)

    async def try_to_escape(self, home: Path, url: str) -> None:
        """Try what the sandbox must not allow."""
        with self._transcript.step("Ways out of the sandbox"):
            outside = OUTSIDE / f"app-server-demo-{os.getpid()}"
            await self._refused("a file outside of the folder", f"touch {_quoted(outside)}")
            self._check("it was not made", not outside.exists())
            settings = home / "config.toml"
            await self._refused("the server's settings", f"echo >> {_quoted(settings)}")
            hook = self._work / ".git" / "hooks" / "pre-commit"
            await self._refused("a hook of git", f"touch {_quoted(hook)}")
            link = f"ln -s {OUTSIDE} link && touch link/{outside.name}"
            await self._refused("a link that leads out", link)
            item = await self._command(f"/exec cat {_quoted(home / 'auth.json')}")
            self._check("credentials cannot be read", SECRET not in str(item["aggregatedOutput"]))
            port = url.rsplit(":", 1)[1]
            await self._refused("the network", f"exec 3<>/dev/tcp/127.0.0.1/{port}", "bash")

    async def _refused(self, what: str, line: str, shell: str | None = None) -> None:
        text = line if shell is None else f"{shell} -c {shlex.quote(line)}"
        item = await self._command(f"/exec {text}")
        self._check(f"refused: {what}", item["status"] == "failed")

    async def _command(self, text: str, answer: str | None = None) -> JsonObject:
        """Have the model run a command; gives its item. A question is answered if one is wanted."""
        await self._thread.begin(text)
        if answer is not None:
            request_id, asked = await self._client.asked(ASKED)
            self._transcript.say("server", f"may it run? {asked['reason'] or ''}")
            self._transcript.say("user", answer)
            await self._client.reply(request_id, {"decision": answer})
        item = (await self._thread.items("commandExecution"))[-1]
        self._transcript.say("command", str(item["aggregatedOutput"] or "(no output)"))
        await self._thread.end()
        return item


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
