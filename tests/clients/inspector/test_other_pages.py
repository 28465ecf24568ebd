"""The views of the server and of the wire, in a browser."""

from pathlib import Path

import pytest

from app_server.apps.inventory.directory import AppDetails
from protocol.integrations.apps import AppToolSummary, ConnectorMetadata
from tests.support.apps.fake_apps import FakeApps, Snapshot, as_port, connectors, directory
from tests.support.clients.inspector import inspect

pytestmark = pytest.mark.browser


async def test_the_figures_of_the_server_are_shown(tmp_path: Path) -> None:
    async with inspect(tmp_path) as inspected, inspected.served.client() as client:
        page = inspected.page
        thread_id = await client.start_thread()
        await client.refusal("thread/read", {"threadId": "no id"})
        await inspected.go("Server")
        connections = page.get_by_role("table", name="Connections (2)")
        # The figures are two seconds old at most: the handshake may not be in the first ones.
        await connections.get_by_role("row", name="test").wait_for()
        rows = await connections.get_by_role("row").all_inner_texts()
        assert [row.split("\t")[:2] for row in rows] == [
            ["Client", "Version"],
            ["app-server-inspector an inspector", "1"],
            ["test", "1"],
        ]
        methods = page.get_by_role("table", name="How long the server took, by method")
        row = methods.get_by_role("row").filter(has_text="thread/start")
        assert (await row.inner_text()).split("\t")[2:4] == ["1", "0"]
        failures = page.get_by_role("table", name="Failures since the start")
        assert "thread/read" in await failures.inner_text()
        queues = page.get_by_role("table", name="Queues and their bounds")
        assert "connection.requests" in await queues.inner_text()
        loaded = page.get_by_role("group", name="Threads loaded")
        await loaded.get_by_text("1", exact=True).wait_for()
        memory = page.get_by_role("group", name="Memory")
        # A second value makes a line.
        await memory.locator("polyline").wait_for(state="attached")
        await client.call("thread/delete", {"threadId": thread_id})
        await loaded.get_by_text("0 to 1").wait_for()
        windows = page.get_by_role("group", name="Window of the plots")
        await windows.get_by_role("button", name="24 h").click()
        # An hour and a day have the same values, and an axis of their own.
        begins = await memory.locator(".axis span").first.inner_text()
        ends = await memory.locator(".axis span").last.inner_text()
        assert (begins, begins.count(":")) == (ends, 1)


async def test_any_request_can_be_made_and_its_answer_read(tmp_path: Path) -> None:
    async with inspect(tmp_path) as inspected:
        page = inspected.page
        await inspected.go("Wire")
        await page.locator("datalist option[value='thread/list']").wait_for(state="attached")
        await page.get_by_label("Method").fill("thread/list")
        await page.get_by_label("Params").fill('{"limit": "many"}')
        await inspected.button("Send request").click()
        refused = await inspected.messages("-32602")
        await refused.click()
        selected = page.get_by_role("region", name="Selected message")
        assert "limit" in await selected.inner_text()
        await page.get_by_label("Params").fill("{")
        await inspected.button("Send request").click()
        await inspected.sees("This is no JSON")
        await inspected.button("Show polling").click()
        await inspected.messages("server/diagnostics")
        await inspected.button("Clear").click()
        await refused.wait_for(state="detached")


async def test_apps_are_listed_with_what_they_can_do(tmp_path: Path) -> None:
    apps = FakeApps(fresh=Snapshot(connectors("Calendar")))
    apps.backend.listed = directory("Calendar", "Mail")
    tool = AppToolSummary(name="look", description="Look at a day.", is_read_only=True)
    calendar = ConnectorMetadata(id="calendar", name="Calendar", tool_summaries=[tool])
    apps.backend.records = {"calendar": AppDetails(calendar, has_tools=True)}
    async with inspect(tmp_path, apps=as_port(apps)) as inspected:
        page = inspected.page
        await inspected.go("Apps")
        listed = page.get_by_role("navigation", name="Apps").get_by_role("link")
        await listed.nth(1).wait_for()
        assert [text.split("\n")[:2] for text in await listed.all_inner_texts()] == [
            ["Calendar", "connected"],
            ["Mail", "not connected"],
        ]
        await page.get_by_label("Filter apps").fill("cal")
        await listed.nth(1).wait_for(state="detached")
        await listed.click()
        shown = page.get_by_role("region", name="App")
        await shown.get_by_text("Tools (1)").wait_for()
        assert "Look at a day." in await shown.inner_text()
