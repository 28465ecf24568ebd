"""receiver: the tools of the agent, without processes."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_types as types

from app_server.clients.receiver.backoff import Backoff
from app_server.clients.receiver.bridge import BridgeSession
from app_server.clients.receiver.router.session_stream import SessionStream
from app_server.clients.receiver.router.wire import RouterAddress
from app_server.clients.receiver.tools import Tools
from tests.support.receiver.peer import KEY, NOW, FakeAppServer, Parts, context, parts, signal


@dataclass
class Receiver:
    """A bridge with its tools, whose router is never reached."""

    parts: Parts
    session: BridgeSession
    tools: Tools

    async def call(self, tool: str, **arguments: Any) -> Any:
        params = types.CallToolRequestParams(name=tool, arguments=arguments)
        return (await self.tools.call_tool(None, params)).structured_content


@asynccontextmanager
async def receiver(path: Path) -> AsyncIterator[Receiver]:
    async with parts(path) as made:
        address = RouterAddress("ws://127.0.0.1:9", "Texi", KEY)
        stream = SessionStream(address, made.bridge, Backoff())
        session = BridgeSession("Texi", stream, made.surface, lambda: NOW)
        yield Receiver(made, session, Tools(made.bridge, session, lambda: "new"))


async def test_a_second_receiver_of_a_session_shows_signals_and_sends_none(tmp_path: Path) -> None:
    async with receiver(tmp_path) as first, receiver(tmp_path) as second:
        first.session.is_in_charge = True
        await first.parts.bridge.take(signal("s1"), b"")
        states = [(await one.call("prism_status"))["router"] for one in (first, second)]
        assert states == ["unreachable", "standby"]
        shown = await second.call("prism_signals_pending")
        assert [one["signal_id"] for one in shown["signals"]] == ["s1"]
        send = {"to": "Texi", "signal_type": "x", "payload": ""}
        assert [await one.call("prism_signal", **send) for one in (first, second)] == [
            {"error": f"{why}; send it again with signal_id 'new'", "pending_signals": 1}
            for why in ("the router cannot be reached", "another receiver has this session")
        ]
        acked = await second.call("prism_signals_pending", ack=["s1"])
        assert acked == {"signals": [], "acked": ["s1"], "pending_signals": 0}


async def test_the_item_in_the_thread_names_a_call_that_gives_the_payload(tmp_path: Path) -> None:
    async with FakeAppServer(tmp_path).listen() as server, receiver(tmp_path) as texi:
        server.add_thread()
        await texi.parts.surface.on_bootstrap(context(server.url))
        await texi.tools.list_tools(None, None)
        await texi.parts.bridge.take(signal("s1"), b"")
        assert await texi.parts.bridge.drain()
        [text] = server.texts()
        named = re.search(r"Call (\w+) with (\{.*?\}) only when", text)
        assert named is not None
        assert await texi.call(named[1], **json.loads(named[2])) == {
            "signals": [{**signal("s1"), "delivery_class": "async"}],
            "acked": [],
            "pending_signals": 0,
        }
