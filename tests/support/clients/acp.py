"""An editor that speaks the Agent Client Protocol: the Python SDK, and all that it was sent.

Every message of the server's is read by the SDK's types, and has nothing that they do not have: the
SDK itself leaves out what it cannot read.
Source: https://github.com/agentclientprotocol/python-sdk.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import anyio
from acp.connection import StreamDirection, StreamEvent
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    RequestPermissionRequest,
    RequestPermissionResponse,
    SessionNotification,
)
from acp.ws.client import create_websocket_stream
from pydantic import BaseModel

from tests.support.harness import WAIT_S, Served

Message = dict[str, Any]
TERMINALS: Message = {"_meta": {"terminal_output": True}}
"""Capability of editors that show output of commands in terminals."""
FORMS: Message = {"elicitation": {"form": {}, "url": {}}}

_CHECKED: dict[str, type[BaseModel]] = {
    "session/update": SessionNotification,
    "session/request_permission": RequestPermissionRequest,
}


class Editor:
    """A client of ACP. Questions for permission get the first option of the kind `chosen`."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        """All messages of the server, in order."""
        self.chosen = "allow_once"
        self.hold: asyncio.Event | None = None
        """Questions wait for it; they count as asked before."""
        self.fill: Message = {}
        """What forms are filled with."""
        self._grew = asyncio.Event()

    @property
    def updates(self) -> list[Message]:
        """Updates of all sessions, in order."""
        return [
            message["params"]["update"]
            for message in self.sent
            if message.get("method") == "session/update"
        ]

    @property
    def asked(self) -> list[Message]:
        """Questions for permission."""
        return self.requests("session/request_permission")

    def requests(self, method: str) -> list[Message]:
        """Return the parameters of the server's messages of a method."""
        return [each["params"] for each in self.sent if each.get("method") == method]

    def take(self, *kinds: str) -> list[Message]:
        """Return and forget the updates so far; those of `kinds`, or all."""
        found = [each for each in self.updates if not kinds or each["sessionUpdate"] in kinds]
        self.sent.clear()
        return found

    def text(self, kind: str = "agent_message_chunk") -> str:
        """Join the texts that were told so far."""
        return "".join(
            each["content"]["text"] for each in self.updates if each["sessionUpdate"] == kind
        )

    async def until(self, has_come: Callable[[], object]) -> None:
        """Wait for something that messages of the server bring about."""
        with anyio.fail_after(WAIT_S):
            while not has_come():
                self._grew.clear()
                await self._grew.wait()

    def observe(self, event: StreamEvent) -> None:
        """Take a message of the server."""
        if event.direction is not StreamDirection.INCOMING:
            return
        message = event.message
        if (kind := _CHECKED.get(message.get("method", ""))) is not None:
            read = kind.model_validate(message["params"])
            known = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
            assert known == message["params"]
        self.sent.append(message)
        self._grew.set()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Take an update: `observe` has it already."""

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> RequestPermissionResponse:
        """Answer a question for permission."""
        if self.hold is not None:
            await self.hold.wait()
        option = next(each for each in options if each.kind == self.chosen)
        outcome = AllowedOutcome(outcome="selected", option_id=option.option_id)
        return RequestPermissionResponse(outcome=outcome)

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        """Fill a form, or open an address."""
        return AcceptElicitationResponse(action="accept", content=self.fill or None)


@asynccontextmanager
async def acp_socket(
    url: str, capabilities: Message | None = None, *, introduced: bool = True
) -> AsyncIterator[tuple[Editor, Any]]:
    """Connect an editor to a server's WebSocket; gives it and the connection of the SDK."""
    transport = await create_websocket_stream(f"{url}/acp")
    async with connected(transport, None, capabilities, introduced=introduced) as both:
        yield both


@asynccontextmanager
async def connected(
    to_server: Any, from_server: Any, capabilities: Message | None, *, introduced: bool = True
) -> AsyncIterator[tuple[Editor, Any]]:
    """Connect an editor by a transport of the SDK, or two streams."""
    editor = Editor()
    agent: Any = acp.connect_to_agent(
        editor,  # type: ignore[arg-type]  # it has what the server asks for
        to_server,
        from_server,
        use_unstable_protocol=True,
        observers=[editor.observe],
    )
    try:
        if introduced:
            await agent.initialize(
                protocol_version=acp.PROTOCOL_VERSION,
                client_capabilities=acp.schema.ClientCapabilities.model_validate(
                    capabilities or {}
                ),
                client_info=acp.schema.Implementation(name="editor", version="1"),
            )
        yield editor, agent
    finally:
        with anyio.CancelScope(shield=True), anyio.fail_after(WAIT_S):
            await agent.close()


@asynccontextmanager
async def acp_session(
    served: Served, folder: Path, capabilities: Message | None = None, **more: Any
) -> AsyncIterator[tuple[Editor, Any, str]]:
    """Open a session over the server's WebSocket; gives its id too."""
    async with acp_socket(served.urls[0], capabilities) as (editor, agent):
        opened = await agent.new_session(cwd=str(folder), mcp_servers=[], **more)
        yield editor, agent, opened.session_id


def prompt(text: str) -> list[Any]:
    """Make a prompt of a text."""
    return [acp.text_block(text)]
