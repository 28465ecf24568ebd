"""A real browser for tests of pages: Chromium without a window, driven by playwright.

Tests that use it are marked `browser`; `.ci/inspector` installs what they need. playwright is
imported here alone, and late, because the other tests are run without it.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

from tests.support.harness import WAIT_S

if TYPE_CHECKING:
    from playwright.async_api import Browser, ConsoleMessage, Page

CHROMIUM = "CHROMIUM"
"""The environment variable that names another Chromium."""
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """Find the browser's program; None leaves that to playwright."""
    found = (shutil.which(name) for name in NAMES)
    return os.environ.get(CHROMIUM) or next((path for path in found if path), None)


@asynccontextmanager
async def open_browser(*arguments: str) -> AsyncIterator["Browser"]:
    """Run a browser, with more arguments on its command line, while the context lasts."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        # The pages are our own, and Chromium's sandbox does not work for root.
        browser = await playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", *arguments]
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def open_page(
    browser: "Browser",
    url: str,
    *,
    size: tuple[int, int] = (1280, 800),
    color_scheme: Literal["light", "dark"] = "light",
) -> AsyncIterator["Page"]:
    """Show a page; errors of its scripts, and what its policy refuses, fail the test."""
    width, height = size
    page = await browser.new_page(
        viewport={"width": width, "height": height}, color_scheme=color_scheme
    )
    page.set_default_timeout(WAIT_S * 1000)
    errors: list[str] = []

    def on_console(message: "ConsoleMessage") -> None:
        # Browsers also write every failed connection there, and pages are for failures too.
        if message.type == "error" and "WebSocket connection" not in message.text:
            errors.append(message.text)

    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", on_console)
    await page.goto(url)
    yield page
    assert errors == []
