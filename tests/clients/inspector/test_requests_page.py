"""What the server asks, answered in the inspector by clicking."""

from pathlib import Path

import pytest

from tests.support.clients.inspector import inspect
from tests.support.harness import stdio_server
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
