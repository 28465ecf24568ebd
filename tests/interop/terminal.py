"""The terminal client of Codex, `codex --remote`, from its first start on.

python -m tests.interop.terminal [--codex PATH]

Starts a server with the offline model, and the client in a terminal of tmux; sends keys and reads
the screen: a fresh home and a folder that is trusted, then known, then one that is not trusted.
Prints a line a check, `ok` or `FAIL`, and exits with 1 if there was a failure, with 2 where codex
or tmux is missing. Not part of the tests: both are programs that those do not use.
Source: docs/clients.md, "The terminal client".
"""

import argparse
import itertools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from app_server.clients.demo.process import start_server
from tests.long.real_servers import Report
from tests.support.harness import environment_without

SCREEN_S = 60.0
"""For a text to come onto the screen."""

LOOK_S = 0.1

TYPING_S = 0.5
ENTER_S = 5.0

PROMPT = "Trust this folder?"
READY = "Ask Codex to do anything"
_numbers = itertools.count()

MARK = "\u203a "
"""In front of what is typed, and of what is chosen."""

COMMENT = "# the user's own words\n"


class Terminal:
    """A client in a terminal of a tmux server of its own."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def shows(self, *texts: str) -> str:
        """Wait until all texts are on the screen, and return it.

        Raises:
            AssertionError: they do not come; with the screen.
        """
        screen = ""
        with anyio.move_on_after(SCREEN_S):
            while True:
                screen = await self._screen()
                if all(text in screen for text in texts):
                    return screen
                await anyio.sleep(LOOK_S)
        raise AssertionError(f"{texts} not on the screen:\n{screen.strip()}")

    async def press(self, *keys: str) -> None:
        """Send keys, named as tmux names them, or texts."""
        for key in keys:
            await self._tmux("send-keys", key)

    async def say(self, text: str) -> None:
        """Type a line once the client takes input, and send it."""
        await self.shows(READY)
        await self.press(text)
        await self.shows(text)
        await self.enter(f"{MARK}{text}")

    async def enter(self, line: str) -> None:
        """Press Enter until the last line with a mark is another one.

        The client takes what comes fast for a paste, and Enter for a part of it; on a busy machine
        everything may be fast.

        Raises:
            AssertionError: it stays; with the screen.
        """
        screen = ""
        for _ in range(int(SCREEN_S / ENTER_S)):
            await anyio.sleep(TYPING_S)
            await self.press("Enter")
            with anyio.move_on_after(ENTER_S):
                while _marked(screen := await self._screen()) == line:
                    await anyio.sleep(LOOK_S)
                return
        raise AssertionError(f"{line!r} stays on the screen:\n{screen.strip()}")

    async def _screen(self) -> str:
        return await self._tmux("capture-pane", "-p", "-J")

    async def quit(self) -> None:
        """Leave the client as users do."""
        await self.say("/quit")
        await self.shows("EXITED 0")

    async def _tmux(self, *words: str) -> str:
        return await anyio.to_thread.run_sync(tmux, self._name, *words)


def tmux(name: str, *words: str) -> str:
    """Run a command of tmux on a server of this name."""
    command = ["tmux", "-L", name, "-f", os.devnull, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout


def _marked(screen: str) -> str:
    lines = [line.strip() for line in screen.splitlines()]
    return next((line for line in reversed(lines) if line.startswith(MARK)), "")


@contextmanager
def terminal(codex: str, url: str, home: Path, folder: Path) -> Iterator[Terminal]:
    """Start the client in a folder; leaving ends it."""
    # One that ends takes a moment, and a new one of the same name would end with it.
    name = f"app-server-clients-{os.getpid()}-{next(_numbers)}"
    client = shlex.join([codex, "--remote", url, "-C", str(folder)])
    keep = f"env CODEX_HOME={shlex.quote(str(home))} {client}; echo EXITED $?; cat"
    subprocess.run(
        ["tmux", "-L", name, "-f", os.devnull, "new-session", "-d", "-x", "120", "-y", "50", keep],
        env=environment_without("OPENAI_API_KEY", "TMUX"),
        timeout=30,
        check=True,
    )
    try:
        yield Terminal(name)
    finally:
        tmux(name, "kill-server")


def trust_of(home: Path) -> dict[str, str]:
    """Return what config.toml says of folders."""
    config = tomllib.loads((home / "config.toml").read_text())
    return {folder: table["trust_level"] for folder, table in config.get("projects", {}).items()}


async def check_all(codex: str, work: Path, report: Report) -> None:
    """Try everything with files in `work`."""
    home, client = work / "home", work / "client"
    known, other, refused = work / "known", work / "other", work / "refused"
    for folder in (home, client, known, other, refused):
        folder.mkdir()
    config = home / "config.toml"
    config.write_text(f'{COMMENT}model_provider = "offline"\n')
    async with start_server(home) as server:
        with report.check("a fresh folder: the trust prompt is passed, and a turn runs"):
            with terminal(codex, server.url, client, known) as screen:
                await screen.shows(PROMPT, str(known))
                await screen.enter(f"{MARK}1. Trust and continue")
                await screen.say("hello there")
                await screen.shows("You said: hello there")
                await screen.quit()
            assert trust_of(home) == {str(known): "trusted"}
            assert config.read_text().startswith(COMMENT)
        with (
            report.check("the same folder again: no prompt, a turn, another sandbox"),
            terminal(codex, server.url, client, known) as screen,
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
            with terminal(codex, server.url, client, refused) as screen:
                await screen.shows(PROMPT)
                await screen.press("2")
                await screen.shows("Agent command center")
            assert trust_of(home) == {str(known): "trusted"}
        with report.check("a folder that is known as untrusted: no prompt, and a turn"):
            with config.open("a") as file:
                file.write(f'\n[projects."{other}"]\ntrust_level = "untrusted"\n')
            with terminal(codex, server.url, client, other) as screen:
                await screen.say("hello from there")
                await screen.shows("You said: hello from there")
                await screen.quit()
    config.write_text("")
    async with start_server(home) as server:
        with (
            report.check("no provider: the client offers to sign in"),
            terminal(codex, server.url, client, known) as screen,
        ):
            await screen.shows("Sign in with ChatGPT")


def main() -> int:
    """Run all checks."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.terminal")
    parser.add_argument("--codex", default=shutil.which("codex"), metavar="PATH")
    codex = parser.parse_args().codex
    if codex is None or shutil.which("tmux") is None:
        print("nothing was checked: codex (or --codex PATH) and tmux are needed", file=sys.stderr)
        return 2
    report = Report()
    with tempfile.TemporaryDirectory() as work:
        anyio.run(check_all, codex, Path(work), report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
