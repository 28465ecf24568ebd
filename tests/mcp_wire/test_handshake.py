"""mcp: the handshake that begins a session, over streams in memory."""

from typing import Any

import anyio
import pytest

from app_server.mcp_wire.errors import PeerError, RequestTimedOut
from app_server.mcp_wire.handshake import Handshake
from tests.support.harness import WAIT_S
from tests.support.mcp_peers.conversation import Conversation, conversing

WHO = {"name": "n", "version": "1"}


@pytest.mark.parametrize(
    ("answered", "agreed"),
    [
        ({"protocolVersion": "2025-06-18"}, "2025-06-18"),
        ({"protocolVersion": "2025-03-26"}, "2025-03-26"),
        ({"protocolVersion": "2024-11-05"}, "2024-11-05"),
        ({"protocolVersion": "2099-01-01"}, "2025-06-18"),
        ({"protocolVersion": ["2025-03-26"]}, "2025-06-18"),
        ({}, "2025-06-18"),
    ],
)
async def test_a_handshake_agrees_on_a_version(answered: Any, agreed: str) -> None:
    async with conversing() as talk, anyio.create_task_group() as tasks:
        handshake = Handshake(talk.client, WHO, {"elicitation": {}})
        hellos: list[Any] = []

        async def run() -> None:
            hellos.append(await handshake.run(WAIT_S))

        tasks.start_soon(run)
        params = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"elicitation": {}},
            "clientInfo": WHO,
        }
        assert await talk.next() == {"id": 1, "method": "initialize", "params": params}
        await talk.send(id=1, result=answered)
        with anyio.fail_after(WAIT_S):
            sent = await talk.from_us.receive()
        assert sent.message.method == "notifications/initialized"  # type: ignore[union-attr]
        assert sent.headers == {"mcp-protocol-version": agreed}
    assert hellos == [answered]
    assert handshake.headers == {"mcp-protocol-version": agreed}


async def test_a_handshake_that_is_refused_sends_the_server_nothing_more() -> None:
    async with conversing() as talk, anyio.create_task_group() as tasks:
        tasks.start_soon(_refused, talk)
        await talk.next()
        await talk.send(id=1, error={"code": -32001, "message": "no"})
        await talk.client.notify("next")
        assert await talk.next() == {"method": "next"}


async def test_a_handshake_without_an_answer_is_not_cancelled() -> None:
    async with conversing() as talk:
        with pytest.raises(RequestTimedOut):
            await Handshake(talk.client, WHO, {}).run(0.01)
        assert (await talk.next())["method"] == "initialize"
        await talk.client.notify("next")
        assert await talk.next() == {"method": "next"}


async def _refused(talk: Conversation) -> None:
    with pytest.raises(PeerError, match="no"):
        await Handshake(talk.client, WHO, {}).run(WAIT_S)
