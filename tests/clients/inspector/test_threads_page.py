"""Threads in the inspector, clicked through in a browser against a real server."""

from pathlib import Path

import pytest

from tests.support.clients.inspector import inspect
from tests.support.model import Gate, ScriptedModel, calls, says

pytestmark = pytest.mark.browser


async def test_a_turn_is_run_and_read(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.scripts = [says("Hel", "lo ", "there", ".")]
    async with inspect(tmp_path, model=model) as inspected:
        page = inspected.page
        await inspected.sees("No threads yet")
        await inspected.start_thread()
        await inspected.send_message("Good morning")
        await inspected.show_wire_log()
        completed = await inspected.messages("turn/completed")
        assert await completed.count() == 1
        deltas = await inspected.messages("item/agentMessage/delta")
        # Four deltas of one text are one row, with what they say together.
        assert await deltas.count() == 1
        method, summary, count = await deltas.locator(".method, .summary, .note").all_inner_texts()
        assert (method, summary, count) == (
            "item/agentMessage/delta",
            "Hello there.",
            "\N{MULTIPLICATION SIGN}4",
        )
        await deltas.click()
        selected = page.get_by_role("region", name="Selected message")
        assert "4 messages" in await selected.inner_text()
        assert "Hello there." in await selected.inner_text()
        await inspected.button("Fold deltas").click()
        await deltas.nth(3).wait_for()
        link = page.get_by_role("navigation", name="Threads").get_by_role("link")
        assert "Good morning" in await link.inner_text()
        assert "idle" in await link.inner_text()
    assert model.inputs() == [("user", "Good morning")]


async def test_a_running_turn_is_interrupted(tmp_path: Path) -> None:
    model, gate = ScriptedModel(), Gate()
    model.scripts = [[*says("a")[:2], gate]]
    async with inspect(tmp_path, model=model) as inspected:
        await inspected.start_thread()
        await inspected.send_message("Think")
        await gate.wait_until_reached()
        await inspected.button("Interrupt").click()
        await inspected.turn_ends("interrupted")
        await inspected.button("Interrupt").wait_for(state="hidden")
        gate.opened.set()


async def test_a_command_is_approved_beside_its_thread(tmp_path: Path) -> None:
    model = ScriptedModel()
    arguments = {"cmd": "echo hi", "sandbox_permissions": "require_escalated"}
    model.scripts = [calls({"name": "exec_command", "arguments": arguments}), says("Done.")]
    async with inspect(tmp_path, model=model) as inspected:
        await inspected.start_thread()
        await inspected.send_message("Run it")
        await inspected.sees("Run this command?")
        await inspected.button("Approve").click()
        await inspected.turn_ends()
        assert await inspected.page.get_by_role("heading", name="Run this command?").count() == 0
    assert "hi" in model.items()[-1]["output"]


async def test_what_other_clients_do_is_seen_as_it_happens(tmp_path: Path) -> None:
    async with inspect(tmp_path) as inspected, inspected.served.client() as client:
        thread_id = await client.start_thread()
        await inspected.page.get_by_role("link", name="Empty thread").click()
        await inspected.show_wire_log()
        await inspected.messages("thread/resume")
        await client.turn(thread_id, "from elsewhere")
        await inspected.messages("turn/completed")
        await inspected.page.get_by_role("heading", name="from elsewhere").wait_for()


async def test_the_server_searches_all_threads_also_archived_ones(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.scripts = [says("The word is rhubarb, they said."), says("Nothing of that kind.")]
    async with inspect(tmp_path, model=model) as inspected, inspected.served.client() as client:
        page = inspected.page
        with_word = await client.start_thread()
        await client.turn(with_word, "The first question")
        await client.turn(await client.start_thread(), "The second question")
        for number in range(60):
            thread_id = await client.start_thread()
            await client.call(
                "thread/name/set", {"threadId": thread_id, "name": f"Filler {number}"}
            )
        links = page.get_by_role("navigation", name="Threads").get_by_role("link")
        search = page.get_by_role("searchbox", name="Search threads")
        # It looks at what was said, not only at what the page has listed.
        await search.fill("rhubarb")
        await links.nth(1).wait_for(state="detached")
        assert "rhubarb" in await links.inner_text()
        await client.call("thread/archive", {"threadId": with_word})
        await search.fill("")
        await page.get_by_label("Archived").check()
        await links.nth(1).wait_for(state="detached")
        assert "The first question" in await links.inner_text()
        await page.get_by_label("Archived").uncheck()
        # The list is one stop of Tab.
        await links.nth(10).wait_for()
        await search.focus()
        stops = []
        for key in ("Tab", "Tab", "ArrowDown", "End", "Tab"):
            await page.keyboard.press(key)
            stops.append(await page.evaluate("document.activeElement.tagName"))
        assert stops[:4] == ["INPUT", "A", "A", "A"]
        assert stops[4] != "A"


async def test_an_older_thread_is_shown_with_its_history(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.scripts = [says("An answer of before.")]
    async with inspect(tmp_path, model=model) as inspected, inspected.served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "A question of before")
        await inspected.page.get_by_role("link", name="A question of before").click()
        (entry,) = await (await inspected.entries("Agent")).all()
        assert "An answer of before." in await entry.inner_text()
        await inspected.show_wire_log()
        (row,) = await (await inspected.messages("agentMessage")).all()
        assert "An answer of before." in await row.inner_text()


async def test_earlier_turns_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    async with inspect(tmp_path) as inspected, inspected.served.client() as client:
        thread_id = await client.start_thread()
        for number in range(25):
            await client.turn(thread_id, f"turn number {number}")
        await inspected.page.get_by_role("link", name="turn number 0").click()
        await inspected.show_wire_log()
        await inspected.messages("turn number 24")
        rows = inspected.page.get_by_role("option")
        await inspected.page.get_by_role("searchbox", name="Filter messages").fill("userMessage")
        # 20 turns, and the answer that they came in.
        await inspected.sees("21 rows")
        await inspected.button("Earlier turns").click()
        await inspected.sees("27 rows")
        await inspected.button("Earlier turns").wait_for(state="hidden")
        await rows.filter(has_text="turn number 10").wait_for()
        await inspected.page.get_by_role("listbox").focus()
        await inspected.page.keyboard.press("Home")
        await rows.filter(has_text="turn number 0").wait_for()
