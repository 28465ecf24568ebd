"""The terminal client of Codex, `codex --remote`, from its first start on.

python -m tests.interop.terminal [--codex PATH] [--elsewhere]

Starts a server with the offline model, and the client in a terminal of tmux; sends keys and reads
the screen: a fresh home and a folder that is trusted, then known, then one that is not trusted.
With `--elsewhere`, which needs PostgreSQL, the client is at a node that owns none of its threads:
they have two owners.
Prints a line a check, `ok` or `FAIL`, and exits with 1 if there was a failure, with 2 where codex
or tmux is missing. Not part of the tests: both are programs that those do not use.
Source: docs/clients.md, "The terminal client".
"""

import argparse
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

import anyio

from tests.interop.elsewhere import Serving, alone, elsewhere
from tests.interop.screen import MARK, terminal
from tests.interop.terminal_coder import check_coder
from tests.interop.terminal_menus import check_menus
from tests.interop.terminal_turns import check_servers, check_turns
from tests.long.real_servers import Report

PROMPT = "Trust this folder?"

COMMENT = "# the user's own words\n"


def trust_of(home: Path) -> dict[str, str]:
    """Return what config.toml says of folders."""
    config = tomllib.loads((home / "config.toml").read_text())
    return {folder: table["trust_level"] for folder, table in config.get("projects", {}).items()}


async def check_all(codex: str, serving: Serving, work: Path, report: Report) -> None:
    """Try everything with files in `work`."""
    home, client = work / "home", work / "client"
    known, other, refused = work / "known", work / "other", work / "refused"
    for folder in (home, client, known, other, refused):
        folder.mkdir()
    config = home / "config.toml"
    config.write_text(f'{COMMENT}model_provider = "offline"\n')
    async with serving(home) as url:
        with report.check("a fresh folder: the trust prompt is passed, and a turn runs"):
            with terminal(codex, url, client, known) as screen:
                await screen.shows(PROMPT, str(known))
                await screen.enter(f"{MARK}1. Trust and continue")
                await screen.say("hello there")
                await screen.shows("You said: hello there")
                await screen.quit()
            assert trust_of(home) == {str(known): "trusted"}
            assert config.read_text().startswith(COMMENT)
        with (
            report.check("the same folder again: no prompt, a turn, another sandbox"),
            terminal(codex, url, client, known) as screen,
        ):
            await screen.say("/permissions")
            assert PROMPT not in await screen.shows("Update Model Permissions")
            await screen.press("1")
            await screen.say("and again")
            await screen.shows("You said: and again")
            await screen.say("/status")
            await screen.shows("Workspace (Ask for approval)")
            await screen.quit()
        with report.check("a fresh folder that is not trusted: no thread, and nothing is written"):
            with terminal(codex, url, client, refused) as screen:
                await screen.shows(PROMPT)
                await screen.press("2")
                await screen.shows("Agent command center")
            assert trust_of(home) == {str(known): "trusted"}
        with report.check("a folder that is known as untrusted: no prompt, and a turn"):
            with config.open("a") as file:
                file.write(f'\n[projects."{other}"]\ntrust_level = "untrusted"\n')
            with terminal(codex, url, client, other) as screen:
                await screen.say("hello from there")
                await screen.shows("You said: hello from there")
                await screen.quit()
    config.write_text("")
    async with alone(home) as url:
        with (
            report.check("no provider: the client offers to sign in"),
            terminal(codex, url, client, known) as screen,
        ):
            await screen.shows("Sign in with ChatGPT")


def main() -> int:
    """Run all checks."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.terminal")
    parser.add_argument("--codex", default=shutil.which("codex"), metavar="PATH")
    parser.add_argument("--elsewhere", action="store_true")
    options = parser.parse_args()
    codex, serving = options.codex, elsewhere if options.elsewhere else alone
    if codex is None or shutil.which("tmux") is None:
        print("nothing was checked: codex (or --codex PATH) and tmux are needed", file=sys.stderr)
        return 2
    report = Report()
    for check in (check_all, check_turns, check_servers, check_menus, check_coder):
        with tempfile.TemporaryDirectory() as work:
            anyio.run(check, codex, serving, Path(work), report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
