"""MCP servers in the inspector: their state, and calls of their tools by forms."""

import json
from pathlib import Path

import pytest

from tests.support.clients.inspector import inspect
from tests.support.harness import stdio_server

pytestmark = pytest.mark.browser

TOOL = {
    "name": "book",
    "description": "Book a table.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 2},
            "guests": {"type": "integer", "minimum": 1},
            "place": {"$ref": "#/$defs/Place"},
            "notes": {"type": "array", "items": {"type": "string"}},
            "outside": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        },
        "required": ["name", "guests"],
        "$defs": {"Place": {"type": "object", "properties": {"city": {"enum": ["Bern", "Basel"]}}}},
    },
}


async def test_a_tool_is_called_by_its_form(tmp_path: Path) -> None:
    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps({"tools/list": {"tools": [TOOL]}}))
    config = stdio_server("tables", "answers", str(answers)) + (
        '[mcp_servers.broken]\ncommand = "/nonexistent"\n'
    )
    async with inspect(tmp_path / "home", config=config) as inspected:
        page = inspected.page
        await inspected.go("MCP servers")
        servers = page.get_by_role("navigation", name="MCP servers")
        await servers.get_by_role("link", name="tables").wait_for()
        assert "failed" in await servers.get_by_role("link", name="broken").inner_text()
        await servers.get_by_role("link", name="tables").click()
        await page.get_by_text("book", exact=True).click()
        await page.get_by_label("guests").fill("none")
        await inspected.button("Call").click()
        await inspected.sees("Fill this in.")
        await inspected.sees("Must be a number.")
        await page.get_by_label("name", exact=False).first.fill("Ann")
        await page.get_by_label("guests").fill("4")
        await page.get_by_label("city").select_option("Basel")
        await inspected.button("Add").click()
        await page.get_by_label("1", exact=False).last.fill("window")
        await page.get_by_label("outside").select_option("true")
        await inspected.button("Call").click()
        await inspected.sees("succeeded")
        await inspected.sees("book ran")
        await inspected.go("Wire")
        request = (await inspected.messages("mcpServer/tool/call")).first
        await request.click()
        selected = page.get_by_role("region", name="Selected message")
        shown = " ".join((await selected.inner_text()).split())
    assert (
        'arguments: {5} name: "Ann" guests: 4 place: {1} city: "Basel" notes: [1] 0: "window" '
        "outside: true"
    ) in shown


async def test_a_failure_of_a_tool_is_shown(tmp_path: Path) -> None:
    async with inspect(tmp_path, config=stdio_server("peer")) as inspected:
        await inspected.go("MCP servers")
        for tool, outcome in (("fail", "it went wrong"), ("refuse", "refused")):
            await inspected.page.get_by_text(tool, exact=True).click()
            card = inspected.page.locator("details[open].tool").filter(has_text=tool)
            await card.get_by_role("button", name="Call").click()
            await card.get_by_text(outcome).first.wait_for()
