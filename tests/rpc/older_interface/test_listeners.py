"""How many conversations a connection of the older interface can listen to, without a server."""

import json
from collections.abc import Sequence
from typing import Any

from app_server.rpc.older_interface.stream import MAX_LISTENERS, OlderInterface
from tests.support.harness import claim


class Messages:
    """A pipe whose client says what it is given, and keeps what it is sent."""

    def __init__(self) -> None:
        self.of_client: list[str] = []
        self.sent: list[Any] = []

    async def receive(self) -> str:
        return self.of_client.pop(0)

    async def send(self, *texts: str) -> None:
        self.sent += [json.loads(text) for text in texts]

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        raise AssertionError


def conversation(number: int) -> str:
    return f"conversation {number}"


async def begin(older: OlderInterface, pipe: Messages, number: int) -> None:
    """Let the client begin a conversation and a server answer."""
    pipe.of_client.append(json.dumps({"id": number, "method": "newConversation"}))
    asked = json.loads(await older.receive())
    assert asked["method"] == "thread/start"
    result = {"thread": {"id": conversation(number)}, "model": "m"}
    await older.send(json.dumps({"id": asked["id"], "result": result}))


async def methods_of(
    older: OlderInterface, pipe: Messages, conversations: Sequence[str]
) -> list[str]:
    """Return in which form a warning of each conversation comes."""
    pipe.sent.clear()
    for conversation_id in conversations:
        params = {"threadId": conversation_id, "message": "!"}
        await older.send(json.dumps({"method": "warning", "params": params}))
    return [message["method"] for message in pipe.sent]


@claim("older:listeners")
async def test_the_newest_conversations_without_a_listener_send_events() -> None:
    pipe = Messages()
    older = OlderInterface(pipe)
    for number in range(MAX_LISTENERS + 1):
        await begin(older, pipe, number)
    asked = [conversation(0), conversation(1), conversation(MAX_LISTENERS)]
    assert await methods_of(older, pipe, asked) == [
        "warning",
        "codex/event/warning",
        "codex/event/warning",
    ]


@claim("older:listeners")
async def test_a_connection_has_at_most_1000_listeners() -> None:
    pipe = Messages()
    older = OlderInterface(pipe)
    await begin(older, pipe, 0)
    for number in range(MAX_LISTENERS + 1):
        listen = {"conversationId": conversation(number)}
        pipe.of_client.append(
            json.dumps({"id": number, "method": "addConversationListener", "params": listen})
        )
    pipe.of_client.append("{}")
    pipe.sent.clear()
    assert await older.receive() == "{}"
    assert all("result" in message for message in pipe.sent[:MAX_LISTENERS])
    (refused,) = pipe.sent[MAX_LISTENERS:]
    rule = "has 1000 listeners already"
    assert refused["error"] == {
        "code": -32602,
        "message": f"Invalid params: `conversationId` {rule}",
        "data": {"code": "invalidParams", "field": "conversationId", "rule": rule},
    }
