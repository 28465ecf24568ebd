"""How far a new thread may go where nobody has said so: what the user said of its project."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app_server.config.values import Config
from app_server.permissions.trust import project_trust
from tests.support.harness import REQUIREMENTS, claim, serve

CASES = {
    "trusted": ("on-request", "workspaceWrite"),
    "trusted/sub": ("on-request", "workspaceWrite"),
    "trusted/no": ("untrusted", "workspaceWrite"),
    "untrusted": ("untrusted", "workspaceWrite"),
    "untrusted/sub": ("untrusted", "workspaceWrite"),
    "link": ("on-request", "workspaceWrite"),
    "worktree": ("on-request", "workspaceWrite"),
    "liar": ("on-request", "readOnly"),
    "plain": ("on-request", "readOnly"),
    "repository": ("on-request", "readOnly"),
    # Trust is of a repository or of the folder itself, not of what is below a folder.
    "folder": ("on-request", "workspaceWrite"),
    "folder/sub": ("on-request", "readOnly"),
}


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    """Make repositories, folders, a link and worktrees, one of which no repository knows."""
    root = tmp_path.resolve() / "projects"
    for name in CASES:
        if name not in ("link", "worktree"):
            (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("trusted", "untrusted", "repository"):
        git(root / name, "init", "-q")
    git(root / "trusted", "commit", "-q", "--allow-empty", "-m", "first")
    git(root / "trusted", "worktree", "add", "-q", str(root / "worktree"))
    (root / "liar" / ".git").write_text(f"gitdir: {root}/trusted/.git/worktrees/worktree\n")
    (root / "link").symlink_to("trusted")
    return root


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=e@e", "-c", "commit.gpgsign=false")
    environ = os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    subprocess.run(("git", "-C", str(folder), *who, *arguments), check=True, env=environ)


def trust_levels(root: Path) -> str:
    levels = {
        "trusted": "trusted",
        "folder": "trusted",
        "untrusted": "untrusted",
        "trusted/no": "untrusted",
    }
    return "".join(
        f'[projects.{json.dumps(str(root / name))}]\ntrust_level = "{level}"\n'
        for name, level in levels.items()
    )


def shown(answer: dict[str, Any]) -> tuple[object, object]:
    return answer["approvalPolicy"], answer["sandbox"]["type"]


@pytest.mark.process
@claim("settings:trust")
async def test_the_defaults_follow_the_trust_of_the_project(tmp_path: Path, projects: Path) -> None:
    async with (
        serve(tmp_path / "home", config=trust_levels(projects)) as served,
        served.client() as client,
    ):
        found = {
            name: shown(await client.call("thread/start", {"cwd": str(projects / name)}))
            for name in CASES
        }
        assert found == CASES
        chosen = {"cwd": str(projects / "untrusted"), "approvalPolicy": "never"}
        assert shown(await client.call("thread/start", chosen)) == ("never", "workspaceWrite")
        chosen = {"cwd": str(projects / "trusted"), "sandbox": "read-only"}
        assert shown(await client.call("thread/start", chosen)) == ("on-request", "readOnly")


@pytest.mark.process
@claim("settings:trust")
async def test_settings_win_and_requirements_win_over_them(tmp_path: Path, projects: Path) -> None:
    own = 'approval_policy = "never"\nsandbox_mode = "read-only"\n'
    async with (
        serve(tmp_path / "a", config=own + trust_levels(projects)) as served,
        served.client() as client,
    ):
        for name in ("trusted", "untrusted", "plain"):
            answer = await client.call("thread/start", {"cwd": str(projects / name)})
            assert shown(answer) == ("never", "readOnly")
    home = tmp_path / "b"
    home.mkdir()
    (home / REQUIREMENTS).write_text(
        'allowed_sandbox_modes = ["read-only"]\nallowed_approval_policies = ["on-request"]\n'
    )
    async with serve(home, config=trust_levels(projects)) as served, served.client() as client:
        for name in ("trusted", "untrusted"):
            answer = await client.call("thread/start", {"cwd": str(projects / name)})
            assert shown(answer) == ("on-request", "readOnly")


def test_a_folder_that_is_not_there_has_no_trust() -> None:
    config = Config({"projects": {"/nowhere": {"trust_level": "trusted"}}})
    assert project_trust(config, "/nowhere/below") is None
    assert project_trust(config, "/nowhere") == "trusted"
