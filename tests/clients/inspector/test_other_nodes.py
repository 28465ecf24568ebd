"""Threads of other nodes in the inspector, which looks into a node that owns none of them."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from app_server.peer.address import ServerAddress
from tests.support.clients.inspector import InspectorPage, inspector_page
from tests.support.model import Gate, calls, says
from tests.support.threads.nodes import running_nodes

pytestmark = pytest.mark.browser


async def test_a_thread_of_each_owner_is_shown_asked_about_and_interrupted(
    tmp_path: Path, database_url: str
) -> None:
    gate = Gate()
    arguments = {"cmd": "echo hi", "sandbox_permissions": "require_escalated"}
    async with running_nodes(tmp_path, database_url, 3) as nodes, AsyncExitStack() as stack:
        *owners, asked = nodes.all
        nodes.model.scripts = [says("one"), says("two")]
        at_owners = [await stack.enter_async_context(owner.client()) for owner in owners]
        for at_owner, question in zip(at_owners, ("Question one", "Question two"), strict=True):
            await at_owner.turn(await at_owner.start_thread(), question)
        nodes.model.scripts = [
            calls({"name": "exec_command", "arguments": arguments}),
            says("Done."),
            [*says("a")[:2], gate],
        ]
        shown = await stack.enter_async_context(inspector_page(ServerAddress(asked.urls[0])))
        page = InspectorPage(shown)
        await shown.get_by_text("connected", exact=True).wait_for()
        await shown.get_by_role("link", name="Question one").click()
        await page.entries("Agent")
        await page.send_message("Run it")
        await page.sees("Run this command?")
        await page.button("Approve").click()
        await (await page.entries("Command")).get_by_text("exit 0").wait_for()
        await shown.get_by_role("link", name="Question two").click()
        await page.entries("Agent")
        await page.send_message("Think")
        await gate.wait_until_reached()
        await page.button("Interrupt").click()
        ended = await at_owners[1].wait_for("turn/completed")
        assert ended["params"]["turn"]["status"] == "interrupted"
        await page.button("Interrupt").wait_for(state="hidden")
        gate.opened.set()
