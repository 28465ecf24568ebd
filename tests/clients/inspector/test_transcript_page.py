"""A thread as a conversation, in a browser: read by somebody who sees nothing but this page."""

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.clients.inspected_turn import PNG, QUESTION, call, whole_turn
from tests.support.clients.inspector import Inspected, inspect
from tests.support.harness import stdio_server
from tests.support.model import Gate, ScriptedModel, says

if TYPE_CHECKING:
    from playwright.async_api import Locator

pytestmark = pytest.mark.browser

CONFIG = stdio_server("peer") + "[features]\ndefault_mode_request_user_input = true\n"


async def open_thread(inspected: Inspected, cwd: Path, **params: object) -> str:
    """Start a thread in which everything is allowed, and show it."""
    cwd.mkdir(exist_ok=True)
    async with inspected.served.client() as client:
        allowed = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
        thread_id = await client.start_thread(cwd=str(cwd), **{**allowed, **params})
        await inspected.page.evaluate(f"location.hash = '#/threads/{thread_id}'")
        await inspected.page.get_by_role("tab", name="Transcript").wait_for()
    return thread_id


def until(condition: str) -> str:
    """Write a function that waits, frame by frame, until something is true of an element `f`."""
    return f"""(f) => new Promise((done) => {{
      const look = () => (({condition}) ? done() : requestAnimationFrame(look));
      look();
    }})"""


async def only(entries: "Locator") -> str:
    """Return the text of the only entry."""
    texts: list[str] = await entries.all_inner_texts()
    (text,) = texts
    return text


