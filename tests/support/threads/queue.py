"""The queue of a thread, over one client."""

from typing import Any

from protocol.log.rollout import (
    SubmissionQueued,
    SubmissionTaken,
)
from protocol.turns.items import TextUserInput
from tests.support.harness import Served, WireClient
from tests.support.model import Gate, says


def text(words: str) -> list[dict[str, Any]]:
    """Return the input of a turn."""
    return [{"type": "text", "text": words}]


class Queue:
    """The queue of one thread, over one client."""

    def __init__(self, client: WireClient, thread_id: str) -> None:
        self.client = client
        self.thread_id = thread_id

    async def call(self, verb: str, **params: Any) -> Any:
        return await self.client.call(
            f"thread/queue/{verb}", {"threadId": self.thread_id, **params}
        )

    async def refusal(self, verb: str, **params: Any) -> tuple[int, str, Any]:
        error = await self.client.refusal(
            f"thread/queue/{verb}", {"threadId": self.thread_id, **params}
        )
        return error.code, error.message, error.data

    async def add(self, words: str, client_id: str | None = None, **params: Any) -> str:
        answer = await self.call(
            "add",
            input=text(words),
            clientUserMessageId=words if client_id is None else client_id,
            **params,
        )
        submission_id: str = answer["queuedSubmission"]["id"]
        return submission_id

    async def words(self) -> list[str]:
        page = await self.call("list", limit=100)
        return [entry["input"][0]["text"] for entry in page["data"]]

    async def turn(self) -> dict[str, Any]:
        """Wait for the end of a turn and return it."""
        end = await self.client.wait_for("turn/completed")
        turn: dict[str, Any] = end["params"]["turn"]
        return turn

    async def messages(self) -> list[list[str]]:
        """Return what the user said, turn by turn."""
        thread = await self.client.call(
            "thread/read", {"threadId": self.thread_id, "includeTurns": True}
        )
        return [
            [item["content"][0]["text"] for item in turn["items"] if item["type"] == "userMessage"]
            for turn in thread["thread"]["turns"]
        ]


async def busy(served: Served, client: WireClient) -> tuple[Queue, Gate, str]:
    """Start a thread with a turn that stands at a gate."""
    queue = Queue(client, await client.start_thread())
    gate = Gate()
    script = says("first")
    served.model.scripts.append([*script[:2], gate, *script[2:]])
    answer = await client.call("turn/start", {"threadId": queue.thread_id, "input": text("one")})
    await gate.wait_until_reached()
    return queue, gate, answer["turn"]["id"]


def entry(number: int, words: str = "x", client_id: str | None = None) -> SubmissionQueued:
    """Return the record of an input that waits."""
    return SubmissionQueued(
        at_ms=number,
        submission_id=f"s{number}",
        client_user_message_id=f"c{number}" if client_id is None else client_id,
        input=[TextUserInput(type="text", text=words)],
    )


def taken(number: int) -> SubmissionTaken:
    """Return the record of an input that became a turn."""
    return SubmissionTaken(at_ms=0, submission_id=f"s{number}")
