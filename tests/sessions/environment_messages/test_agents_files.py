"""AGENTS.md: which files are read, in which order, how much of them, and what is left out."""

import os
from pathlib import Path
from typing import Any

import pytest

from app_server.config.values import Config, ConfigError
from app_server.runtime.files.reaching import NotReached
from app_server.sessions import agents_files
from app_server.sessions.agents_files import (
    DEFAULT_BYTES,
    MAX_HOME_BYTES,
    Instructions,
    read_agents_settings,
    read_instructions,
)
from tests.support.files.descriptors import open_below
from tests.support.harness import claim


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a repository with a folder two levels below its root."""
    root = tmp_path / "project"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / ".git").mkdir()
    return root


def read(home: Path, cwd: Path | None, **settings: Any) -> Instructions:
    config = Config(settings)
    folder = None if cwd is None else str(cwd)
    return read_instructions(home, folder, config, read_agents_settings(config))


@claim("agents:order")
def test_files_from_the_root_down_follow_that_of_the_home(home: Path, project: Path) -> None:
    (home / "AGENTS.md").write_text("of the user\n")
    (project.parent / "AGENTS.md").write_text("outside")
    (project / "AGENTS.md").write_text("\nof the root\n")
    (project / "sub" / "AGENTS.md").write_text("masked")
    (project / "sub" / "AGENTS.override.md").write_text("of sub")
    (project / "sub" / "deep" / "CLAUDE.md").write_text("of deep")
    fallbacks = {"project_doc_fallback_filenames": ["OTHER.md", "CLAUDE.md"]}
    assert read(home, project / "sub" / "deep", **fallbacks) == Instructions(
        "of the user\n\nof the root\n\nof sub\n\nof deep",
        [
            str(home / "AGENTS.md"),
            str(project / "AGENTS.md"),
            str(project / "sub" / "AGENTS.override.md"),
            str(project / "sub" / "deep" / "CLAUDE.md"),
        ],
    )
    assert read(home, None) == Instructions("of the user", [str(home / "AGENTS.md")])


@claim("agents:root")
def test_the_root_of_a_project_is_where_a_marker_is(home: Path, project: Path) -> None:
    (project / "AGENTS.md").write_text("root")
    (project / "sub" / "AGENTS.md").write_text("sub")
    cwd = project / "sub"
    assert read(home, cwd).text == "root\n\nsub"
    assert read(home, cwd, project_root_markers=[]).text == "sub"
    assert read(home, cwd, project_root_markers=[".hg"]).text == "sub"
    (cwd / ".hg").touch()
    assert read(home, cwd, project_root_markers=[".hg", ".git"]).text == "sub"
    assert read(home, cwd, project_root_markers=[".nowhere"]).text == "sub"


@claim("agents:trust")
def test_a_project_that_is_not_trusted_is_not_read(home: Path, project: Path) -> None:
    (home / "AGENTS.md").write_text("user")
    (project / "AGENTS.md").write_text("root")
    cwd = project / "sub"

    def text(**levels: str) -> str | None:
        projects = {str(project / path): {"trust_level": level} for path, level in levels.items()}
        return read(home, cwd, projects=projects).text

    assert text() == text(**{".": "trusted"}) == "user\n\nroot"
    assert text(**{".": "untrusted"}) == text(sub="untrusted") == "user"
    # What is said of the nearest folder counts.
    assert text(**{".": "untrusted", "sub": "trusted"}) == "user\n\nroot"


@claim("agents:bounds")
def test_the_files_of_a_project_have_one_bound(home: Path, project: Path) -> None:
    (home / "AGENTS.md").write_text("h" * (MAX_HOME_BYTES + 1))
    (project / "AGENTS.md").write_text("a" * (DEFAULT_BYTES - 10))
    (project / "sub" / "AGENTS.md").write_text("b" * 20)
    (project / "sub" / "deep" / "AGENTS.md").write_text("c")
    found = read(home, project / "sub" / "deep")
    assert found.text == "\n\n".join(("h" * MAX_HOME_BYTES, "a" * (DEFAULT_BYTES - 10), "b" * 10))
    assert found.warnings == [
        f"{home}/AGENTS.md was cut: only its first {MAX_HOME_BYTES} of {MAX_HOME_BYTES + 1} bytes "
        "are read",
        f"{project}/sub/AGENTS.md was cut: only its first 10 of 20 bytes are read",
        f"{project}/sub/deep/AGENTS.md and what follows it was left out: the project's "
        f"instructions have {DEFAULT_BYTES} bytes already (project_doc_max_bytes)",
    ]
    assert len(found.sources) == 3
    (home / "AGENTS.md").unlink()
    none = read(home, project, project_doc_max_bytes=0)
    assert none == Instructions()
    assert read(home, project, project_doc_max_bytes=3).text == "aaa"


@claim("agents:files")
def test_only_regular_files_of_the_project_are_read(home: Path, project: Path) -> None:
    secret = project.parent / "secret"
    secret.write_text("secret")
    (project / "AGENTS.md").symlink_to(secret)
    deep = project / "sub" / "deep"
    (deep / "AGENTS.override.md").mkdir()
    os.mkfifo(deep / "AGENTS.md")
    (project / "NOTES.md").write_text("of the project")
    (project / "sub" / "AGENTS.md").symlink_to(project / "NOTES.md")
    found = read(home, deep)
    assert (found.text, found.sources) == ("of the project", [f"{project}/sub/AGENTS.md"])
    assert found.warnings == [
        f"{project}/AGENTS.md was left out: it is a link to outside of the project"
    ]


def test_a_folder_in_the_place_of_the_users_file_is_named_and_not_left_open(
    home: Path, project: Path
) -> None:
    (home / "AGENTS.md").mkdir()
    found = read(home, project)
    assert found.warnings == [f"{home}/AGENTS.md cannot be read: Is a directory"]
    assert open_below(home) == []


def test_a_folder_that_cannot_be_searched_is_named_and_the_others_are_read(
    home: Path, project: Path
) -> None:
    """A thread that once worked there could not be resumed."""
    (project / "AGENTS.md").write_text("of the project")
    hidden = project / ("x" * 300)
    found = read(home, hidden)
    assert found.warnings == [f"{hidden} cannot be searched for AGENTS.md: File name too long"]
    assert found.text == "of the project"


def test_blank_files_count_and_say_nothing(home: Path, project: Path) -> None:
    (project / "AGENTS.override.md").write_text(" \n")
    (project / "AGENTS.md").write_text("masked")
    (project / "sub" / "AGENTS.md").write_bytes(b"caf\xe9")
    assert read(home, project / "sub").text == "caf\ufffd"
    assert read(home, project / "sub").sources == [str(project / "sub" / "AGENTS.md")]


def test_a_file_that_cannot_be_read_is_named(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, allows: object) -> None:
        raise NotReached("Permission denied")

    (project / "AGENTS.md").write_text("x")
    monkeypatch.setattr(agents_files, "open_file", refuse)
    found = read(home, project)
    assert found == Instructions(
        warnings=[f"{project}/AGENTS.md cannot be read: Permission denied"]
    )


def test_a_folder_that_is_a_link_out_of_the_project_is_not_read(home: Path, project: Path) -> None:
    other = project.parent / "other"
    other.mkdir()
    (other / "AGENTS.md").write_text("outside")
    (project / "linked").symlink_to(other)
    found = read(home, project / "linked")
    assert (found.text, found.sources) == (None, [])
    named = f"{project}/linked/AGENTS.md"
    assert found.warnings == [f"{named} was left out: it is a link to outside of the project"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"project_doc_max_bytes": -1}, "expected u64"),
        ({"project_doc_max_bytes": "x"}, "invalid type"),
        ({"project_root_markers": "x"}, "invalid type"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_agents_settings(Config(settings))
