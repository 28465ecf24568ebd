"""Which hooks hold in a folder, and what happens when its disk does not answer."""

import threading
from pathlib import Path
from typing import Any

import pytest

from app_server.config.values import Config
from app_server.extensions.hooks.files import HookList
from app_server.extensions.hooks.source import HookSource
from app_server.host.folder_reads import FolderReads
from tests.support.files.hooks import declared, group


def source(home: Path | None, projects: dict[str, Any]) -> HookSource:
    return HookSource(lambda: Config({"projects": projects}), home, FolderReads(), lambda _: ())


async def commands(source: HookSource, folder: Path | None) -> list[str]:
    found = await source.read(folder)
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
    assert await commands(source(home, trusted), below) == ["mine", "whole", "b"]
    assert await commands(source(home, trusted), tmp_path) == ["mine"]
    assert await commands(source(home, trusted), None) == ["mine"]
    assert await commands(source(home, {str(project): {"trust_level": 5}}), below) == ["mine"]
    assert await commands(source(None, trusted), below) == []


async def test_a_disk_that_does_not_answer_gives_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def wait(*_: object) -> HookList:
        answers.wait()
        return HookList()

    monkeypatch.setattr("app_server.extensions.hooks.source.read_hooks", wait)
    monkeypatch.setattr("app_server.host.folder_reads.READ_S", 0.01)
    try:
        assert await source(tmp_path, {}).read(None) is None
    finally:
        answers.set()
