"""The sample extension in VS Code, used with keyboard and mouse in a browser.

code-server is VS Code with its window in a browser; it is built from the same source.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from tests.support.browser import open_browser
from tests.support.harness import WAIT_S
from tests.support.processes import running

if TYPE_CHECKING:
    from playwright.async_api import Page

SETTINGS = {
    "workbench.startupEditor": "none",
    "security.workspace.trust.enabled": False,
    "telemetry.telemetryLevel": "off",
    "chat.disableAIFeatures": True,
}


class Window:
    """A window of VS Code that has the sample extension."""

    def __init__(self, page: "Page") -> None:
        self.page = page

    async def ask(self, question: str) -> None:
        """Run the sample's command from the list of commands, and type a question."""
        box = self.page.locator(".quick-input-widget input")
        command = self.page.locator(".quick-input-list").get_by_text("App Server: Ask")
        nothing = self.page.locator(".quick-input-list").get_by_text("No matching commands")
        with anyio.fail_after(WAIT_S):
            # The list that is open does not get the commands of extensions that load meanwhile.
            while not await command.is_visible():
                await self.page.keyboard.press("Escape")
                await self.page.keyboard.press("F1")
                await box.fill(">App Server: Ask")
                await command.or_(nothing).wait_for()
        await command.click()
        await self.page.get_by_text("What should the agent do?").wait_for()
        await box.fill(question)
        await self.page.keyboard.press("Enter")

    async def allow(self, question: str) -> None:
        """Press Allow in a dialog with this text."""
        dialog = self.page.get_by_role("dialog").filter(has_text=question)
        await dialog.get_by_role("button", name="Allow", exact=True).click()

    async def shows(self, last_line: str) -> str:
        """Wait for a line of the output channel, and return all lines."""
        lines = self.page.locator(".part.panel .view-line")
        await lines.filter(has_text=last_line).wait_for()
        # Spaces that do not break are how the editor draws spaces.
        return "\n".join(await lines.all_inner_texts()).replace("\xa0", " ").strip()


@asynccontextmanager
async def vscode(program: str, extension: str, work: Path) -> AsyncIterator[Window]:
    """Open a folder in VS Code with an extension, beside a server that wants a token.

    The server is of the home folder `work`/home.
    """
    home, data, token = work / "home", work / "data", work / "token"
    async with running(home, options=("--token-file", str(token))) as server:
        settings = SETTINGS | {"appServer.url": server.urls[0], "appServer.tokenFile": str(token)}
        for place in ("User", "Machine"):
            (data / place).mkdir(parents=True)
            (data / place / "settings.json").write_text(json.dumps(settings))
        folders = ("--user-data-dir", str(data), "--extensions-dir", str(work / "extensions"))
        words = (program, "--config", str(work / "code-server.yaml"), *folders)
        installing = await asyncio.create_subprocess_exec(
            *words, "--install-extension", extension, stdout=asyncio.subprocess.DEVNULL
        )
        assert await installing.wait() == 0
        async with _serving(words, work) as url, open_browser() as browser:
            page = await browser.new_page(viewport={"width": 1280, "height": 800})
            page.set_default_timeout(WAIT_S * 1000)
            await page.goto(url)
            await page.locator(".monaco-workbench .statusbar").wait_for()
            yield Window(page)


@asynccontextmanager
async def _serving(words: Sequence[str], folder: Path) -> AsyncIterator[str]:
    """Run code-server on loopback and yield the address of a window with the folder."""
    options = ("--auth", "none", "--bind-addr", "127.0.0.1:0", "--disable-update-check")
    process = await asyncio.create_subprocess_exec(
        *(*words, *options, str(folder)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        with anyio.fail_after(WAIT_S):
            async for line in process.stdout:
                if found := re.search(rb"listening on (http://\S+)", line):
                    break
            else:
                raise AssertionError("code-server ended")
        yield f"{found[1].decode()}?folder={folder}"
    finally:
        # It has children of its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()
