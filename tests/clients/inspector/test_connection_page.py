"""The page's connection: a server that comes late, goes and comes again, or answers nobody."""

import json
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_sockets
from websockets.http11 import Request, Response

from app_server.clients.inspector.run import serve_inspector
from app_server.peer.address import ServerAddress
from tests.support.clients.browser import open_browser, open_page
from tests.support.clients.inspector import Inspected, inspector_page, socket_in
from tests.support.harness import serve
from tests.support.model import ScriptedModel, says

pytestmark = pytest.mark.browser


async def test_the_page_goes_on_after_a_restart(tmp_path: Path) -> None:
    address = socket_in(tmp_path)
    home = tmp_path / "home"
    async with inspector_page(ServerAddress(f"unix://{address.path}")) as page:
        await page.get_by_text("No server yet").wait_for()
        await page.get_by_text("No server answers there. Start one with").wait_for()
        async with serve(home, listen=[address]) as served:
            inspected = Inspected(page, served)
            await page.get_by_text("connected", exact=True).wait_for()
            await inspected.start_thread()
            await inspected.send_message("Before the restart")
            await inspected.turn_ends()
        await page.get_by_text("not connected").wait_for()
        model = ScriptedModel()
        model.scripts = [says("After.")]
        async with serve(home, listen=[address], model=model) as served:
            await page.get_by_text("connected", exact=True).wait_for()
            # The thread is loaded again and listened to; what was before is its history now.
            said = await inspected.entries("You")
            await said.filter(has_text="Before the restart").wait_for()
            await inspected.send_message("After the restart")
            await said.filter(has_text="After the restart").wait_for()
            await (await inspected.entries("Agent")).filter(has_text="After.").wait_for()
    assert model.inputs()[-1] == ("user", "After the restart")


async def test_a_page_with_another_token_gets_nowhere(tmp_path: Path) -> None:
    async with (
        serve(tmp_path) as served,
        serve_inspector(ServerAddress(served.urls[0])) as inspector,
        open_browser() as browser,
        open_page(browser, inspector.url.replace(inspector.token, "guess")) as page,
    ):
        await page.get_by_text("The inspector does not answer.").first.wait_for()
        assert await page.get_by_text("connected", exact=True).count() == 0


async def test_each_way_of_getting_nowhere_has_its_own_sentence() -> None:
    """A server that refuses the token, one that does not answer yet, one of another protocol."""
    silent = True

    def refuse(socket: ServerConnection, request: Request) -> Response:
        return socket.respond(HTTPStatus.UNAUTHORIZED, "no")

    async def answer(socket: ServerConnection) -> None:
        async for text in socket:
            if not silent:
                error = {"code": -32600, "message": "no initialize here"}
                await socket.send(json.dumps({"id": json.loads(text)["id"], "error": error}))

    async with serve_sockets(answer, "127.0.0.1", 0, process_request=refuse) as server:
        port = server.sockets[0].getsockname()[1]
        async with inspector_page(ServerAddress(f"ws://127.0.0.1:{port}")) as page:
            await page.get_by_text("The server refuses the token.").first.wait_for()
    async with serve_sockets(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with inspector_page(ServerAddress(f"ws://127.0.0.1:{port}")) as page:
            await page.get_by_text("The server has not answered yet").first.wait_for()
            silent = False
            await page.reload()
            await page.get_by_text(
                "another version of the protocol: no initialize"
            ).first.wait_for()


async def test_the_token_leaves_the_address_and_outlives_a_reload(tmp_path: Path) -> None:
    async with (
        serve(tmp_path) as served,
        inspector_page(ServerAddress(served.urls[0])) as page,
    ):
        await page.get_by_text("connected", exact=True).wait_for()
        assert page.url.endswith("/#/threads")
        await page.reload()
        await page.get_by_text("connected", exact=True).wait_for()


async def test_a_page_of_another_origin_gets_nowhere(tmp_path: Path) -> None:
    """Even with the token: the browser says where the page is from."""
    connects = """
        ([address, token]) => new Promise((resolve) => {
          const socket = new WebSocket(address, ["app-server-inspector", `token.${token}`]);
          socket.onopen = () => resolve("open");
          socket.onclose = () => resolve("refused");
        })
    """
    async with (
        serve(tmp_path) as served,
        serve_inspector(ServerAddress(served.urls[0])) as inspector,
        open_browser() as browser,
        open_page(browser, "data:text/html,<title>another site</title>") as page,
    ):
        address = f"ws://127.0.0.1:{inspector.port}/wire"
        assert await page.evaluate(connects, [address, inspector.token]) == "refused"
        await page.goto(inspector.url)
        assert await page.evaluate(connects, [address, inspector.token]) == "open"


async def test_the_page_can_neither_make_html_of_text_nor_reach_elsewhere(tmp_path: Path) -> None:
    html = """() => {
      try { document.body.innerHTML = "<b>x</b>"; return "made"; }
      catch (error) { return error.name; }
    }"""
    reaches = "(url) => fetch(url).then(() => 'reached', (error) => error.name)"
    async with (
        serve(tmp_path) as served,
        serve_inspector(ServerAddress(served.urls[0])) as inspector,
        serve_inspector(ServerAddress(served.urls[0])) as other,
        open_browser() as browser,
    ):
        # What the policy refuses is an error of the page, so it is not looked at by `open_page`.
        page = await browser.new_page()
        await page.goto(inspector.url)
        assert await page.evaluate(html) == "TypeError"
        assert await page.evaluate(reaches, "/methods.json") == "reached"
        elsewhere = f"http://127.0.0.1:{other.port}/methods.json"
        assert await page.evaluate(reaches, elsewhere) == "TypeError"


async def test_a_server_that_knows_less_is_inspected_as_far_as_it_goes() -> None:
    """Like Codex: without signals, numbered events and most figures."""
    long = "unknown variant `signal/list`, expected one of " + ", ".join(["x/y"] * 500)
    answers: dict[str, Any] = {
        "initialize": {"userAgent": "other/1", "codexHome": "/home/other"},
        "thread/list": {"data": [], "nextCursor": None},
        "server/diagnostics": {
            "process": {"id": 7, "residentMemoryBytes": None},
            "gauges": [{"name": "core.threads.live", "value": 0}],
        },
    }

    async def answer(socket: ServerConnection) -> None:
        async for text in socket:
            message = json.loads(text)
            if "id" not in message:
                continue
            result = answers.get(message["method"])
            outcome = (
                {"error": {"code": -32600, "message": long}}
                if result is None
                else {"result": result}
            )
            await socket.send(json.dumps({"id": message["id"], **outcome}))

    async with serve_sockets(answer, "127.0.0.1", 0) as server:
        upstream = ServerAddress(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with inspector_page(upstream) as page:
            await page.get_by_text("connected", exact=True).wait_for()
            await page.get_by_role("link", name="Signals").click()
            await page.get_by_text("The signals could not be listed").wait_for()
            await page.get_by_role("link", name="Server", exact=True).click()
            await page.get_by_role("group", name="Threads loaded").wait_for()
            assert await page.get_by_role("group", name="Turns running").count() == 0
            await page.get_by_role("link", name="MCP servers").click()
            said = page.get_by_role("status", name="Notices")
            await said.get_by_text("The MCP servers could not be listed").wait_for()
            assert len(await said.inner_text()) < 400
