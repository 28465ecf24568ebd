"""Where skills are looked for, how deep, and how many."""

from pathlib import Path

from app_server.extensions.skills.folders import (
    MAX_DEPTH,
    MAX_SKILLS,
    SkillRoot,
    project_roots,
    read_roots,
)


def write(folder: Path, name: str | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "SKILL.md"
    file.write_text(f"---\nname: {name or folder.name}\ndescription: d\n---\n")
    return file


def files(*roots: Path) -> list[Path]:
    return [
        found.skill.file for found in read_roots([SkillRoot("user", root) for root in roots]).found
    ]


def test_skills_are_found_at_some_depth_and_not_inside_of_each_other(tmp_path: Path) -> None:
    one = write(tmp_path / "one")
    write(tmp_path / "one/inner")
    deep = write(tmp_path / "a/b/two")
    write(tmp_path / ".hidden")
    at_the_bound = write(tmp_path.joinpath(*(["x"] * (MAX_DEPTH - 1)), "last"))
    write(tmp_path.joinpath(*(["y"] * MAX_DEPTH), "too_deep"))
    assert files(tmp_path) == [one, deep, at_the_bound]


def test_links_are_followed_once_and_circles_end(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    linked = write(other / "linked")
    (root / "deep").mkdir(parents=True)
    (root / "link").symlink_to(other)
    (root / "again").symlink_to(other / "linked")
    (root / "deep" / "circle").symlink_to(root)
    assert files(root, other) == [linked]


def test_skills_of_a_root_are_bounded(tmp_path: Path) -> None:
    for number in range(MAX_SKILLS + 2):
        write(tmp_path / f"s{number:03}")
    names = [file.parent.name for file in files(tmp_path)]
    assert names == [f"s{number:03}" for number in range(MAX_SKILLS)]


def test_a_project_has_roots_up_to_that_of_its_repository(tmp_path: Path) -> None:
    (tmp_path / "repo/.git").mkdir(parents=True)
    (tmp_path / "repo/.git/HEAD").touch()
    below = tmp_path / "repo/a"
    assert project_roots(below) == [
        SkillRoot("repo", folder / place / "skills")
        for folder in (below, tmp_path / "repo")
        for place in (".agents", ".codex")
    ]
    outside = tmp_path / "outside"
    assert [root.path.parent.parent for root in project_roots(outside)] == [outside] * 2
