"""What a sandbox puts where something protected is not there: nobody takes it for a project."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app_server.config.values import Config
from app_server.host.repository import RepositoryState, read_repository
from app_server.host.sandbox.linux.placeholders import Placeholder
from app_server.permissions.placeholder import is_there
from app_server.permissions.trust import project_trust
from app_server.plugins.marketplace import find_marketplaces
from app_server.runtime.files.repository import repository_of
from app_server.sessions.surroundings.agents_files import project_folders

SHA = "a" * 40


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a repository with a folder in it."""
    root = tmp_path.resolve() / "project"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text(SHA)
    (root / "sub").mkdir()
    return root


@pytest.fixture
def sub(project: Path) -> Iterator[Path]:
    """Let commands be confined to the folder."""
    folder = os.open(project / "sub", os.O_RDONLY)
    laid = [Placeholder(folder, name) for name in (".git", ".codex", ".agents")]
    os.close(folder)
    yield project / "sub"
    for placeholder in laid:
        placeholder.release()
    assert list((project / "sub").iterdir()) == []


def test_the_repository_around_it_is_found(project: Path, sub: Path) -> None:
    assert repository_of(sub) == project
    assert read_repository(sub) == RepositoryState(SHA, None, None)
    assert project_folders(sub, [".git", ".codex"]) == [project, sub]
    trusted = Config({"projects": {str(project): {"trust_level": "trusted"}}})
    assert project_trust(trusted, str(sub)) == "trusted"
    file = project / ".agents" / "plugins" / "marketplace.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert list(find_marketplaces([sub], project.parent, [])) == [file]


def test_what_others_made_is_there(project: Path) -> None:
    link = project / "link"
    link.symlink_to("nowhere")
    assert [is_there(path) for path in (link, project / ".git", project / "no")] == [
        True,
        True,
        False,
    ]
