"""What the server asks, answered in the inspector by clicking."""

import time
from pathlib import Path

import pytest

from app_server.peer.address import ServerAddress
from tests.support.clients.inspector import InspectorPage, inspect, inspector_page
from tests.support.harness import serve, stdio_server
from tests.support.model import ScriptedModel, calls, says

pytestmark = pytest.mark.browser


async def test_an_mcp_tool_is_approved_and_its_form_is_filled_in(tmp_path: Path) -> None:
    """The view of all requests has the approval of a tool, and then the tool's own question."""
    schema = {
        "type": "object",
        "properties": {
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "count": {"type": "integer", "minimum": 1, "maximum": 9},
            "sure": {"type": "boolean", "default": True},
        },
        "required": ["colour", "count"],
    }
    question = {"message": "How many of which?", "mode": "form", "requestedSchema": schema}
    arguments = {"method": "elicitation/create", "params": question}
    model = ScriptedModel()
    model.scripts = [
        calls({"namespace": "mcp__peer", "name": "plain"}),
        calls({"namespace": "mcp__peer", "name": "request", "arguments": arguments}),
        says("Done."),
    ]
    async with inspect(tmp_path, model=model, config=stdio_server("peer")) as inspected:
        page = inspected.page
        await inspected.start_thread()
        await inspected.send_message("Ask")
        await inspected.sees("Call peer.plain?")
        await inspected.go("Requests")
        await inspected.button("Approve for this session").click()
        await inspected.sees("peer asks")
        await page.get_by_label("count").fill("12")
        await inspected.button("Send").click()
        await inspected.sees("Choose one.")
        await inspected.sees("At most 9.")
        await page.get_by_label("colour").select_option("blue")
        await page.get_by_label("count").fill("3")
        await inspected.button("Send").click()
        await inspected.sees("Nothing is asked")
        await inspected.go("Threads")
        await page.get_by_role("link", name="Ask").click()
        await inspected.turn_ends()
    answer = model.items()[-1]["output"]
    assert '"content": {"colour": "blue", "count": 3, "sure": true}' in str(answer).replace(
        '\\"', '"'
    )


async def test_the_models_own_questions_are_answered(tmp_path: Path) -> None:
    questions = [
        {
            "id": "where",
            "header": "Place",
            "question": "Where to?",
            "options": [
                {"label": "Home", "description": "Stay"},
                {"label": "Away", "description": "Leave"},
            ],
        },
    ]
    model = ScriptedModel()
    arguments = {"questions": questions}
    model.scripts = [calls({"name": "request_user_input", "arguments": arguments}), says("Good.")]
    feature = "[features]\ndefault_mode_request_user_input = true\n"
    async with inspect(tmp_path, model=model, config=feature) as inspected:
        await inspected.start_thread()
        await inspected.send_message("Ask me")
        await inspected.page.get_by_role("radio", name="Away").check()
        await inspected.button("Answer").click()
        await inspected.turn_ends()
    assert "Away" in str(model.items()[-1]["output"])


async def test_a_patch_is_shown_and_declined(tmp_path: Path) -> None:
    patch = "*** Begin Patch\n*** Add File: new.txt\n+one line\n*** End Patch"
    model = ScriptedModel()
    model.scripts = [
        calls({"name": "apply_patch", "arguments": {"input": patch}}),
        says("As you wish."),
    ]
    async with inspect(tmp_path, model=model) as inspected:
        await inspected.start_thread()
        await inspected.send_message("Write it")
        await inspected.sees("Change these files?")
        # A page that comes later is shown it, too.
        await inspected.page.reload()
        await inspected.page.get_by_role("link", name="Write it").click()
        card = inspected.page.get_by_role("article", name="Change these files?")
        (line,) = await card.get_by_role("row").all_inner_texts()
        assert line.split("\t") == ["", "1", "+", "one line"]
        await card.get_by_role("button", name="Decline", exact=True).click()
        await inspected.turn_ends()
    assert not (tmp_path / "new.txt").exists()


