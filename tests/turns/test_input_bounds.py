"""Budgets: the bound of a request's input, over what may become of a history."""

from pathlib import Path
from typing import Any

from pydantic_core import to_json

from app_server.models.prompt.context import MOST_IMAGE_TOKENS, most_tokens
from app_server.threads.log.state import ThreadState
from app_server.threads.usage import Usage
from protocol.model import JsonObject
from tests.support.harness import Served, claim, serve
from tests.support.model import says
from tests.support.turn_tools.usage import counted
from tests.support.turns import raw

BUDGET = {"tokens": 10_000_000}


class Requests:
    """Requests that the next one of a loaded thread may be."""

    def __init__(self, served: Served, thread_id: str) -> None:
        session = served.services.sessions.find(thread_id)
        assert session is not None
        self.state: ThreadState = session.context.log.state
        self._budgets = session.context.usage.budgets
        last = served.model.requests[-1]
        self.instructions, self.tools, self._text = (
            last["instructions"],
            last["tools"],
            last.get("text"),
        )
        self._before = [item for item in last["input"] if item not in self.state.history]

    def sizes(self, instructions: str, new: list[JsonObject]) -> tuple[int, int]:
        """Return the bytes of what is around the history, and of items."""
        parts = [instructions, self.tools, self._text, self._before]
        return len(to_json(parts)), len(to_json(new))

    async def bound(self, instructions: str, *new: JsonObject) -> int:
        """Return the most tokens of input that a request is taken to have."""
        body: JsonObject = {
            "instructions": instructions,
            "tools": self.tools,
            "input": [*self._before, *self.state.history, *new],
        }
        if self._text is not None:
            body["text"] = self._text
        reservation = await self._budgets.reserve("turn", body)
        assert reservation is not None
        assert reservation.output_tokens is not None
        await self._budgets.settle(reservation, Usage())
        return reservation.taken["tokens"] - reservation.output_tokens


NEW = raw("next, with ünï", "user")


@claim("budgets:input")
async def test_input_is_bounded_by_what_was_counted_and_the_bytes_of_what_came_since(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(budget=BUDGET)
        served.model.scripts.append(counted(says("ok"), 777, 10))
        await client.turn(thread_id, "hello")
        requests = Requests(served, thread_id)
        said = requests.instructions
        assert requests.state.counted is not None
        counted_items = requests.state.counted.items
        answered = requests.state.history[counted_items:]
        assert [item["role"] for item in answered] == ["assistant"]
        around, new = requests.sizes(said, [*answered, NEW])
        assert await requests.bound(said, NEW) == 777 + new
        # The instructions were others: they were not counted.
        around, _ = requests.sizes("other", [])
        assert await requests.bound("other", NEW) == 777 + around + new
        # So it is for a compaction, which has no tools and a prompt behind the history.
        tools, requests.tools = requests.tools, []
        around, _ = requests.sizes(said, [])
        assert await requests.bound(said, NEW) == 777 + around + new
        requests.tools = tools
        # Another model counts otherwise.
        settings = {"threadId": thread_id, "model": "other"}
        await client.call("thread/settings/update", settings)
        around, whole = requests.sizes(said, [*requests.state.history, NEW])
        assert await requests.bound(said, NEW) == around + whole
        await client.call("thread/settings/update", {**settings, "model": "scripted"})
        _, new = requests.sizes(said, [*requests.state.history[counted_items:], NEW])
        assert await requests.bound(said, NEW) == 777 + new
    # After a restart nobody knows any more what was around it.
    async with serve(tmp_path) as served, served.client() as client:
        await client.call("thread/resume", {"threadId": thread_id})
        served.model.requests.append(_body_of(said, requests))
        again = Requests(served, thread_id)
        assert again.state.counted is not None
        around, new = again.sizes(said, [*again.state.history[again.state.counted.items :], NEW])
        assert again.state.counted == requests.state.counted
        assert await again.bound(said, NEW) == 777 + around + new


def _body_of(instructions: str, requests: Requests) -> Any:
    return {"instructions": instructions, "tools": [], "input": requests.state.history}


@claim("budgets:input")
async def test_what_was_counted_holds_no_more_once_the_history_is_another(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(budget=BUDGET)
        turns = []
        for text in ("one", "two"):
            served.model.scripts.append(counted(says("ok"), 777, 10))
            turns.append(await client.turn(thread_id, text))
        await client.call("thread/revert", {"threadId": thread_id, "beforeTurnId": turns[1]["id"]})
        requests = Requests(served, thread_id)
        around, whole = requests.sizes("i", [*requests.state.history, NEW])
        assert await requests.bound("i", NEW) == around + whole
        served.model.scripts.append(counted(says("ok"), 777, 10))
        await client.turn(thread_id, "three")
        assert requests.state.counted is not None
        served.model.scripts.append(counted(says("a summary"), 9_999, 10))
        await client.call("thread/compact/start", {"threadId": thread_id})
        await client.wait_for("turn/completed")
        requests = Requests(served, thread_id)
        around, whole = requests.sizes("i", [*requests.state.history, NEW])
        assert await requests.bound("i", NEW) == around + whole


def test_an_image_has_the_most_that_a_model_counts_and_other_media_their_bytes() -> None:
    def message(*parts: JsonObject | None) -> JsonObject:
        return {"type": "message", "role": "user", "content": list(parts)}

    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 1_000_000}
    file = {"type": "input_file", "file_data": "A" * 100_000}
    plain = len(to_json([message(None, None)]))
    assert most_tokens([message(image, image)]) == plain + 2 * MOST_IMAGE_TOKENS
    assert most_tokens([message(file)]) == len(to_json([message(file)]))
