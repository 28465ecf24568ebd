"""A server of the SDK with the revision and transport that a test wants, and its threads."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from tests.support.forked_commands.listener import forked_command
from tests.support.harness import WAIT_S, WireClient, serve
from tests.support.mcp_peers import sdk_peer
from tests.support.mcp_peers.calls import call_items, steps_until_settled
from tests.support.mcp_peers.sdk_peer import SdkPeer, sdk_app
from tests.support.mcp_peers.web_servers import listening


@dataclass(frozen=True)
class Setting:
    """A transport, and what is configured as `protocol`."""

    transport: str
    """`stdio`, `http`, or `plain`: HTTP without a session, also in the older revision."""
    protocol: str

    @property
    def is_stateless(self) -> bool:
        return self.protocol != "2025"

    @property
    def questions_name_their_call(self) -> bool:
        return self.is_stateless or self.transport == "http"

    def __str__(self) -> str:
        return f"{self.transport}-{self.protocol}"


ASKING = [Setting(transport, word) for transport in ("stdio", "http") for word in ("2025", "auto")]
"""Where a server can ask: that of the SDK cannot, in a handshake without session."""

SETTINGS = [*ASKING, Setting("plain", "2025")]


@dataclass
class Running:
    """A server of ours, a client and a thread of it, and the server of the SDK if it is here."""

    served: Any
    client: WireClient
    thread_id: str
    peer: SdkPeer | None

    async def call(self, *functions: Any, **options: Any) -> tuple[list[Any], list[Any]]:
        return await call_items(self.served, self.client, self.thread_id, *functions, **options)

    async def new_thread(self) -> str:
        """Start one more thread; gives its id."""
        thread_id = await self.client.start_thread()
        assert (await steps_until_settled(self.client, "raw"))["raw"][-1] == ("ready", None)
        return thread_id

    async def tool(self, name: str, **more: Any) -> Any:
        """Call a tool as a client does; gives what it says."""
        params = {"threadId": self.thread_id, "server": "raw", "tool": name, **more}
        result = await self.client.call("mcpServer/tool/call", params)
        [block] = result["content"]
        return block["text"]

    async def until_said(self, text: str) -> None:
        """Wait until the process has written this to stderr."""
        params = {"name": "raw", "threadId": self.thread_id}
        with anyio.fail_after(WAIT_S):
            while True:
                found = await self.client.call("mcpServer/output/read", params)
                if text in found["data"][0]["text"]:
                    return

    async def tools(self) -> set[str]:
        found = await self.client.call("mcpServerStatus/list", {"threadId": self.thread_id})
        return set(found["data"][0]["tools"])


@asynccontextmanager
async def running(
    home: Path, setting: Setting, more: str = "", **keys: str
) -> AsyncIterator[Running]:
    """Give a thread whose server `raw` is ready; `keys` go into its table, `more` before it."""
    async with AsyncExitStack() as stack:
        peer = None
        if setting.transport != "stdio":
            app_of = sdk_app(stateless=setting.transport == "plain")
            peer, app = await stack.enter_async_context(app_of)
            port = await stack.enter_async_context(listening(app))
            table = f'url = "http://127.0.0.1:{port}/mcp"\n'
        else:
            program, *arguments = await forked_command(sdk_peer.__name__)
            table = f"command = {json.dumps(program)}\nargs = {json.dumps(arguments)}\n"
        table += "".join(f"{key} = {value}\n" for key, value in keys.items())
        config = f'{more}[mcp_servers.raw]\nprotocol = "{setting.protocol}"\n{table}'
        served = await stack.enter_async_context(serve(home, config=config))
        client = await stack.enter_async_context(served.client())
        run = Running(served, client, "", peer)
        run.thread_id = await run.new_thread()
        yield run
