"""What the terminal client of Codex lists: models, servers, skills, hooks, files, earlier threads.

Source: docs/clients.md, "The terminal client".
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.interop.elsewhere import Serving
from tests.interop.screen import MARK, READY, Terminal, terminal
from tests.interop.terminal_turns import until
from tests.long.real_servers import Report
from tests.support.paths import MCP_PEER

CONFIG = """\
model_provider = "offline"

[projects."{folder}"]
trust_level = "trusted"

[mcp_servers.raw]
command = "{python}"
args = ["{peer}"]

[[hooks.Stop]]
[[hooks.Stop.hooks]]
type = "command"
command = "touch {folder}/stopped"
"""
SKILL = "---\nname: greet\ndescription: Say hello well.\n---\nSay hello.\n"

MENUS: Sequence[tuple[str, Sequence[str]]] = (
    ("/model", ("Select Model and Effort", "Offline stand-in (current)")),
    ("/permissions", ("Update Model Permissions", "Read Only (current)")),
    ("/skills", ("Choose an action", "Enable/Disable Skills")),
    ("/hooks", ("Lifecycle hooks", "PreToolUse")),
    ("/experimental", ("Experimental features", "Network proxy")),
    ("/import", ("No compatible setup was found to import",)),
)
"""What opens a menu, and what is in it."""


async def check_menus(codex: str, serving: Serving, work: Path, report: Report) -> None:
    """Try everything with files in `work`."""
    home, client, folder = work / "home", work / "client", work / "folder"
    for path in (home / "skills" / "greet", client, folder):
        path.mkdir(parents=True)
    (home / "skills" / "greet" / "SKILL.md").write_text(SKILL)
    (folder / "unusual-name.txt").write_text("hello\n")
    config = CONFIG.format(folder=folder, python=sys.executable, peer=MCP_PEER)
    (home / "config.toml").write_text(config)
    async with serving(home) as url:
        with terminal(codex, url, client, folder) as screen:
            with report.check("a new hook is shown before the first turn; trusted, it runs"):
                await screen.shows("Hooks need review")
                await screen.press("2")
                await screen.enter(f"{MARK}2. Trust all and continue")
                await screen.say("hello there")
                await screen.shows("You said: hello there")
                await until((folder / "stopped").exists, "the hook did not run")
            for word, texts in MENUS:
                with report.check(f"{word} shows {texts[-1]}"):
                    await _looks(screen, word, texts)
            with report.check("/status and /mcp show the server and what it has connected"):
                await screen.say("/status")
                await screen.shows(url, "Read Only (Ask for approval)", "Context window")
                await screen.say("/mcp")
                await screen.shows("raw: connected")
            with report.check("@ finds a file of the folder"):
                await screen.shows(READY)
                await screen.press("@unusual")
                await screen.shows("unusual-name.txt")
                await screen.press("Escape", *["BSpace"] * len("@unusual"))
            with report.check("/compact compacts the thread"):
                await screen.say("/compact")
                await screen.shows("Context compacted")
                await screen.quit()
        with (
            report.check("the resume picker lists the thread, and goes on with it"),
            terminal(codex, url, client, folder, "resume") as screen,
        ):
            await screen.shows("Resume a previous", "hello there")
            await screen.press("Enter")
            await screen.say("and again")
            await screen.shows("You said: hello there", "You said: and again")
            await screen.quit()


async def _looks(screen: Terminal, word: str, texts: Sequence[str]) -> None:
    await screen.say(word)
    await screen.shows(*texts)
    await screen.press("Escape")
    await screen.shows(READY)
