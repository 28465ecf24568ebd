"""Which hooks hold in a folder, and what happens when its disk does not answer."""

import threading
from pathlib import Path
from typing import Any

import pytest

from app_server.config.values import Config
from app_server.extensions.hooks.hook_files import HookList, read_hooks_of
from app_server.host.folder_reads import FolderReads
from tests.support.files.hooks import declared, group


async def commands(home: Path, projects: dict[str, Any], folder: Path | None) -> list[str]:
    config = Config({"projects": projects})
    found = await read_hooks_of(config, home, folder, (), FolderReads())
    assert found is not None
    return [hook.command for hook in found]


async def test_hooks_of_a_project_hold_where_the_user_trusts_it(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    below = project / "below"
    for folder, command in ((home, "mine"), (project / ".codex", "whole"), (below / ".codex", "b")):
        folder.mkdir(parents=True)
        (folder / "hooks.json").write_text(declared(Stop=[group(command)]))
    (project / ".git").mkdir()
    (project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    trusted = {str(project): {"trust_level": "trusted"}}
    assert await commands(home, trusted, below) == ["mine", "whole", "b"]
    assert await commands(home, trusted, tmp_path) == ["mine"]
    assert await commands(home, trusted, None) == ["mine"]
    assert await commands(home, {str(project): {"trust_level": 5}}, below) == ["mine"]


async def test_a_disk_that_does_not_answer_gives_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def wait(*_: object) -> HookList:
        answers.wait()
        return HookList()

    monkeypatch.setattr("app_server.extensions.hooks.hook_files.read_hooks", wait)
    reads = FolderReads(read_s=0.01)
    try:
        assert await read_hooks_of(Config({}), tmp_path, None, (), reads) is None
    finally:
        answers.set()
