"""skills/list: the skills of the user and of a project, read from their files."""

import os
from pathlib import Path
from typing import Any

import pytest

from app_server.handlers.plugins import skills
from app_server.plugins.files import BrokenFiles
from app_server.plugins.front_matter import read_front_matter
from tests.support.harness import claim, serve


@pytest.mark.parametrize(
    ("head", "members"),
    [
        ("name: a # note\ndescription: d#e # f", {"name": "a", "description": "d#e"}),
        ("name: \"q\\\"x: y\"\ndescription: 'it''s'", {"name": 'q"x: y', "description": "it's"}),
        ("description: has: colon: here", {"description": "has: colon: here"}),
        ("description: >-\n  one\n\n  two\nname: n", {"description": "one two", "name": "n"}),
        ("description: |\n  one\n  # two", {"description": "one # two"}),
        ("description:\n  plain\n  lines", {"description": "plain lines"}),
        (
            'metadata:\n  short-description: "s"\n  other: 5\nname: n',
            {"metadata.short-description": "s", "metadata.other": "5", "name": "n"},
        ),
        ('name: ""\n- list\n[flow]: x\nn a: b', {"name": ""}),
        ('name: "\\q"', {"name": "\\q"}),
    ],
)
def test_the_head_of_a_skill_is_read(head: str, members: dict[str, str]) -> None:
    assert read_front_matter(f"---\n{head}\n---\nname: body\n") == members
    assert read_front_matter(f"---\r\n{head}\r\n---\r\n".replace("\n", "\r\n")) == members


@pytest.mark.parametrize("text", ["", "name: a\n", "\n---\nname: a\n---\n", "---\nname: a\n"])
def test_a_text_without_a_head_is_refused(text: str) -> None:
    with pytest.raises(BrokenFiles) as caught:
        read_front_matter(text)
    assert str(caught.value) == "missing YAML frontmatter delimited by ---"


def write(folder: Path, text: str) -> str:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)
    return str(folder / "SKILL.md")


def skill(name: str, path: str, scope: str, **members: Any) -> dict[str, Any]:
    shown = {"name": name, "description": "d", "path": path, "scope": scope, "enabled": True}
    return {**shown, "pluginId": None, **members}


D = "---\ndescription: d\n---\n"


@claim("skills:list")
async def test_skills_of_the_user_and_of_the_project_are_listed(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    below = project / "sub"
    one = write(home / "skills" / "one", D)
    short = write(
        home / "skills" / "two",
        "---\nname: b2\ndescription: d\nmetadata:\n  short-description: s\n---\n",
    )
    write(home / "skills" / ".system", D)
    linked = write(tmp_path / "elsewhere" / "linked", D)
    (home / "skills" / "linked").symlink_to(tmp_path / "elsewhere" / "linked")
    (home / "skills" / "gone").symlink_to(tmp_path / "nowhere")
    (home / "skills" / "file").write_text(D)
    (home / "skills" / "dir" / "SKILL.md").mkdir(parents=True)
    (project / ".git").mkdir(parents=True)
    upper = write(project / ".agents" / "skills" / "upper", D)
    lower = write(below / ".agents" / "skills" / "one", D)
    write(tmp_path / ".agents" / "skills" / "outside", D)
    (below / ".agents" / "skills" / "again").symlink_to(home / "skills" / "one")
    config = '[[skills.config]]\nname = "upper"\nenabled = false\n[[skills.config]]\n'
    config += f'path = "{short}"\nenabled = false\n[[skills.config]]\npath = "{short}"\n'
    users = [
        skill("b2", short, "user", shortDescription="s"),
        skill("linked", linked, "user"),
        skill("one", one, "user"),
    ]
    async with serve(home, config=config) as served, served.client() as client:
        listed = await client.call("skills/list", {"cwds": [str(below), "."]})
        assert listed == {
            "data": [
                {
                    "cwd": str(below),
                    "skills": [
                        # A file that two links lead to counts where it is found first.
                        skill("one", one, "repo"),
                        skill("one", lower, "repo"),
                        skill("upper", upper, "repo", enabled=False),
                        *users[:2],
                    ],
                    "errors": [],
                },
                {"cwd": ".", "skills": users, "errors": []},
            ]
        }
        own = await client.call("skills/list", {})
        assert own == {"data": [{"cwd": str(home), "skills": users, "errors": []}]}


@claim("skills:errors")
async def test_a_skill_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "skills"
    files = [
        write(folder / "a", "no head\n"),
        write(folder / "b", "---\nname: b\n---\n"),
        write(folder / "c", f"---\nname: {'n' * 65}\ndescription: d\n---\n"),
        write(folder / "d", "x" * (256 * 1024 + 1)),
        write(folder / "e", ""),
    ]
    (folder / "e" / "SKILL.md").write_bytes(b"---\nname: \xff\n---\n")
    reasons = [
        "missing YAML frontmatter delimited by ---",
        "missing field `description`",
        "invalid name: exceeds maximum length of 64 characters",
        "SKILL.md is larger than 262144 bytes",
        "SKILL.md is not UTF-8",
    ]
    async with serve(tmp_path) as served, served.client() as client:
        (entry,) = (await client.call("skills/list", {}))["data"]
        assert entry["skills"] == []
        assert entry["errors"] == [
            {"path": path, "message": message} for path, message in zip(files, reasons, strict=True)
        ]


@claim("skills:bounds")
async def test_folders_and_skills_of_one_request_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(130):
        write(tmp_path / "skills" / f"s{n:03}", D)
    async with serve(tmp_path) as served, served.client() as client:
        (entry,) = (await client.call("skills/list", {}))["data"]
        assert [each["name"] for each in entry["skills"]] == [f"s{n:03}" for n in range(128)]
        error = await client.refusal("skills/list", {"cwds": ["/"] * 101})
        assert (error.code, error.message) == (-32602, "cwds accepts at most 100 entries")
        assert error.data["field"] == "cwds"
        # The root of a repository is looked for so many folders up, and no further.
        monkeypatch.setattr(skills, "MAX_ANCESTORS", 2)
        (tmp_path / ".git").mkdir()
        write(tmp_path / ".agents" / "skills" / "upper", D)
        folder = tmp_path / "a" / "b"
        os.makedirs(folder)
        for cwd, count in ((folder, 0), (folder.parent, 1)):
            (entry,) = (await client.call("skills/list", {"cwds": [str(cwd)]}))["data"]
            assert [each["scope"] for each in entry["skills"]].count("repo") == count
