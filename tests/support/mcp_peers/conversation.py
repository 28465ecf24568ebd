"""A conversation of ours with an MCP server, over streams in memory."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from app_server.mcp_wire.errors import RequestRefused
from app_server.mcp_wire.json_rpc_client import JsonRpcClient
from app_server.mcp_wire.messages import SessionMessage, jsonrpc_message_adapter
from protocol.jsonrpc.errors import INVALID_PARAMS
from tests.support.harness import WAIT_S


@dataclass
class Conversation:
    """A client, and the server's ends of its streams."""

    client: JsonRpcClient
    to_us: MemoryObjectSendStream[SessionMessage | Exception]
    from_us: MemoryObjectReceiveStream[SessionMessage]
    notifications: list[str] = field(default_factory=list)
    callers: list[Any] = field(default_factory=list)
    """Callers of the requests of the server, each None if it is unknown."""
    answering: anyio.Event = field(default_factory=anyio.Event)

    async def send(self, *, in_response_to: int | None = None, **members: Any) -> None:
        text = json.dumps({"jsonrpc": "2.0", **members})
        message = jsonrpc_message_adapter.validate_json(text)
        await self.to_us.send(SessionMessage(message, in_response_to=in_response_to))

    async def next(self) -> Any:
        """Return our next message, without what all have."""
        with anyio.fail_after(WAIT_S):
            message = (await self.from_us.receive()).message
        members = json.loads(message.model_dump_json(exclude_unset=True))
        assert members.pop("jsonrpc") == "2.0"
        return members

    async def answer(self, method: str, params: Any, caller: Any) -> Any:
        self.callers.append(caller)
        if method == "stall":
            self.answering.set()
            await anyio.sleep_forever()
        if method == "refuse":
            raise RequestRefused(INVALID_PARAMS, "not like this")
        if method == "break":
            raise LookupError("secret")
        return params

    def notified(self, method: str, params: Any, caller: Any) -> None:
        self.notifications.append(method)


@asynccontextmanager
async def conversing() -> AsyncIterator[Conversation]:
    to_us, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    outgoing, from_us = anyio.create_memory_object_stream[SessionMessage](100)
    with to_us, incoming, outgoing, from_us:
        talk = Conversation(JsonRpcClient(incoming, outgoing), to_us, from_us)
        async with anyio.create_task_group() as tasks:

            async def run(*, task_status: Any) -> None:
                await talk.client.run(talk.answer, talk.notified, task_status=task_status)

            await tasks.start(run)
            yield talk
            tasks.cancel_scope.cancel()