async def test_a_question_that_another_client_answered_disappears(tmp_path: Path) -> None:
    model = ScriptedModel()
    arguments = {"cmd": "true", "sandbox_permissions": "require_escalated"}
    model.scripts = [calls({"name": "exec_command", "arguments": arguments}), says("Done.")]
    async with inspect(tmp_path, model=model) as inspected, inspected.served.client() as client:
        thread_id = await client.start_thread()
        user_input = [{"type": "text", "text": "Run it"}]
        await client.call("turn/start", {"threadId": thread_id, "input": user_input})
        asked = await client.wait_for("item/commandExecution/requestApproval")
        await inspected.go("Requests")
        await inspected.page.get_by_role("link", name="Run it").click()
        await inspected.sees("Run this command?")
        await client.send({"id": asked["id"], "result": {"decision": "accept"}})
        await inspected.turn_ends()
        heading = inspected.page.get_by_role("heading", name="Run this command?")
        await heading.wait_for(state="detached")
        (question,) = await (await inspected.entries("Question")).all()
        assert "given in another client" in await question.inner_text()


async def test_every_thread_that_waits_asks_here_without_being_opened(tmp_path: Path) -> None:
    """The oldest question stands first, with the time since it was asked, and a key leads to it."""
    model = ScriptedModel()
    arguments = {"cmd": "true", "sandbox_permissions": "require_escalated"}
    asks = calls({"name": "exec_command", "arguments": arguments})
    model.scripts = [asks, asks, says("Done."), says("Done.")]
    async with serve(tmp_path, model=model) as served, served.client() as client:
        for text in ("The first one", "The second one"):
            thread_id = await client.start_thread()
            user_input = [{"type": "text", "text": text}]
            await client.call("turn/start", {"threadId": thread_id, "input": user_input})
            await client.wait_for("item/commandExecution/requestApproval")
        asked_at = time.time()
        async with inspector_page(ServerAddress(served.urls[0])) as page:
            inspected = InspectorPage(page)
            await page.get_by_text("connected", exact=True).wait_for()
            await inspected.is_titled("(2) Threads")
            await page.keyboard.press("o")
            cards = page.get_by_role("article", name="Run this command?")
            await page.locator("article.question:focus").wait_for()
            assert await page.evaluate(
                "document.activeElement === document.querySelector('article.question')"
            )
            (oldest, newest) = await cards.all()
            assert "The first one" in await oldest.inner_text()
            assert "The second one" in await newest.inner_text()
            # The time is that of the server, from before this page was there.
            since = await oldest.get_by_role("time").get_attribute("data-since")
            assert int(since or 0) / 1000 < asked_at
            assert await oldest.get_by_role("time").get_attribute("data-exact") == "true"
            await oldest.get_by_role("button", name="Approve", exact=True).click()
            await inspected.is_titled("(1) Requests")
            assert "The second one" in await cards.inner_text()
            await cards.get_by_role("button", name="Approve", exact=True).click()
            await inspected.sees("Nothing is asked")
            await client.until("turn/completed")


async def test_the_desktop_tells_of_a_question_while_nobody_looks(tmp_path: Path) -> None:
    model = ScriptedModel()
    arguments = {"cmd": "true", "sandbox_permissions": "require_escalated"}
    model.scripts = [calls({"name": "exec_command", "arguments": arguments})]
    async with inspect(tmp_path, model=model) as inspected:
        page = inspected.page
        # The browser asks its user; here the answer is given before.
        await page.context.grant_permissions(["notifications"])
        await page.evaluate("document.hasFocus = () => false")
        await page.evaluate(
            "() => { window.Notification = class { static permission = 'granted';"
            " static requestPermission = async () => 'granted'; close() {}"
            " constructor(title, { body }) { document.body.dataset.told = `${title}: ${body}` } } }"
        )
        await inspected.go("Requests")
        await inspected.button("Notify me").click()
        async with inspected.served.client() as client:
            thread_id = await client.start_thread()
            user_input = [{"type": "text", "text": "Run it"}]
            await client.call("turn/start", {"threadId": thread_id, "input": user_input})
            await page.locator(
                "body[data-told='Run it: Run this command? /bin/bash -lc true']"
            ).wait_for()
            await inspected.button("Approve").click()
