"""The inspector without a mouse, and what assistive programs are told."""

from pathlib import Path

import pytest

from tests.support.clients.inspector import inspect
from tests.support.model import ScriptedModel, calls, says

pytestmark = pytest.mark.browser

FOCUSED = """() => {
  const element = document.activeElement;
  const { outlineStyle, outlineWidth } = getComputedStyle(element);
  const name = element.getAttribute("aria-label") ?? element.textContent.trim();
  return [element.tagName.toLowerCase(), name, outlineStyle, outlineWidth];
}"""

FITS = """() => {
  // Panes scroll, and the page itself does not.
  const { scrollWidth, scrollHeight } = document.documentElement;
  return scrollWidth <= innerWidth && scrollHeight <= innerHeight;
}"""

UNNAMED = """() => [...document.querySelectorAll("button, a, input, select, textarea, [role]")]
  .filter((element) => element.checkVisibility())
  .filter((element) => !element.matches("[role=presentation], [role=alert]"))
  .filter((element) => !(element.getAttribute("aria-label") || element.textContent.trim()
    || element.labels?.length || element.getAttribute("aria-labelledby")))
  .map((element) => element.outerHTML)"""


async def test_a_thread_is_run_by_the_keyboard_alone(tmp_path: Path) -> None:
    model = ScriptedModel()
    arguments = {"cmd": "true", "sandbox_permissions": "require_escalated"}
    model.scripts = [calls({"name": "exec_command", "arguments": arguments}), says("Done.")]
    async with inspect(tmp_path, model=model) as inspected:
        page, keyboard = inspected.page, inspected.page.keyboard
        await keyboard.press("n")
        await page.get_by_role("dialog", name="New thread").wait_for()
        await keyboard.press("Enter")
        await page.get_by_role("textbox", name="Message").wait_for()
        await keyboard.press("c")
        await keyboard.type("Run it")
        await keyboard.press("Control+Enter")
        await inspected.sees("Run this command?")
        # Escape leaves the field, so that keys are commands again; none of them approves.
        await keyboard.press("Escape")
        await keyboard.press("2")
        await page.get_by_role("heading", name="Requests").wait_for()
        for _ in range(40):
            await keyboard.press("Tab")
            if (await page.evaluate(FOCUSED))[1] == "Approve":
                break
        assert await page.evaluate(FOCUSED) == ["button", "Approve", "solid", "2px"]
        await keyboard.press("Enter")
        await inspected.sees("Nothing is asked")
        await keyboard.press("1")
        await page.get_by_role("link", name="Run it").focus()
        await keyboard.press("Enter")
        await inspected.turn_ends()
        await inspected.show_wire_log()
        await inspected.messages("turn/completed")
        await keyboard.press("m")
        await keyboard.press("End")
        await keyboard.press("ArrowUp")
        await keyboard.press("k")
        selected = page.get_by_role("option", selected=True)
        listed = page.get_by_role("listbox")
        place = int(await selected.get_attribute("aria-posinset") or 0)
        assert place == int(await selected.get_attribute("aria-setsize") or 0) - 2
        assert await listed.get_attribute("aria-activedescendant") == await selected.get_attribute(
            "id"
        )


async def test_keys_are_listed_and_can_be_switched_off(tmp_path: Path) -> None:
    async with inspect(tmp_path) as inspected:
        page, keyboard = inspected.page, inspected.page.keyboard
        await keyboard.press("?")
        dialog = page.get_by_role("dialog", name="Keys")
        assert "Write to the thread" in await dialog.inner_text()
        await dialog.get_by_role("checkbox").uncheck()
        await keyboard.press("Escape")
        await dialog.wait_for(state="detached")
        await keyboard.press("7")
        await keyboard.press("n")
        await inspected.button("Keys ?").click()
        await dialog.get_by_role("checkbox").check()
        await keyboard.press("Escape")
        assert page.url.endswith("#/threads")
        await keyboard.press("7")
        await page.get_by_role("heading", name="Wire").wait_for()


async def test_every_control_has_a_name_in_every_view(tmp_path: Path) -> None:
    async with inspect(tmp_path) as inspected:
        page = inspected.page
        await inspected.start_thread()
        assert await page.evaluate(UNNAMED) == []
        for key in "234567":
            await page.keyboard.press("Escape")
            await page.keyboard.press(key)
            await page.locator(f'nav a[aria-current="page"][title$="({key})"]').wait_for()
            assert await page.evaluate(UNNAMED) == []
            assert await page.evaluate(FITS)


async def test_the_theme_is_chosen_and_kept(tmp_path: Path) -> None:
    colour = "() => getComputedStyle(document.body).backgroundColor"
    async with inspect(tmp_path) as inspected:
        page = inspected.page
        light = await page.evaluate(colour)
        await inspected.button("System theme").click()
        await inspected.button("Light theme").click()
        assert await page.evaluate(colour) == "rgb(16, 19, 25)" != light
        await page.reload()
        await inspected.button("Dark theme").wait_for()
        assert await page.evaluate(colour) == "rgb(16, 19, 25)"
