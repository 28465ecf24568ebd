"""A client that joins while a command runs hears all of its output, and nothing twice."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app_server.turns.commands import SNAPSHOT_BYTES
from tests.support.files.fifos import write_fifo
from tests.support.harness import WireClient, claim
from tests.support.turn_tools.turn_commands import DELTA, Desk, command, desk

LINE = "mkfifo one two; printf 'caf\\303'; read x < one; printf '\\251\\n'; read x < two; echo end"


async def begin(at: Desk, line: str, first: str, *, behind: bool) -> str:
    """Run a command until `first` was printed; gives its item's id."""
    if behind:
        await at.go_on(command(line), first)
        [item] = at.items("item/started")
    else:
        await at.start(command(line))
        [item] = [(await at.client.wait_for("item/started", is_command))["params"]["item"]]
        assert (await at.client.wait_for(DELTA))["params"]["delta"] == first
    item_id: str = item["id"]
    return item_id


def is_command(params: Any) -> bool:
    return bool(params["item"]["type"] == "commandExecution")


async def joined(
    client: WireClient, thread_id: str, *, paged: bool = False
) -> tuple[list[dict[str, Any]], list[Any]]:
    """Join; gives the command items of the answer, and what was sent since."""
    page = {"excludeTurns": True, "initialTurnsPage": {"itemsView": "full"}} if paged else {}
    answer = await client.call("thread/resume", {"threadId": thread_id, **page})
    turns = answer["initialTurnsPage"]["data"] if paged else answer["thread"]["turns"]
    items = [item for turn in turns for item in turn["items"]]
    return [i for i in items if i["type"] == "commandExecution"], client.take_kept()


async def until_end(client: WireClient, kept: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Return the output that a client hears until the command's end, and the completed item."""
    messages = list(kept)
    while not (
        messages
        and messages[-1].get("method") == "item/completed"
        and messages[-1]["params"]["item"]["type"] == "commandExecution"
    ):
        messages.append(await client.receive())
    heard = [message["params"]["delta"] for message in messages if message.get("method") == DELTA]
    return "".join(heard), messages[-1]["params"]["item"]


@claim("commands:join")
@pytest.mark.parametrize("paged", [False, True], ids=["all turns", "a page of turns"])
@pytest.mark.parametrize("behind", [False, True], ids=["in a turn", "behind the turns"])
async def test_what_was_printed_and_what_comes_are_the_whole_output(
    tmp_path: Path, *, behind: bool, paged: bool
) -> None:
    async with desk(tmp_path) as at, at.served.client() as second:
        item_id = await begin(at, LINE, "caf", behind=behind)
        [shown], kept = await joined(second, at.thread_id, paged=paged)
        # The begin of the character waits for its rest.
        assert (shown["id"], shown["status"], shown["aggregatedOutput"]) == (
            item_id,
            "inProgress",
            "caf",
        )
        for name in ("one", "two"):
            await write_fifo(at.folder / name, "\n")
        heard, completed = await until_end(second, kept)
        assert shown["aggregatedOutput"] + heard == completed["aggregatedOutput"] == "café\nend\n"


@claim("commands:join")
async def test_what_is_shown_of_the_output_is_bounded(tmp_path: Path) -> None:
    async with desk(tmp_path) as at, at.served.client() as second:
        line = "mkfifo go; echo begin; yes 0123456789 | head -c 3000008; echo last; read x < go"
        await at.start(command(line))
        printed = ""
        while not printed.endswith("last\n"):
            printed += (await at.client.wait_for(DELTA))["params"]["delta"]
        [shown], _ = await joined(second, at.thread_id)
        output = shown["aggregatedOutput"]
        begin, left_out, last = output.partition(" bytes left out ...]\n")
        begin, _, count = begin.rpartition("\n[... ")
        assert (begin[:6], left_out != "", last[-6:]) == ("begin\n", True, "\nlast\n")
        assert len(begin) + len(last) <= SNAPSHOT_BYTES
        assert len(begin) + len(last) + int(count) == len("begin\nlast\n") + 3_000_008
        await write_fifo(at.folder / "go", "\n")
        await at.client.until("turn/completed")
