"""The page's connection: a server that comes late, goes and comes again, or answers nobody."""

from pathlib import Path

import pytest

from app_server.clients.inspector.run import serve_inspector
from app_server.clients.inspector.upstream import Upstream
from tests.support.browser import open_browser, open_page
from tests.support.harness import ScriptedModel, says, serve
from tests.support.inspector import Inspected, inspector_page, socket_in

pytestmark = pytest.mark.browser


async def test_the_page_goes_on_after_a_restart(tmp_path: Path) -> None:
    address = socket_in(tmp_path)
    home = tmp_path / "home"
    async with inspector_page(Upstream(f"unix://{address.path}")) as page:
        await page.get_by_text("No server yet").wait_for()
        await page.get_by_text("No server answers there. Start one with").wait_for()
        async with serve(home, listen=[address]) as served:
            inspected = Inspected(served, page)
            await page.get_by_text("connected", exact=True).wait_for()
            await inspected.start_thread()
            await inspected.say("Before the restart")
            await inspected.messages("turn/completed")
        await page.get_by_text("not connected").wait_for()
        model = ScriptedModel()
        model.scripts = [says("After.")]
        async with serve(home, listen=[address], model=model) as served:
            await page.get_by_text("connected", exact=True).wait_for()
            # The thread is loaded again and listened to; what was before is its history now.
            before = page.locator(".message.history").filter(has_text="Before the restart")
            await before.first.wait_for()
            await inspected.say("After the restart")
            await inspected.messages("turn/completed")
    assert model.inputs()[-1] == ("user", "After the restart")


async def test_a_page_with_another_token_gets_nowhere(tmp_path: Path) -> None:
    async with (
        serve(tmp_path) as served,
        serve_inspector(Upstream(served.urls[0])) as inspector,
        open_browser() as browser,
        open_page(browser, inspector.url.replace(inspector.token, "guess")) as page,
    ):
        await page.get_by_text("The inspector does not answer.").first.wait_for()
        assert await page.get_by_text("connected", exact=True).count() == 0


async def test_the_token_leaves_the_address_and_outlives_a_reload(tmp_path: Path) -> None:
    async with (
        serve(tmp_path) as served,
        inspector_page(Upstream(served.urls[0])) as page,
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
        serve_inspector(Upstream(served.urls[0])) as inspector,
        open_browser() as browser,
        open_page(browser, "data:text/html,<title>another site</title>") as page,
    ):
        address = f"ws://127.0.0.1:{inspector.port}/wire"
        assert await page.evaluate(connects, [address, inspector.token]) == "refused"
        await page.goto(inspector.url)
        assert await page.evaluate(connects, [address, inspector.token]) == "open"
