"""The terminal client of Codex in tmux: keys in, the screen out.

Source: docs/clients.md, "The terminal client".
"""

import itertools
import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from tests.support.harness import environment_without

SCREEN_S = 60.0
"""For a text to come onto the screen."""

LOOK_S = 0.1

TYPING_S = 0.5
ENTER_S = 5.0

READY = "Ask Codex to do anything"
_numbers = itertools.count()

MARK = "\u203a "
"""In front of what is typed, and of what is chosen."""


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

    async def answer(self, key: str, question: str) -> None:
        """Press a key until a question has left the screen: keys are not taken at once.

        Raises:
            AssertionError: it stays; with the screen.
        """
        for _ in range(int(SCREEN_S / ENTER_S)):
            await anyio.sleep(TYPING_S)
            await self.press(key)
            with anyio.move_on_after(ENTER_S):
                while question in await self._screen():
                    await anyio.sleep(LOOK_S)
                return
        await self.lacks(question)

    async def lacks(self, text: str) -> None:
        """Wait until a text has left the screen.

        Raises:
            AssertionError: it stays; with the screen.
        """
        screen = ""
        with anyio.move_on_after(SCREEN_S):
            while text in (screen := await self._screen()):
                await anyio.sleep(LOOK_S)
            return
        raise AssertionError(f"{text!r} stays on the screen:\n{screen.strip()}")

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
def terminal(codex: str, url: str, home: Path, folder: Path, *words: str) -> Iterator[Terminal]:
    """Start the client in a folder, with words on its command line; leaving ends it."""
    client = shlex.join([codex, "--remote", url, "-C", str(folder), *words])
    with program(client, folder, CODEX_HOME=str(home)) as screen:
        yield screen


@contextmanager
def program(line: str, folder: Path, **environment: str) -> Iterator[Terminal]:
    """Start a program in a folder, with more variables; leaving ends it."""
    # One that ends takes a moment, and a new one of the same name would end with it.
    name = f"app-server-clients-{os.getpid()}-{next(_numbers)}"
    variables = shlex.join(f"{key}={value}" for key, value in environment.items())
    keep = f"env {variables} {line}; echo EXITED $?; cat"
    subprocess.run(
        ["tmux", "-L", name, "-f", os.devnull, "new-session", "-d", "-x", "120", "-y", "50", keep],
        cwd=folder,
        env=environment_without("OPENAI_API_KEY", "TMUX"),
        timeout=30,
        check=True,
    )
    try:
        yield Terminal(name)
    finally:
        tmux(name, "kill-server")
