"""Named requests whose lines were torn by the death of their server, and that are sent again."""

import json
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.again.cases import named, requests
from tests.support.again.scene import set_up, world
from tests.support.harness import WireClient, claim, serve

GROUPS = ("thread/goal/set", "turn/start")
"""A method that appends one line, and one that appends several."""


def ends(content: bytes, start: int) -> Sequence[int]:
    """Return the lengths of a log that end with a line of a request's append, or within one."""
    lines = content[start:].splitlines(keepends=True)
    (logged,) = [line for line in lines if b'"type":"operationLogged"' in line]
    begins = content.index(logged, start)
    sizes = [len(logged)]
    behind = content[begins + len(logged) :].splitlines(keepends=True)
    sizes += [len(line) for line in behind[: json.loads(logged)["lines"]]]
    found, end = [begins], begins
    for size in sizes:
        found += [end + size // 2, end + size]
        end += size
    return found


async def load(client: WireClient, thread_id: str) -> None:
    """Load a thread, once the server holds it no more to repair its row of the index."""
    params = {"threadId": thread_id, "excludeTurns": True}
    while "error" in (answer := await client.answer(await client.request("thread/resume", params))):
        assert answer["error"]["data"]["code"] == "threadBusy"


@claim("again:operation-kill")
@pytest.mark.parametrize("method", GROUPS)
async def test_a_named_request_whose_append_was_torn_has_its_effect_once(
    tmp_path: Path, method: str
) -> None:
    home, kept = tmp_path / "home", tmp_path / "kept"
    async with set_up(home) as (_, client, scene):
        params: Any = named(requests(scene)[method])
        thread_id = params["threadId"]
        read = await client.call("thread/read", {"threadId": thread_id})
        path = Path(read["thread"]["path"])
        start = path.stat().st_size
        await client.call(method, params)
        if method == "turn/start":
            await client.wait_for("turn/completed", lambda p: p["threadId"] == thread_id)
    with closing(sqlite3.connect(home / "operations" / "ledger.sqlite3")) as ledger:
        ledger.execute("UPDATE operations SET is_done = 0, answer = NULL")
        ledger.commit()
    whole = path.read_bytes()
    shutil.copytree(home, kept, symlinks=True)
    worlds = []
    for end in ends(whole, start):
        shutil.rmtree(home)
        shutil.copytree(kept, home, symlinks=True)
        path.write_bytes(whole[:end])
        async with serve(home) as served, served.client() as client:
            await load(client, thread_id)
            answer = await client.call(method, params)
            assert await client.call(method, params) == answer
        worlds.append(world(home, with_history=False))
    assert worlds == [worlds[0]] * len(worlds)
