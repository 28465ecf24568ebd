"""VS Code, used by keyboard and mouse in a browser: its Codex agent, and extensions.

The extensions are the sample, and "ACP Client", which starts agents that speak the Agent Client
Protocol. code-server is VS Code with its window in a browser; it is built from the same source.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from tests.interop.elsewhere import Serving
from tests.support.clients.browser import open_browser
from tests.support.harness import WAIT_S
from tests.support.processes import running

if TYPE_CHECKING:
    from playwright.async_api import Page

SETTINGS = {
    "workbench.startupEditor": "none",
    "security.workspace.trust.enabled": False,
    "telemetry.telemetryLevel": "off",
}
CODEX_BINARY = "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
"""Where VS Code looks for Codex in `chat.agentHost.codexAgent.sdkRoot`, on Linux with x64."""


PROFILES = """
[permissions.vscode-workspace]
extends = ":workspace"
filesystem = { ":root" = "deny", ":minimal" = "read", ":tmpdir" = "write", ":slash_tmp" = "read" }
network = { enabled = false }

[permissions.vscode-workspace-network]
extends = "vscode-workspace"
network = { enabled = true }

[permissions.vscode-workspace-read-only]
extends = "vscode-workspace"
filesystem = { ":workspace_roots" = { "." = "read" } }
"""
"""Profiles that VS Code gives the server which it starts, and names in requests: the settings of
nodes that it did not start need them."""


class Sample:
    """A window that has the sample extension."""

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


class Chat:
    """A window whose chat is set to Codex."""

    def __init__(self, page: "Page") -> None:
        self.page = page

    async def ask(self, question: str) -> None:
        """Type a question, and send it once the chat takes it."""
        await self.page.locator(".interactive-input-part .monaco-editor").first.click()
        await self.page.keyboard.type(question)
        sent = self.page.locator(".interactive-request").filter(has_text=question)
        with anyio.fail_after(WAIT_S):
            # While it loads the server's models it takes none, and says nothing.
            while not await sent.is_visible():
                await self.page.keyboard.press("Enter")
                await asyncio.sleep(0.5)

    async def choose_codex(self) -> None:
        """Change the chat's agent from the one of this window to Codex."""
        agents = self.page.get_by_role("menu", name="Action Widget")
        codex = agents.get_by_role("menuitemcheckbox", name="Codex")
        with anyio.fail_after(WAIT_S):
            # The list that is open does not get the agents of a host that starts meanwhile.
            while not await codex.is_visible():
                await self.page.keyboard.press("Escape")
                await agents.wait_for(state="hidden")
                await self.page.get_by_role("button", name="Local").click()
                await agents.wait_for()
        await codex.click()
        await self.page.get_by_text("Delegate to @agent-host-codex").wait_for()

    async def allow(self) -> None:
        """Press Allow below the command that is asked about."""
        await self.page.get_by_role("button", name="Allow").first.click()

    async def shows(self, answer: str) -> str:
        """Wait for an answer that has this text, and return it."""
        answers = self.page.locator(".interactive-response .rendered-markdown")
        found = answers.filter(has_text=answer).last
        await found.wait_for()
        text: str = await found.inner_text()
        return text


class AcpChat:
    """A window whose extension "ACP Client" has started the agent `app-server`."""

    def __init__(self, page: "Page") -> None:
        self.page = page
        # A view of an extension is a page of its own, in a frame of a frame.
        self._view = page.frame_locator("iframe.webview.ready").frame_locator("#active-frame")

    async def connect(self) -> None:
        """Start the agent from the list of agents."""
        await self.page.get_by_role("tab", name="ACP Client").click()
        agent = self.page.get_by_role("treeitem", name="app-server")
        await agent.hover()
        await agent.get_by_role("button", name="Connect to Agent").click()
        await self._view.locator("#sessionBanner").filter(has_text="Codex").wait_for()

    async def choose_mode(self, name: str) -> None:
        """Take another mode from the menu below the input."""
        await self._view.locator("#modePickerBtn").click()
        await self._view.locator("#modeDropdown").get_by_text(name, exact=True).click()

    async def ask(self, question: str) -> None:
        """Type a question, and send it."""
        await self._view.locator("#promptInput").fill(question)
        await self._view.locator("#promptInput").press("Enter")

    async def allow(self) -> None:
        """Take the first answer to the question whether a command may run."""
        question = self.page.locator(".quick-input-widget").filter(has_text="Permission Request")
        await question.get_by_text("Yes, proceed").click()

    async def shows(self, answer: str) -> str:
        """Wait for an answer that is complete and has this text, and return it."""
        found = self._view.locator(".message.assistant.md-rendered").filter(has_text=answer)
        await found.wait_for()
        text: str = await found.inner_text()
        return text


