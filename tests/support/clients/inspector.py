"""The inspector's page in a browser, beside a server under test."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app_server.clients.inspector.run import serve_inspector
from app_server.peer.address import ServerAddress
from app_server.transport.address import UnixAddress
from tests.support.clients.browser import open_browser, open_page
from tests.support.harness import Served, serve

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page


@dataclass
class InspectorPage:
    """The page that looks into a server."""

    page: "Page"

    async def start_thread(self) -> None:
        """Start a thread by the dialog, and wait until the page shows it."""
        await self.button("New thread").click()
        await self.button("Start").click()
        await self.page.get_by_role("textbox", name="Message").wait_for()

    async def send_message(self, text: str) -> None:
        """Send a message to the thread that is shown, by the keyboard."""
        await self.page.get_by_role("textbox", name="Message").fill(text)
        await self.page.keyboard.press("Control+Enter")

    async def show_wire_log(self) -> None:
        """Show the messages of the thread, in the place of its transcript."""
        await self.page.get_by_role("tab", name="Wire log").click()
        await self.page.get_by_role("listbox", name="Messages of the thread").wait_for()

    async def entries(self, name: str) -> "Locator":
        """Wait for entries of the transcript with this name, and return them."""
        entries = self.page.get_by_role("feed").get_by_role("article", name=name, exact=True)
        await entries.first.wait_for()
        return entries

    async def turn_ends(self, status: str = "completed") -> None:
        """Wait until a turn of the transcript has ended so."""
        turns = await self.entries("Turn")
        await turns.filter(has_text=status).first.wait_for()

    async def messages(self, text: str) -> "Locator":
        """Wait for rows of the list of messages that is shown, and return those with a text."""
        rows = self.page.get_by_role("option").filter(has_text=text)
        await rows.first.wait_for()
        return rows

    async def is_titled(self, text: str) -> None:
        """Wait until the page's title begins so; within the page, whose policy evaluates once."""
        await self.page.evaluate(
            "text => new Promise((found) => { const look = () =>"
            " document.title.startsWith(text) ? found() : setTimeout(look, 20); look(); })",
            text,
        )

    async def go(self, view: str) -> None:
        """Show a view, by its link."""
        views = self.page.get_by_role("navigation", name="Views")
        # The number of what waits there stands behind it.
        await views.get_by_role("link", name=re.compile(rf"^{view}\b")).click()

    def button(self, name: str) -> "Locator":
        """Find a button by its whole label."""
        return self.page.get_by_role("button", name=name, exact=True)

    async def sees(self, text: str) -> None:
        """Wait until a text is on the page."""
        await self.page.get_by_text(text).first.wait_for()


@dataclass
class Inspected(InspectorPage):
    """The page that looks into a server under test."""

    served: Served


@asynccontextmanager
async def inspect(home: Path, **options: Any) -> AsyncIterator[Inspected]:
    """Run a server and show its inspector, connected, while the context lasts."""
    async with (
        serve(home, **options) as served,
        inspector_page(ServerAddress(served.urls[0])) as page,
    ):
        await page.get_by_text("connected", exact=True).wait_for()
        yield Inspected(page, served)


@asynccontextmanager
async def inspector_page(upstream: ServerAddress, **options: Any) -> AsyncIterator["Page"]:
    """Show the inspector of a server that may be there or not."""
    async with (
        serve_inspector(upstream) as inspector,
        open_browser() as browser,
        open_page(browser, inspector.url, **options) as page,
    ):
        yield page


def socket_in(home: Path) -> UnixAddress:
    """Return an address that a server of this home can have again after a restart."""
    return UnixAddress(home / "inspected.sock")
