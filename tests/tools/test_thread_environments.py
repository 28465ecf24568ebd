"""tools: threads whose environments are other machines."""

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import claim, serve
from tests.support.host.elsewhere import add, desk_there, entry, facts
from tests.support.host.exec_conversations import listening
from tests.support.model import Gate, calls, says
from tests.support.turn_tools.patches import patch_of
from tests.support.turn_tools.turn_commands import CommandResult, Desk, command, desk

INTO_SECRET = patch_of("*** Update File: secret.env", "-secret", "+known")
INTO_SETTINGS = patch_of("*** Add File: .codex/config.toml", "+x")


@pytest.fixture(autouse=True)
def _shell_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name one: without `SHELL`, a machine names the shell that the system has for the user."""
    monkeypatch.setenv("SHELL", "/bin/sh")


def exec_parameters(at: Desk) -> dict[str, Any]:
    """Give the parameters of `exec_command` as the model was last shown them."""
    [tool] = [one for one in at.served.model.requests[-1]["tools"] if one["name"] == "exec_command"]
    parameters: dict[str, Any] = tool["parameters"]["properties"]
    return parameters


async def environments(at: Desk) -> Any:
    """Give the environments of the thread, as clients are shown them."""
    read = await at.client.call("thread/read", {"threadId": at.thread_id})
    return read["thread"]["environments"]


@claim("environment:threads")
async def test_commands_of_a_thread_run_in_its_first_environment(tmp_path: Path) -> None:
    async with desk_there(tmp_path) as at:
        (at.folder / "sub").mkdir()
        whole, below = await at.run_calls(command("pwd"), command("pwd", workdir="sub"))
        assert (whole.output, below.output) == (f"{at.folder}\n", f"{at.folder}/sub\n")
        assert sorted(item["cwd"] for item in at.items("item/completed")) == [
            str(at.folder),
            str(at.folder / "sub"),
        ]
        shown = {**entry(at.folder), "runtimeWorkspaceRoots": [str(at.folder)]}
        assert await environments(at) == [shown]
        assert facts(at.served)[0].splitlines()[1:7] == [
            "  <environments>",
            '    <environment id="there" primary="true">',
            f"      <cwd>{at.folder}</cwd>",
            "      <shell>sh</shell>",
            "    </environment>",
            "  </environments>",
        ]
        assert "environment_id" not in exec_parameters(at)
        [refused] = await at.turn(command("pwd", environment_id="local"))
        assert refused == (
            "exec_command failed: unknown environment `local`; this thread has: `there`"
        )


@claim("environment:threads")
async def test_a_thread_has_this_machine_and_others_in_the_order_of_the_client(
    tmp_path: Path,
) -> None:
    far = tmp_path / "far"
    far.mkdir()
    async with listening() as url, desk(tmp_path / "at") as at:
        await add(at.client, url)
        here = entry(at.folder, "local")
        await at.client.call(
            "thread/settings/update",
            {"threadId": at.thread_id, "environments": [entry(far), here]},
        )
        results = await at.run_calls(
            command("pwd"), command("pwd", environment_id="local"), command("pwd")
        )
        assert [one.output for one in results] == [f"{far}\n", f"{at.folder}\n", f"{far}\n"]
        assert exec_parameters(at)["environment_id"]["enum"] == ["there", "local"]
        ids = [one["environmentId"] for one in await environments(at)]
        assert ids == ["there", "local"]
        assert f'"local" primary="false">\n      <cwd>{at.folder}</cwd>' in facts(at.served)[-1]
        await at.client.turn(at.thread_id, "home", environments=[here])
        assert [one["environmentId"] for one in await environments(at)] == ["local"]
        assert "<environments>" not in facts(at.served)[-1]
        [result] = await at.run_calls(command("pwd"))
        assert result.output == f"{at.folder}\n"


@claim("environment:threads")
async def test_a_thread_without_an_environment_runs_and_changes_nothing(tmp_path: Path) -> None:
    async with listening() as url, desk(tmp_path / "at") as at:
        await add(at.client, url)
        await at.client.call(
            "thread/settings/update", {"threadId": at.thread_id, "environments": []}
        )
        added = patch_of("*** Add File: made", "+x")
        outputs = await at.turn(
            command("touch made"),
            command("touch made", environment_id="local"),
            command("touch made", environment_id="there", workdir=str(at.folder)),
            command(f"apply_patch <<'EOF'\n{added}\nEOF\n"),
            {"name": "apply_patch", "arguments": {"input": added}},
            {"name": "view_image", "arguments": {"path": "made"}},
        )
        assert outputs == [
            *["exec_command failed: this thread has no environment"] * 4,
            "apply_patch failed: this thread has no environment",
            "cannot view the image made: this thread has no environment",
        ]
        assert at.items("item/started") == []
        assert list(at.folder.iterdir()) == []
        offered = {tool["name"] for tool in at.served.model.requests[-1]["tools"]}
        assert offered.isdisjoint({"exec_command", "apply_patch", "view_image"})
        # It was for this long.
        await at.client.turn(at.thread_id, "back", environments=[entry(at.folder, "local")])
        assert (await at.run("pwd")).output == f"{at.folder}\n"


@claim("environment:threads")
async def test_only_its_own_folders_are_writable_there(tmp_path: Path) -> None:
    config = "[sandbox_workspace_write]\nexclude_slash_tmp = true\nexclude_tmpdir_env_var = true\n"
    async with desk_there(tmp_path, "workspace-write", config=config) as at:
        other = tmp_path / "other"
        other.mkdir()
        inside, outside = await at.run_calls(
            command("touch made"), command("touch made", workdir=str(other))
        )
        assert (inside.exit_code, outside.exit_code) == (0, 1)
        assert ([*at.folder.iterdir()], [*other.iterdir()]) == ([at.folder / "made"], [])
        await at.client.turn(at.thread_id, "roots", runtimeWorkspaceRoots=[str(other)])
        assert await environments(at) == [entry(at.folder, runtimeWorkspaceRoots=[str(other)])]
        [now] = await at.run_calls(command("touch made", workdir=str(other)))
        assert (now.exit_code, [*other.iterdir()]) == (0, [other / "made"])


@claim("environment:threads")
async def test_a_turn_goes_elsewhere_while_it_runs(tmp_path: Path) -> None:
    far = tmp_path / "far"
    far.mkdir()
    async with listening() as url, desk(tmp_path / "at") as at:
        await add(at.client, url)
        gate = Gate()
        there = {**command("pwd"), "call_id": "there"}
        at.served.model.scripts[:] = [
            calls(command("pwd")),
            [gate, *calls(there)],
            says("done"),
        ]
        params = {"threadId": at.thread_id, "input": [{"type": "text", "text": "go"}]}
        turn = (await at.client.call("turn/start", params))["turn"]
        await gate.wait_until_reached()
        change = {"threadId": at.thread_id, "turnId": turn["id"], "environments": [entry(far)]}
        assert await at.client.call("turn/settings/update", change) == {"status": "applied"}
        gate.opened.set()
        await at.client.wait_for("turn/completed")
        outputs = [CommandResult(text).output for text in at.outputs(2)]
        assert outputs == [f"{at.folder}\n", f"{far}\n"]
        [after] = await at.run_calls(command("pwd"))
        assert after.output == f"{at.folder}\n"


@claim("environment:threads")
async def test_environments_are_stored_with_the_thread(tmp_path: Path) -> None:
    far = tmp_path / "far"
    far.mkdir()
    async with listening() as url:
        async with serve(tmp_path / "home") as served, served.client() as client:
            await add(client, url)
            thread_id = await client.start_thread(
                environments=[entry(far)], sandbox="danger-full-access", approvalPolicy="never"
            )
            await client.turn(thread_id, "first")
        async with serve(tmp_path / "home") as served, served.client() as client:
            resumed = await client.call("thread/resume", {"threadId": thread_id})
            shown = {**entry(far), "runtimeWorkspaceRoots": [str(far)]}
            assert resumed["thread"]["environments"] == [shown]
            assert resumed["runtimeWorkspaceRoots"] == [str(far)]
            at = Desk(served, client, thread_id, far)
            [output] = await at.turn(command("pwd"))
            assert output == "exec_command failed: unknown environment `there`"
            assert (
                '<environment id="there" primary="true" status="unavailable">'
                in (facts(served)[-1])
            )
            await add(client, url)
            [result] = await at.run_calls(command("pwd"))
            assert result.output == f"{far}\n"
            assert "<shell>sh</shell>" in facts(served)[-1]
            forked = await client.call("thread/fork", {"threadId": thread_id})
            assert forked["thread"]["environments"] == [shown]


@claim("environment:threads")
@pytest.mark.parametrize(
    ("chosen", "message", "field"),
    [
        (
            [entry(Path("/")), entry(Path("/"), "nope")],
            "unknown turn environment id `nope`",
            "environments[1].environmentId",
        ),
        (
            [entry(Path("/")), entry(Path("/usr"))],
            "duplicate turn environment id `there`",
            "environments[1].environmentId",
        ),
        (
            [entry(Path("/"), runtimeWorkspaceRoots=["/a", "b"])],
            "Invalid params: `environments[0].runtimeWorkspaceRoots[1]` must be an absolute path",
            "environments[0].runtimeWorkspaceRoots[1]",
        ),
        (
            [entry(Path("/"), runtimeWorkspaceRoots=["/a"] * 101)],
            "Invalid params: `environments[0].runtimeWorkspaceRoots` accepts at most 100 entries",
            "environments[0].runtimeWorkspaceRoots",
        ),
        (
            [{"environmentId": "there", "cwd": "C:\\work"}],
            "Invalid params: `environments[0].cwd` must be an absolute POSIX path",
            "environments[0].cwd",
        ),
    ],
)
async def test_what_cannot_be_chosen_is_named(
    tmp_path: Path, chosen: list[Any], message: str, field: str
) -> None:
    async with listening() as url, desk(tmp_path / "at") as at:
        await add(at.client, url)
        turn = {"threadId": at.thread_id, "input": []}
        for method, params in (
            ("thread/start", {}),
            ("turn/start", turn),
            ("thread/settings/update", {"threadId": at.thread_id}),
        ):
            error = await at.client.refusal(method, {**params, "environments": chosen})
            assert (error.message, error.data["field"]) == (message, field)


@claim("environment:events")
async def test_clients_are_notified_when_an_environment_of_a_thread_comes_and_goes(
    tmp_path: Path,
) -> None:
    far = tmp_path / "far"
    far.mkdir()
    async with desk(tmp_path / "at") as at:
        async with listening() as url:
            await add(at.client, url)
            thread_id = await at.client.start_thread(environments=[entry(far)])
            await at.client.turn(thread_id, "hello")
        gone = await at.client.wait_for("thread/environment/disconnected")
        assert gone["params"] == {"threadId": thread_id, "environmentId": "there"}


@claim("environment:threads")
async def test_settings_of_programs_are_protected_down_to_its_folder(tmp_path: Path) -> None:
    async with desk_there(tmp_path, "workspace-write") as at:
        work = at.folder / "sub"
        work.mkdir()
        chosen = [entry(work, runtimeWorkspaceRoots=[str(at.folder)])]
        await at.client.call(
            "thread/settings/update", {"threadId": at.thread_id, "environments": chosen}
        )
        kept, above, patch_output = await at.turn(
            command("mkdir .codex && touch .codex/x"),
            command("mkdir sub/.codex/y", workdir=".."),
            {"name": "apply_patch", "arguments": {"input": INTO_SETTINGS}},
        )
        assert (CommandResult(kept).exit_code, CommandResult(above).exit_code) == (1, 1)
        assert patch_output.startswith("patch rejected: writing outside of the project")
        [made] = await at.run_calls(command("touch ../made made"))
        assert made.exit_code == 0


@claim("environment:threads")
async def test_a_folder_without_environments_means_this_machine(tmp_path: Path) -> None:
    async with desk_there(tmp_path) as at:
        here = tmp_path / "here"
        here.mkdir()
        await at.client.turn(at.thread_id, "go home", cwd=str(here))
        shown = {**entry(here, "local"), "runtimeWorkspaceRoots": [str(here)]}
        assert await environments(at) == [shown]
        [result] = await at.run_calls(command("pwd"))
        assert result.output == f"{here}\n"


PROFILE = """
[permissions.careful]
extends = ":workspace"
[permissions.careful.filesystem]
":slash_tmp" = "deny"
[permissions.careful.filesystem.":workspace_roots"]
"." = "write"
"docs" = "read"
"**/*.env" = "deny"
[permissions.careful.network]
enabled = true
domains = { "a.example" = "allow" }
"""


@claim("environment:threads")
async def test_a_profile_of_the_configuration_holds_for_its_folders_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        async with desk_there(tmp_path, config=PROFILE) as at:
            (at.folder / "docs").mkdir()
            (at.folder / "docs/a").write_text("text")
            (at.folder / "secret.env").write_text("secret")
            await at.client.call(
                "thread/settings/update", {"threadId": at.thread_id, "permissions": "careful"}
            )
            results = await at.run_calls(
                command("echo made >made; cat docs/a"),
                command("touch docs/b"),
                command("cat secret.env"),
                command(f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'"),
                # Nor does it get a proxy of that machine.
                command("env | grep ^CODEX_NETWORK_PROXY_ACTIVE="),
            )
            assert [one.exit_code for one in results] == [0, 1, 1, 1, 1]
            assert (results[0].output, (at.folder / "made").read_text()) == ("text", "made\n")
            assert "secret\n" not in results[2].output
            [patched] = await at.turn({"name": "apply_patch", "arguments": {"input": INTO_SECRET}})
            assert patched.endswith(
                f"Failed to read file to update {at.folder}/secret.env: not allowed by the sandbox"
            )


OPEN = """
[permissions.open]
extends = ":workspace"
network = { enabled = true }
"""
PROXIED = "[features]\nnetwork_proxy = true\n"


@claim("environment:threads")
@pytest.mark.parametrize(
    ("config", "settings", "exit_code"),
    [
        ("", {"sandboxPolicy": {"type": "workspaceWrite", "networkAccess": True}}, 0),
        (PROXIED, {"sandboxPolicy": {"type": "workspaceWrite", "networkAccess": True}}, 1),
        (OPEN, {"permissions": "open"}, 0),
        (OPEN + PROXIED, {"permissions": "open"}, 1),
    ],
)
async def test_what_has_its_network_through_the_proxy_here_has_none_there(
    tmp_path: Path, config: str, settings: dict[str, Any], exit_code: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connecting = f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{listener.getsockname()[1]}'"
        async with desk_there(tmp_path, config=config) as at:
            await at.client.call("thread/settings/update", {"threadId": at.thread_id, **settings})
            [result] = await at.run_calls(command(connecting))
            assert result.exit_code == exit_code
