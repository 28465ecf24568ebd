"""transport: what pages reach in a real browser, which sets `Origin` and `Host` itself."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app_server.transport.guards import ListenerGuards
from tests.support.clients.browser import open_browser, open_page
from tests.support.harness import claim, serve

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.browser

CONNECT = """([url, protocols]) => new Promise((done) => {
  const socket = new WebSocket(url, protocols);
  const info = { clientInfo: { name: "page", version: "1" } };
  socket.onopen = () => socket.send(JSON.stringify({ id: 1, method: "initialize", params: info }));
  socket.onmessage = ({ data }) => done([socket.protocol, JSON.parse(data).result.codexHome]);
  socket.onclose = ({ code, reason }) => done([code, reason]);
})"""

REFUSED = [1006, ""]
"""All that a page learns of a connection that did not come about."""


@asynccontextmanager
async def empty_page() -> AsyncIterator[str]:
    """Serve an empty page on a free port; gives its origin."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 0\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def connected(page: "Page", url: str, protocols: Sequence[str]) -> Any:
    """Let a page connect; gives what it was answered, or how the connection ended."""
    return await page.evaluate(CONNECT, [url, list(protocols)])


@claim("listener:origin", "listener:allowed-origin", "listener:subprotocol")
async def test_a_page_gets_in_from_an_allowed_origin_with_the_token_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    async with (
        empty_page() as allowed,
        empty_page() as foreign,
        serve(
            tmp_path / "home",
            guards=ListenerGuards(token_file=path, origins=frozenset({allowed})),
        ) as served,
        serve(tmp_path / "open") as without_token,
        open_browser() as browser,
        open_page(browser, allowed) as friend,
        open_page(browser, foreign) as stranger,
        open_page(browser, "data:text/html,") as nobody,
    ):
        (url,) = served.urls
        shown = ["app-server", f"bearer.{path.read_text().strip()}"]
        assert await connected(friend, url, shown) == ["app-server", str(tmp_path / "home")]
        for protocols in ([], ["app-server"], ["app-server", "bearer.wrong"], shown[1:]):
            assert await connected(friend, url, protocols) == REFUSED
        for page in (stranger, nobody):
            assert await connected(page, url, shown) == REFUSED
        for page in (friend, stranger, nobody):
            assert await connected(page, without_token.urls[0], []) == REFUSED


@claim("listener:host")
async def test_a_name_that_leads_to_this_machine_shows_nothing_of_the_server(
    tmp_path: Path,
) -> None:
    """What a page sees once its own name has been made to lead to the server's address."""
    rule = "--host-resolver-rules=MAP evil.example.com 127.0.0.1"
    async with (
        serve(tmp_path) as served,
        open_browser(rule) as browser,
    ):
        port = served.urls[0].rpartition(":")[2]
        page = await browser.new_page()
        answer = await page.goto(f"http://evil.example.com:{port}/readyz")
        assert answer is not None
        assert (answer.status, await answer.text()) == (
            403,
            "Host must name this machine: localhost, 127.0.0.1 or [::1].\n",
        )
        answer = await page.goto(f"http://localhost:{port}/readyz")
        assert answer is not None
        assert (answer.status, await answer.text()) == (200, "ok\n")
