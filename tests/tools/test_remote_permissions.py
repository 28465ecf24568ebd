"""request_permissions: what is granted in another environment."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import claim
from tests.support.host.elsewhere import add, entry
from tests.support.host.exec_conversations import listening
from tests.support.model import calls, says
from tests.support.turn_tools.patches import Workspace, patch_of, workspace, workspace_there
from tests.support.turn_tools.permission_requests import METHOD, ON, READ_ONLY, granting, writing
from tests.support.turn_tools.turn_commands import CommandResult, Desk, command

NO_TMP = {
    "type": "workspaceWrite",
    "writableRoots": [],
    "networkAccess": False,
    "excludeTmpdirEnvVar": True,
    "excludeSlashTmp": True,
}


def touch(path: Path, **more: Any) -> Any:
    """Script a command that makes a file."""
    return calls(command(f"touch {path}", **more))


async def ask(work: Workspace, answer: dict[str, Any], *then: Any, **arguments: Any) -> Any:
    """Run a turn that asks and then plays more; return the question."""
    asking = calls({"name": "request_permissions", "arguments": arguments})
    work.served.model.scripts[:] = [asking, *then, says("done")]
    params = {"threadId": work.thread_id, "input": [{"type": "text", "text": "go"}]}
    await work.client.call("turn/start", params)
    question = await work.client.wait_for(METHOD)
    await work.client.send({"id": question["id"], "result": answer})
    await work.client.wait_for("turn/completed")
    return question["params"]


@claim("environment:permissions")
@pytest.mark.parametrize("policy", [READ_ONLY, NO_TMP])
async def test_what_is_granted_there_can_be_written_there(tmp_path: Path, policy: Any) -> None:
    outside = tmp_path.resolve() / "outside"
    outside.mkdir()
    options: dict[str, Any] = {"sandbox_policy": policy, "approvalPolicy": "on-request"}
    async with workspace_there(tmp_path, ON, **options) as work:
        grant = granting(str(outside), scope="session")
        made = touch(outside / "made")
        question = await ask(work, grant, made, permissions=writing("../outside"))
        assert (question["environmentId"], question["cwd"]) == ("there", str(work.folder))
        assert question["permissions"]["fileSystem"]["write"] == [str(outside)]
        assert "exited with code 0" in work.output()
        await work.apply(patch_of(f"*** Add File: {outside}/patched", "+x"))
        assert {path.name for path in outside.iterdir()} == {"made", "patched"}
        at = Desk(work.served, work.client, work.thread_id, work.folder)
        work.served.model.scripts[:] = []
        await work.client.call(
            "thread/settings/update", {"threadId": work.thread_id, "approvalPolicy": "never"}
        )
        [protected] = await at.run_calls(
            command(f"mkdir -p {outside}/.git && touch {outside}/.git/x")
        )
        assert protected.exit_code == 1


@claim("environment:permissions")
async def test_a_grant_holds_in_its_environment_alone(tmp_path: Path) -> None:
    outside, far = tmp_path.resolve() / "outside", tmp_path / "far"
    outside.mkdir()
    far.mkdir()
    async with listening() as url, workspace(tmp_path, ON, sandbox_policy=NO_TMP) as work:
        await add(work.client, url)
        chosen = [entry(work.folder, "local"), entry(far)]
        await work.client.call(
            "thread/settings/update",
            {"threadId": work.thread_id, "environments": chosen},
        )
        grant = granting(str(outside), scope="session")
        question = await ask(work, grant, permissions=writing(str(outside)), environment_id="there")
        assert (question["environmentId"], question["cwd"]) == ("there", str(far))
        assert json.loads(work.output()) == {
            "permissions": {"network": None, "file_system": {"write": [str(outside)]}},
            "scope": "session",
        }
        await work.client.call(
            "thread/settings/update", {"threadId": work.thread_id, "approvalPolicy": "never"}
        )
        at = Desk(work.served, work.client, work.thread_id, work.folder)
        here, there = await at.run_calls(
            command(f"touch {outside}/here"),
            command(f"touch {outside}/there", environment_id="there"),
        )
        assert (here.exit_code, there.exit_code) == (1, 0)
        # What the sandbox put there for protected folders goes after the command has ended.
        assert [path.name for path in outside.iterdir() if path.is_file()] == ["there"]


@claim("environment:permissions")
async def test_nothing_granted_there_holds_in_plan_mode(tmp_path: Path) -> None:
    outside = tmp_path.resolve() / "outside"
    outside.mkdir()
    options: dict[str, Any] = {"sandbox_policy": NO_TMP, "approvalPolicy": "on-request"}
    async with workspace_there(tmp_path, ON, **options) as work:
        grant = granting(str(outside), scope="session")
        await ask(work, grant, permissions=writing(str(outside)))
        mode: Any = {"mode": "plan", "settings": {"model": "gpt-5.5"}}
        work.served.model.scripts[:] = [touch(outside / "made"), says("done")]
        await work.client.turn(work.thread_id, "plan", collaborationMode=mode)
        assert "exited with code 1" in work.output()
        assert list(outside.iterdir()) == []


@claim("environment:permissions")
@pytest.mark.parametrize(
    ("config", "printed"), [(ON, "in\n"), (f"{ON}network_proxy = true\n", "out\n")]
)
async def test_a_network_can_be_granted_there_unless_it_is_the_proxy_of_this_machine(
    tmp_path: Path, config: str, printed: str
) -> None:
    options: dict[str, Any] = {"sandbox_policy": READ_ONLY, "approvalPolicy": "on-request"}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        line = command(f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && echo in || echo out")
        async with workspace_there(tmp_path, config, **options) as work:
            grant = {"permissions": {"network": {"enabled": True}}, "scope": "turn"}
            wanted = {"network": {"enabled": True}}
            await ask(work, grant, calls(line), permissions=wanted)
            assert CommandResult(work.output()).output.endswith(printed)
            await work.client.call(
                "thread/settings/update", {"threadId": work.thread_id, "approvalPolicy": "never"}
            )
            at = Desk(work.served, work.client, work.thread_id, work.folder)
            [after] = await at.run_calls(line)
            assert after.output.endswith("out\n")