@asynccontextmanager
async def acp_client(
    program: str, server: Path, extension: str, work: Path
) -> AsyncIterator[AcpChat]:
    """Open `work`/folder with the file of "ACP Client" installed, and `codex-acp` as an agent.

    The extension looks for programs on the PATH of a login shell, so it gets the whole path.
    """
    adapter = shutil.which("codex-acp")
    assert adapter is not None, "codex-acp is needed"
    variables = {"CODEX_PATH": str(server), "CODEX_HOME": str(work / "home")}
    agents = {"app-server": {"command": adapter, "args": [], "env": variables}}
    words = _words(program, work, {"acp.agents": agents, "chat.disableAIFeatures": True})
    await _install(words, extension)
    async with _window(words, work) as page:
        chat = AcpChat(page)
        await chat.connect()
        yield chat


@asynccontextmanager
async def sample_extension(
    program: str, extension: str, work: Path, serving: Serving | None = None
) -> AsyncIterator[Sample]:
    """Open a folder with an extension's file installed, beside a server that wants a token.

    The server is of the home folder `work`/home, and the folder is `work`/folder. With `serving`
    that is what serves, and it wants no token.
    """
    async with AsyncExitStack() as stack:
        if serving is None:
            token = work / "token"
            options = ("--token-file", str(token))
            server = await stack.enter_async_context(running(work / "home", options=options))
            settings = {"appServer.url": server.urls[0], "appServer.tokenFile": str(token)}
        else:
            url = await stack.enter_async_context(serving(work / "home"))
            settings = {"appServer.url": url}
        words = _words(program, work, settings | {"chat.disableAIFeatures": True})
        await _install(words, extension)
        async with _window(words, work) as page:
            yield Sample(page)


@asynccontextmanager
async def codex_chat(program: str, server: Path, work: Path) -> AsyncIterator[Chat]:
    """Open `work`/folder with the chat set to Codex, whose binary is this server's program."""
    codex = work / "sdk" / CODEX_BINARY
    codex.parent.mkdir(parents=True)
    codex.symlink_to(server)
    settings = {
        "chat.agentHost.codexAgent.enabled": True,
        "chat.agentHost.codexAgent.sdkRoot": str(work / "sdk"),
        "chat.agentHost.codexAgent.codexHome": str(work / "home"),
        "chat.agentHost.allowSignedOutWhenUsable": True,
        "chat.editor.codex.preferAgentHost": True,
    }
    words = (*_words(program, work, settings), "--vscode-option", "agents=true")
    async with _window(words, work) as page:
        chat = Chat(page)
        await chat.choose_codex()
        yield chat


def _words(program: str, work: Path, settings: Mapping[str, object]) -> tuple[str, ...]:
    """Write the settings of a window, and return the command that has them."""
    data = work / "data"
    for place in ("User", "Machine"):
        (data / place).mkdir(parents=True)
        (data / place / "settings.json").write_text(json.dumps({**SETTINGS, **settings}))
    folders = ("--user-data-dir", str(data), "--extensions-dir", str(work / "extensions"))
    return program, "--config", str(work / "code-server.yaml"), *folders


async def _install(words: Sequence[str], extension: str) -> None:
    installing = await asyncio.create_subprocess_exec(
        *words, "--install-extension", extension, stdout=asyncio.subprocess.DEVNULL
    )
    assert await installing.wait() == 0


@asynccontextmanager
async def _window(words: Sequence[str], work: Path) -> AsyncIterator["Page"]:
    folder = work / "folder"
    folder.mkdir()
    async with _serving(words, folder) as url, open_browser() as browser:
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(WAIT_S * 1000)
        await page.goto(url)
        await page.locator(".monaco-workbench .statusbar").wait_for()
        yield page


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
