"""patch: a server that is killed while it writes one; the next server finds out what it did."""

from pathlib import Path
from typing import Any

import pytest

from app_server.patch.write import TEMPORARY_SUFFIX
from tests.support.dying import dying
from tests.support.harness import claim, serve, write_config
from tests.support.model import ScriptedModel
from tests.support.processes import running
from tests.support.turn_tools.patches import answer_of, custom_call, patch_of
from tests.support.turns import start_turn

PATCH = patch_of(
    "*** Update File: a.txt",
    "-one",
    "+two",
    "*** Add File: new.txt",
    "+new",
    "*** Delete File: gone.txt",
    "*** Update File: from.txt",
    "*** Move to: to.txt",
    "-one",
    "+two",
)
BEFORE = {"a.txt": "one\n", "gone.txt": "gone\n", "from.txt": "one\n"}


def edited(name: str) -> dict[str, Any]:
    return {"path": name, "kind": {"type": "update", "move_path": None}, "diff": ""}


def added(name: str) -> dict[str, Any]:
    return {"path": name, "kind": {"type": "add"}, "diff": ""}


def deleted(name: str) -> dict[str, Any]:
    return {"path": name, "kind": {"type": "delete"}, "diff": ""}


@claim("patch:crash")
@pytest.mark.process
@pytest.mark.parametrize(
    ("step", "files", "changes"),
    [
        (1, BEFORE, []),
        (3, BEFORE, []),
        (4, {**BEFORE, "a.txt": "two\n"}, [edited("a.txt")]),
        (
            6,
            {"a.txt": "two\n", "new.txt": "new\n", "from.txt": "one\n"},
            [edited("a.txt"), deleted("gone.txt"), added("new.txt")],
        ),
        (
            7,
            {"a.txt": "two\n", "new.txt": "new\n", "from.txt": "one\n", "to.txt": "two\n"},
            [edited("a.txt"), deleted("gone.txt"), added("new.txt"), added("to.txt")],
        ),
    ],
)
async def test_the_next_server_says_what_was_changed(
    tmp_path: Path,
    step: int,
    files: dict[str, str],
    changes: list[Any],
) -> None:
    folder, home = tmp_path.resolve() / "work", tmp_path / "home"
    folder.mkdir()
    for name, text in BEFORE.items():
        (folder / name).write_text(text)
    async with ScriptedModel().serve() as model:
        write_config(home, model.url)
        async with running(home, **dying(step)) as server, server.client() as client:
            thread_id = await client.start_thread(
                cwd=str(folder), model="gpt-5.5", sandbox="workspace-write"
            )
            model.scripts.append(answer_of(custom_call(PATCH)))
            turn_id = await start_turn(client, thread_id, "go")
            assert await server.ended() == -9
        async with serve(home, model=model) as served, served.client() as client:
            found = await client.call("thread/resume", {"threadId": thread_id})
            (turn,) = found["thread"]["turns"]
            assert (turn["id"], turn["status"]) == (turn_id, "interrupted")
            (item,) = [one for one in turn["items"] if one["type"] == "fileChange"]
            assert (item["id"], item["status"]) == ("call_1", "failed")
            shown = [{**one, "path": Path(one["path"]).name} for one in item["changes"]]
            assert shown == changes
            left = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
            assert not [name for name in left if name.endswith(TEMPORARY_SUFFIX)]
            assert left == files
            # The next turn works.
            assert (await client.turn(thread_id, "on"))["status"] == "completed"
        async with serve(home, model=model) as served, served.client() as client:
            found = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
            items = [one for turn in found["thread"]["turns"] for one in turn["items"]]
            assert [one["type"] for one in items].count("fileChange") == 1
