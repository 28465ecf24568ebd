"""Which folders are repositories, and how far a project goes."""

from pathlib import Path

from app_server.runtime.files.repository import folders_of_project, repository_of


def test_a_project_goes_up_to_its_repository(tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer/a/inner"
    below = inner / "b"
    below.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    assert (repository_of(below), folders_of_project(below)) == (None, [below])
    (outer / ".git").mkdir()
    (outer / ".git/HEAD").touch()
    assert folders_of_project(below) == [below, inner, outer / "a", outer]
    # The file of a worktree or a submodule.
    (inner / ".git").write_text("gitdir: elsewhere\n")
    assert folders_of_project(below) == [below, inner]
    assert repository_of(outer / "a") == outer