async def test_a_whole_turn_is_read_as_a_conversation(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.scripts = whole_turn()
    async with inspect(tmp_path / "home", model=model, config=CONFIG) as inspected:
        page = inspected.page
        await open_thread(inspected, tmp_path / "work")
        await inspected.send_message("Why does the last line vanish?")
        await inspected.turn_ends()
        turn = await only(await inspected.entries("Turn"))
        assert re.search(r"completed\s+[\d:]{8} · in .* · 60 tokens in, 30 out", turn), turn
        assert "Why does the last line vanish?" in await only(await inspected.entries("You"))

        times = (await inspected.entries("Turn")).locator("summary")
        assert re.fullmatch(
            r"Model .* \(\d+ %\) · Tools .* \(\d+ %\) · Commands .* \(\d+ %\)",
            await times.inner_text(),
        )
        await times.click()
        bars = page.get_by_role("img", name=re.compile("^Commands: 3 times, together"))
        assert await bars.locator("span").count() == 3
        assert "seq 1 40" in (await bars.locator("span").first.get_attribute("title") or "")

        reasoning = await inspected.entries("Reasoning")
        assert "I run the tests first." not in await only(reasoning)
        await reasoning.locator("summary").click()
        await reasoning.get_by_text("I run the tests first.").wait_for()

        steps = await inspected.entries("Steps")
        assert await steps.get_by_role("listitem").all_text_contents() == [
            "✓ Run the tests, completed",
            "▸ Mend the parser, inProgress",
            "· Say what was done, pending",
        ]

        (command,) = await (await inspected.entries("Command")).all()
        head = await command.locator("header").inner_text()
        assert re.search(r"exit 3\s+[\d:]{8} · \d", head), head
        output = command.get_by_label("Output")
        assert "passed" not in await output.inner_text()
        await command.get_by_role("button", name="Show all 42 lines").click()
        assert (await output.inner_text()).startswith("passed 12 tests\nFAILED test_parse.py\n1\n")
        assert await output.locator(".ansi-green.bold").inner_text() == "passed"
        assert await output.locator(".ansi-red").inner_text() == "FAILED"

        added, changed = await (await inspected.entries("Patch")).all()
        assert "+2" in await added.inner_text()
        rows = await changed.get_by_role("row").all_inner_texts()
        assert [row.split("\t") for row in rows] == [
            ["@@ -1,2 +1,2 @@"],
            ["1", "1", " ", "def lines(text: str) -> list[str]:"],
            ["2", "", "-", '    return text.split("\\n")'],
            ["", "2", "+", '    return text.removesuffix("\\n").split("\\n")'],
        ]

        tool = await only(await inspected.entries("Tool"))
        assert "peer.structured" in tool
        assert '{"what":"hello"}' in tool
        assert '{"a":[2],"b":1}' in tool or '{"b":1,"a":[2]}' in tool

        answer = await inspected.entries("Agent")
        assert await answer.get_by_role("heading", name="What I found").is_visible()
        assert await answer.locator("strong").inner_text() == "last line"
        assert 'return text.split("\\n")' in await answer.get_by_label("Code, python").inner_text()
        cells = answer.get_by_role("table").get_by_role("cell")
        assert await cells.all_inner_texts() == ["parse.py", "12", "14"]
        # HTML and links to scripts are texts; a link leads out of this page.
        assert "<script>alert(1)</script>" in await answer.inner_text()
        (link,) = await answer.get_by_role("link").all()
        assert await link.get_attribute("href") == "https://example.com/guide"
        assert await link.get_attribute("rel") == "noopener noreferrer"


async def test_what_turns_have_used_stands_below_each_other(tmp_path: Path) -> None:
    prices = """
[model_prices.scripted]
currency = "EUR"
in = 1000
cached = 1000
out = 2000
"""
    model = ScriptedModel()
    model.scripts = [says("One."), says("Two.")]
    async with inspect(tmp_path, model=model, config=prices) as inspected:
        await inspected.start_thread()
        for text in ("First", "Second"):
            await inspected.send_message(text)
            await (await inspected.entries("You")).filter(has_text=text).wait_for()
            await inspected.turn_ends()
        turns = await inspected.entries("Turn")
        await turns.nth(1).get_by_text("10 tokens in, 5 out · 0.02 EUR").wait_for()
        # The model has given both of its messages the same id.
        said = await (await inspected.entries("Agent")).locator("p").all_inner_texts()
        assert said == ["One.", "Two."]
        await inspected.page.get_by_role("tab", name="Usage").click()
        usage = inspected.page.get_by_role("group", name="Usage of the turns")
        await usage.get_by_role("link").nth(1).wait_for()
        rows = await usage.get_by_role("row").all_inner_texts()
        assert [row.split("\t")[1:4] for row in rows[1:]] == [
            ["10", "2", "5"],
            ["10", "2", "5"],
            ["20", "4", "10"],
        ]
        assert [row.split("\t")[5] for row in rows[1:]] == ["0.02 EUR", "0.02 EUR", "0.04 EUR"]
        await usage.get_by_role("link").first.click()
        await inspected.page.locator("article.marked").wait_for()


async def test_a_thread_of_before_reads_the_same_and_an_entry_has_an_address(
    tmp_path: Path,
) -> None:
    model = ScriptedModel()
    model.scripts = whole_turn()
    async with inspect(tmp_path / "home", model=model, config=CONFIG) as inspected:
        page = inspected.page
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await open_thread(inspected, tmp_path / "work")
        await inspected.send_message("Why does the last line vanish?")
        await inspected.turn_ends()
        patch = (await inspected.entries("Patch")).nth(1)
        await patch.hover()
        await patch.get_by_role("button", name="Copy", exact=True).click()
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert '+    return text.removesuffix("\\n").split("\\n")' in copied
        await patch.get_by_role("button", name="Copy link").click()
        address = await page.evaluate("navigator.clipboard.readText()")
        await page.goto(address)
        await page.reload()
        marked = page.locator("article.marked")
        await marked.wait_for()
        assert "removesuffix" in await marked.inner_text()
        assert await page.evaluate("document.activeElement.className.includes('marked')")
        for name, text in {
            "Turn": "60 tokens in, 30 out",
            "You": "Why does the last line vanish?",
            "Command": "exit 3",
            "Tool": "peer.structured",
            "Agent": "What I found",
        }.items():
            assert text in await only(await inspected.entries(name)), name


async def test_a_link_to_an_entry_of_long_ago_reads_the_turns_until_it_is_there(
    tmp_path: Path,
) -> None:
    async with inspect(tmp_path) as inspected, inspected.served.client() as client:
        page = inspected.page
        thread_id = await client.start_thread()
        for number in range(45):
            await client.turn(thread_id, f"turn number {number}")
        page_of_turns = await client.call(
            "thread/turns/list", {"threadId": thread_id, "limit": 1, "sortDirection": "asc"}
        )
        (first,) = page_of_turns["data"]
        await page.evaluate(f"location.hash = '#/threads/{thread_id}/at/{first['id']}'")
        marked = page.locator("article.marked")
        await marked.wait_for()
        assert await marked.get_attribute("aria-label") == "Turn"
        said = await inspected.entries("You")
        assert await said.count() == 45
        await page.evaluate(f"location.hash = '#/threads/{thread_id}/at/nothing'")
        await inspected.sees("This thread has no such entry")


async def test_a_question_stands_in_the_conversation_with_its_answer(tmp_path: Path) -> None:
    run = {"cmd": "true", "sandbox_permissions": "require_escalated"}
    model = ScriptedModel()
    model.scripts = [
        call("request_user_input", {"questions": [QUESTION]}),
        call("exec_command", run),
        says("Done."),
    ]
    async with inspect(tmp_path / "home", model=model, config=CONFIG) as inspected:
        page = inspected.page
        await open_thread(
            inspected, tmp_path / "work", approvalPolicy="on-request", sandbox="read-only"
        )
        await inspected.send_message("Ask me")
        asked = (await inspected.entries("Question")).first
        await asked.get_by_text("open").wait_for()
        await page.get_by_label("Short").check()
        await inspected.button("Answer").click()
        await asked.get_by_text("settled").wait_for()
        assert "Which style do you want?" in await asked.inner_text()
        assert "Answer Short" in await asked.inner_text()
        await inspected.button("Decline and stop the turn").click()
        await inspected.turn_ends("interrupted")
        approval = (await inspected.entries("Question")).nth(1)
        assert "Answer Decline and stop the turn" in await approval.inner_text()


async def test_text_comes_as_it_is_written_and_what_is_read_stays_where_it_is(
    tmp_path: Path,
) -> None:
    lines = [f"Line number {number} of a long answer.\n\n" for number in range(120)]
    first, second = Gate(), Gate()
    events = says(*lines)
    model = ScriptedModel()
    model.scripts = [[*events[:62], first, *events[62:100], second, *events[100:]]]
    async with inspect(tmp_path, model=model) as inspected:
        page = inspected.page
        await inspected.start_thread()
        await inspected.send_message("Write")
        await first.wait_until_reached()
        feed = page.get_by_role("feed")
        # The end is kept in sight while nobody scrolls.
        await page.get_by_text("Line number 59 of").wait_for()
        await feed.evaluate(
            until("f.scrollTop > 0 && f.scrollTop + f.clientHeight >= f.scrollHeight - 2")
        )
        await feed.hover()
        await page.mouse.wheel(0, -600)
        await inspected.button("Go to the newest").wait_for()
        top = await feed.evaluate("(f) => f.scrollTop")
        first.opened.set()
        await second.wait_until_reached()
        await page.get_by_text("Line number 96 of").wait_for(state="attached")
        assert await feed.evaluate("(f) => f.scrollTop") == top
        await inspected.button("Go to the newest").click()
        second.opened.set()
        await inspected.turn_ends()
        last = "f.querySelector('.markdown > p:last-child').getBoundingClientRect()"
        await feed.evaluate(until(f"{last}.bottom < innerHeight"))


async def test_images_are_shown_and_those_of_the_machine_when_they_are_wanted(
    tmp_path: Path,
) -> None:
    picture = tmp_path / "picture.png"
    picture.write_bytes(base64.b64decode(PNG))
    async with inspect(tmp_path / "home") as inspected, inspected.served.client() as client:
        page = inspected.page
        thread_id = await client.start_thread()
        images = [
            {"type": "text", "text": "Look"},
            {"type": "image", "url": f"data:image/png;base64,{PNG}"},
            {"type": "localImage", "path": str(picture)},
        ]
        await client.call("turn/start", {"threadId": thread_id, "input": images})
        await client.until("turn/completed")
        await page.evaluate(f"location.hash = '#/threads/{thread_id}'")
        said = await inspected.entries("You")
        await said.get_by_role("img").wait_for()
        await said.get_by_role("button", name="Show the image").click()
        await said.get_by_role("img", name=str(picture)).wait_for()
        widths = await said.get_by_role("img").evaluate_all(
            "(all) => Promise.all(all.map((one) => one.decode().then(() => one.naturalWidth)))"
        )
        assert widths == [8, 8]


async def test_the_transcript_is_one_tab_stop_with_arrow_keys(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.scripts = [says("One."), says("Two.")]
    focused = "document.activeElement.getAttribute('aria-label')"
    async with inspect(tmp_path, model=model) as inspected:
        page, keyboard = inspected.page, inspected.page.keyboard
        await inspected.start_thread()
        await inspected.send_message("First")
        await inspected.turn_ends()
        await keyboard.press("Escape")
        await keyboard.press("m")
        assert await page.evaluate(focused) == "Transcript"
        names = []
        for key in ("End", "ArrowUp", "k", "Home", "ArrowDown"):
            await keyboard.press(key)
            names.append(await page.evaluate(focused))
        assert names == ["Agent", "You", "Turn", "Turn", "You"]
        # From an entry Tab goes to what it offers, and then out of the transcript.
        stops = []
        for _ in range(3):
            await keyboard.press("Tab")
            stops.append(
                await page.evaluate(
                    "document.activeElement.ariaLabel ?? document.activeElement.textContent"
                )
            )
        assert stops == ["Copy", "Copy link", "Go to the newest"]
