"""The inspector on a phone, and in a narrow window: one thing at a time, and nothing cut off."""

from pathlib import Path

import pytest

from tests.support.clients.inspector import inspect
from tests.support.model import ScriptedModel, says

pytestmark = pytest.mark.browser

VIEWS = ("Requests", "MCP servers", "Apps", "Signals", "Server", "Wire", "Threads")

OUTSIDE = """() => {
  const bar = document.querySelector(".bar");
  const parts = [...bar.querySelectorAll("h1, button, input, select, label")].map((element) => [
    element.textContent || element.placeholder, element.getBoundingClientRect()]);
  const outside = parts.filter(([, box]) => box.left < 0 || box.right > innerWidth);
  const overlapping = parts.filter(([, box], index) => parts.some(([, other], before) =>
    before < index && other.left < box.right && box.left < other.right &&
    other.top < box.bottom && box.top < other.bottom));
  return [...outside, ...overlapping].map(([name]) => name);
}"""
"""What of the heading of a view is outside of the window, or covers something else."""


@pytest.mark.parametrize("width", [360, 700])
async def test_every_view_fits_into_a_narrow_window(tmp_path: Path, width: int) -> None:
    async with inspect(tmp_path) as inspected:
        page = inspected.page
        await page.set_viewport_size({"width": width, "height": 740})
        for view in VIEWS:
            await inspected.go(view)
            await page.get_by_role("heading", name=view, exact=True).wait_for()
            assert await page.evaluate(OUTSIDE) == [], view
            assert await page.evaluate("document.documentElement.scrollWidth") == width, view
            # Its link is in sight, though the line of links is longer than the window.
            link = page.get_by_role("navigation", name="Views").locator("[aria-current]")
            box = await link.bounding_box()
            assert box is not None
            assert 0 <= box["x"] <= box["x"] + box["width"] <= width, view


async def test_list_thread_and_message_take_each_others_place(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.scripts = [says("Well.")]
    async with inspect(tmp_path, model=model) as inspected:
        page = inspected.page
        await page.set_viewport_size({"width": 400, "height": 740})
        threads = page.get_by_role("navigation", name="Threads")
        message = page.get_by_role("textbox", name="Message")
        await inspected.start_thread()
        await inspected.send_message("How are you?")
        await inspected.turn_ends()
        await inspected.show_wire_log()
        rows = await inspected.messages("turn/completed")
        assert not await threads.is_visible()
        await rows.first.click()
        detail = page.get_by_role("region", name="Selected message")
        await detail.get_by_text("JSON").wait_for()
        assert not await message.is_visible()
        await inspected.button("Close").click()
        assert await message.is_visible()
        assert not await detail.is_visible()
        # The keyboard goes on where it was.
        assert await page.evaluate("document.activeElement.role") == "listbox"
        await page.get_by_role("link", name="All threads").click()
        await threads.get_by_role("link", name="How are you?").click()
        await message.wait_for()
