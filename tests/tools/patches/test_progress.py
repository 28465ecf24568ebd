"""patch:early: clients see a patch while the model writes it."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import claim
from tests.support.model import COMPLETED
from tests.support.turn_tools.patches import custom_call, patch_of, workspace
from tests.support.turns import start_turn

ON = "[features]\napply_patch_streaming_events = true\n"
PATCH = patch_of("*** Add File: new.txt", "+one", "+two", "*** Delete File: a.txt")
FIRST = "*** Begin Patch\n*** Add File: new.txt\n"
ADDED = {"path": "new.txt", "kind": {"type": "add"}}
DELETED = {"path": "a.txt", "kind": {"type": "delete"}, "diff": ""}


def streamed(text: str, size: int, name: str = "apply_patch") -> list[Any]:
    """Make an answer that is a call whose input comes in pieces; the first is `FIRST`."""
    call = {**custom_call(text), "name": name}
    pieces = [FIRST] + [text[at : at + size] for at in range(len(FIRST), len(text), size)]
    begun = {**call, "input": "", "status": "in_progress"}
    kind, of = "response.custom_tool_call_input.delta", {"item_id": call.get("id")}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        *({"type": kind, "output_index": 0, "delta": piece, **of} for piece in pieces),
        {"type": "response.output_item.done", "output_index": 0, "item": call},
        COMPLETED,
    ]


async def progress(tmp_path: Path, config: str, answer: list[Any]) -> list[dict[str, Any]]:
    async with workspace(tmp_path, config) as work:
        work.served.model.scripts.append(answer)
        await start_turn(work.client, work.thread_id, "go")
        messages = await work.client.until("turn/completed")
        methods = [message.get("method") for message in messages]
        updates = [
            n for n, method in enumerate(methods) if method == "item/fileChange/patchUpdated"
        ]
        if "item/fileChange/patchUpdated" in methods:
            assert updates[-1] < min(
                number
                for number, message in enumerate(messages)
                if message.get("params", {}).get("item", {}).get("type") == "fileChange"
            )
        return [messages[number]["params"] for number in updates]


@claim("patch:early")
async def test_the_first_comes_with_the_first_file_and_the_last_has_all(tmp_path: Path) -> None:
    updates = await progress(tmp_path, ON, streamed(PATCH, 5))
    assert {update["itemId"] for update in updates} == {"call_1"}
    assert updates[0]["changes"] == [{**ADDED, "diff": ""}]
    assert updates[-1]["changes"] == [DELETED, {**ADDED, "diff": "one\ntwo\n"}]
    assert set(updates[0]) == {"threadId", "turnId", "itemId", "changes"}


@claim("patch:early")
@pytest.mark.parametrize(
    ("config", "answer"),
    [("", streamed(PATCH, 5)), (ON, [*streamed(PATCH, 5)[:1], *streamed(PATCH, 5)[-2:]])],
    ids=["the feature is off", "the model sends no pieces"],
)
async def test_else_nothing_is_sent_early(tmp_path: Path, config: str, answer: list[Any]) -> None:
    assert await progress(tmp_path, config, answer) == []
