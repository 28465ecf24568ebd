"""A signal in the inspector, from its dialog through its stages."""

from pathlib import Path

import pytest

from tests.support.clients.inspector import inspect
from tests.support.model import Gate, ScriptedModel, says

pytestmark = pytest.mark.browser


async def test_a_signal_is_sent_and_followed_through_its_stages(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    script = says("I have seen it.")
    model.scripts = [[gate, *script]]
    async with inspect(tmp_path, model=model) as inspected:
        page = inspected.page
        await inspected.start_thread()
        await inspected.go("Signals")
        await inspected.sees("No signals")
        await inspected.button("Send a signal").click()
        await page.get_by_label("What the model reads").fill("Is the build green?")
        await inspected.button("Send").click()
        stages = page.get_by_role("list")
        await page.get_by_role("list", name="Stage: in history").wait_for()
        await gate.wait_until_reached()
        gate.opened.set()
        await page.get_by_role("list", name="Stage: answered").wait_for()
        reached = stages.locator("li.reached")
        assert await reached.all_inner_texts() == ["accepted", "in history", "seen", "answered"]
        await inspected.sees("woke the thread")
    assert "> Is the build green?" in model.inputs()[-1][1]


async def test_an_unseen_signal_is_recalled(tmp_path: Path) -> None:
    async with inspect(tmp_path) as inspected:
        page = inspected.page
        await inspected.start_thread()
        await inspected.go("Signals")
        await inspected.button("Send a signal").click()
        await page.get_by_label("What the model reads").fill("Never mind")
        await page.get_by_label("Mode", exact=True).select_option("passive")
        await inspected.button("Send").click()
        await inspected.button("Recall").click()
        await page.get_by_role("list", name="Stage: recalled").wait_for()
        await inspected.button("Recall").wait_for(state="detached")
