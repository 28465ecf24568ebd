"""patch: patches in commands."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import claim
from tests.support.model import calls
from tests.support.turn_tools.patch_items import (
    ADD,
    ADDED,
    ADDED_DIFF,
    END,
    READ_ONLY,
    SUCCESS,
    sent,
    without_time,
)
from tests.support.turn_tools.patches import (
    patch_of,
    workspace,
)
from tests.support.turns import start_turn


def shell(script: str, **arguments: Any) -> dict[str, Any]:
    return {"name": "exec_command", "arguments": {"cmd": script, **arguments}}


@claim("patch:heredoc")
@pytest.mark.parametrize(
    ("script", "workdir", "name"),
    [
        (f"apply_patch <<'EOF'\n{ADD}\nEOF\n", None, "new.txt"),
        (f"apply_patch <<'EOF'\n{ADD}\nEOF\n", "sub", "sub/new.txt"),
        (f"cd 'sub dir' && apply_patch <<EOF\n{ADD}\nEOF", None, "sub dir/new.txt"),
        (f"cd dir && apply_patch <<'EOF'\n{ADD}\nEOF", "sub", "sub/dir/new.txt"),
    ],
)
async def test_a_patch_in_a_command_is_a_patch(
    tmp_path: Path, script: str, workdir: str | None, name: str
) -> None:
    async with workspace(tmp_path) as work:
        arguments = {} if workdir is None else {"workdir": workdir}
        work.served.model.scripts.append(calls(shell(script, **arguments)))
        await start_turn(work.client, work.thread_id, "go")
        changes = [{**ADDED[0], "path": f"WS/{name}"}]
        assert await work.rest() == [
            *sent(changes),
            ("turn/diff/updated", ADDED_DIFF.replace("new.txt", name)),
            END,
        ]
        head, _, output = work.output().partition("Exit code: 0\n")
        assert head == "Wall time: 0.0000 seconds\nOutput:\n"
        assert without_time(f"Exit code: 0\n{output}") == f"{SUCCESS}A new.txt\n"


@claim("patch:heredoc")
@pytest.mark.parametrize(
    ("script", "output"),
    [
        (
            "apply_patch <<'EOF'\nbogus\nEOF",
            "apply_patch verification failed: invalid patch: The first line of the patch must be "
            "'*** Begin Patch'",
        ),
        (
            f"apply_patch <<'EOF'\n{patch_of('*** Update File: a.txt', '-no')}\nEOF",
            "apply_patch verification failed: Failed to find expected lines in WS/a.txt:\nno",
        ),
        (
            ADD,
            "apply_patch verification failed: this is a patch and not a command; call apply_patch "
            "with it",
        ),
    ],
)
async def test_a_patch_in_a_command_may_not_fit(tmp_path: Path, script: str, output: str) -> None:
    async with workspace(tmp_path) as work:
        work.served.model.scripts.append(calls(shell(script)))
        await start_turn(work.client, work.thread_id, "go")
        assert await work.rest() == [END]
        assert work.output() == output


@claim("patch:heredoc")
async def test_patches_in_commands_are_asked_about_and_follow_each_other(tmp_path: Path) -> None:
    async with workspace(tmp_path, sandbox_policy=READ_ONLY) as work:
        update_new = patch_of("*** Update File: new.txt", "-one", "+1")
        work.served.model.scripts.append(
            calls(*(shell(f"apply_patch <<'EOF'\n{text}\nEOF") for text in (ADD, update_new)))
        )
        await start_turn(work.client, work.thread_id, "go")
        await work.answer("acceptForSession")
        shown = await work.rest()
        ended = [value[0] for method, value in shown if method == "item/completed"]
        assert ended == ["completed", "completed"]
        assert (work.folder / "new.txt").read_text() == "1\ntwo\n"
