"""skills/*: lists of skills, switching them off, roots of clients, and news of changes."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from app_server.extensions.skills.folders import FoundSkill
from app_server.extensions.skills.in_turns import INTRODUCTION, MAX_BYTES, skills_text
from app_server.extensions.skills.skill_file import Skill
from tests.support.harness import claim, serve


def write(folder: Path, text: str) -> str:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)
    return str(folder / "SKILL.md")


def skill(name: str, path: str, scope: str, **members: Any) -> dict[str, Any]:
    shown = {"name": name, "description": "d", "path": path, "scope": scope, "enabled": True}
    return {**shown, "pluginId": None, **members}


D = "---\ndescription: d\n---\n"

AGAIN_S = 1.0
"""Between two changes of a file that nobody has noticed; no deadline."""


@claim("skills:list")
async def test_skills_of_the_user_and_of_the_project_are_listed(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    below = project / "sub"
    one = write(home / "skills" / "one", D)
    short = write(
        home / "skills" / "two",
        "---\nname: b2\ndescription: d\nmetadata:\n  short-description: s\n---\n",
    )
    brought = write(home / "skills" / ".system" / "brought", D)
    linked = write(tmp_path / "elsewhere" / "linked", D)
    (home / "skills" / "linked").symlink_to(tmp_path / "elsewhere" / "linked")
    (home / "skills" / "gone").symlink_to(tmp_path / "nowhere")
    (home / "skills" / "file").write_text(D)
    (home / "skills" / "dir" / "SKILL.md").mkdir(parents=True)
    (project / ".git").mkdir(parents=True)
    (project / ".git/HEAD").touch()
    # An empty one is no repository: a sandbox may leave it.
    (tmp_path / ".git").mkdir()
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
    system = skill("brought", brought, "system")
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
                        system,
                    ],
                    "errors": [],
                },
                {"cwd": ".", "skills": [*users, system], "errors": []},
            ]
        }
        own = await client.call("skills/list", {})
        assert own == {"data": [{"cwd": str(home), "skills": [*users, system], "errors": []}]}


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
async def test_folders_and_skills_of_one_request_are_bounded(tmp_path: Path) -> None:
    for n in range(130):
        write(tmp_path / "skills" / f"s{n:03}", D)
    async with serve(tmp_path) as served, served.client() as client:
        (entry,) = (await client.call("skills/list", {}))["data"]
        assert [each["name"] for each in entry["skills"]] == [f"s{n:03}" for n in range(128)]
        error = await client.refusal("skills/list", {"cwds": ["/"] * 101})
        assert (error.code, error.message) == (-32602, "cwds accepts at most 100 entries")
        assert error.data["field"] == "cwds"


@claim("skills:metadata")
async def test_a_skill_is_shown_with_what_it_says_of_itself(tmp_path: Path) -> None:
    path = write(tmp_path / "skills" / "one", D)
    (tmp_path / "skills/one/agents").mkdir()
    (tmp_path / "skills/one/agents/openai.yaml").write_text(
        "interface:\n  display_name: One\ndependencies:\n  tools:\n  - {type: mcp, value: docs}\n"
    )
    async with serve(tmp_path) as served, served.client() as client:
        (entry,) = (await client.call("skills/list", {}))["data"]
    assert entry["skills"] == [
        skill(
            "one",
            path,
            "user",
            interface={"displayName": "One", "iconSmallUrl": None, "iconLargeUrl": None},
            dependencies={"tools": [{"type": "mcp", "value": "docs"}]},
        )
    ]


@claim("skills:config-write")
async def test_a_skill_is_switched_off_and_on_by_path_or_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "skills" / "one", D)
    config = "# mine\n[skills]\nother = 1 # kept\n"
    async with serve(tmp_path, config=config) as served, served.client() as client:

        async def is_on() -> bool:
            (entry,) = (await client.call("skills/list", {}))["data"]
            (only,) = entry["skills"]
            return bool(only["enabled"])

        for named in ({"path": path}, {"name": "one"}):
            before = (tmp_path / "config.toml").read_text()
            for enabled in (False, True):
                answer = await client.call("skills/config/write", {**named, "enabled": enabled})
                assert answer == {"effectiveEnabled": enabled}
                assert await is_on() == enabled
            after = (tmp_path / "config.toml").read_text()
            assert (after.split(), "# mine" in after, "# kept" in after) == (
                before.split(),
                True,
                True,
            )
        for wrong in ({}, {"path": path, "name": "one"}, {"name": ""}):
            error = await client.refusal("skills/config/write", {**wrong, "enabled": False})
            message = "skills/config/write requires exactly one of path or name"
            assert (error.code, error.message) == (-32602, message)


@claim("skills:extra-roots")
async def test_roots_of_clients_are_looked_in_and_replaced(tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    path = write(extra / "deep" / "two", D)
    home = tmp_path / "home"
    async with serve(home) as served, served.client() as client:

        async def paths() -> list[str]:
            (entry,) = (await client.call("skills/list", {}))["data"]
            return [each["path"] for each in entry["skills"]]

        for roots, found in (([str(extra)], [path]), ([str(tmp_path / "none")], [])):
            assert await client.call("skills/extraRoots/set", {"extraRoots": roots}) == {}
            await client.wait_for("skills/changed")
            assert await paths() == found
        error = await client.refusal("skills/extraRoots/set", {"extraRoots": ["rel"]})
        assert error.code == -32602
        error = await client.refusal("skills/extraRoots/set", {"extraRoots": ["/a"] * 65})
        assert error.message == "extraRoots accepts at most 64 entries"


@claim("skills:changed")
@pytest.mark.parametrize("is_new", [False, True])
async def test_clients_are_notified_of_files_that_change(tmp_path: Path, is_new: bool) -> None:
    project = tmp_path / "project"
    file = project / ".agents/skills/one/SKILL.md"
    if not is_new:
        write(file.parent, D)
    project.mkdir(exist_ok=True)
    async with serve(tmp_path / "home") as served, served.client() as client:
        await client.call("skills/list", {"cwds": [str(project)]})
        noticed = asyncio.create_task(client.wait_for("skills/changed"))
        number = 0
        # The watch begins some time after the answer, so the file changes until it is noticed;
        # `wait_for` has a deadline.
        while not noticed.done():
            number += 1
            if is_new:
                shutil.rmtree(project / ".agents", ignore_errors=True)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"---\ndescription: v{number}\n---\n")
            await asyncio.wait([noticed], timeout=AGAIN_S)
        await noticed
        (entry,) = (await client.call("skills/list", {"cwds": [str(project)]}))["data"]
        assert [each["description"] for each in entry["skills"]] == [f"v{number}"]


@claim("turns:skill-input")
async def test_a_skill_in_the_input_is_read_to_the_model(tmp_path: Path) -> None:
    path = write(tmp_path / "skills" / "one", D + "Do it.\n")
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        skill_input = {"type": "skill", "name": "one", "path": path}
        given = [{"type": "text", "text": "go"}, skill_input]
        await client.call("turn/start", {"threadId": thread_id, "input": given})
        await client.wait_for("turn/completed")
        texts = [text for role, text in served.model.inputs() if role == "user"]
    assert texts[-2:] == [
        "go",
        f"<skill>\n<name>one</name>\n<path>{path}</path>\n{D}Do it.\n\n</skill>",
    ]


def skill_texts(request: dict[str, Any]) -> list[str]:
    texts = [item["content"][0]["text"] for item in request["input"] if item["role"] == "developer"]
    return [text for text in texts if text.startswith("<skills>")]


@claim("turns:skills-told")
async def test_the_model_is_sent_the_skills_and_again_when_they_change(tmp_path: Path) -> None:
    one = write(tmp_path / "skills" / "one", D)
    write(tmp_path / "skills" / "off", D)
    config = '[[skills.config]]\nname = "off"\nenabled = false\n'
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        texts = []
        for change in (None, "---\ndescription: other\n---\n", None, ""):
            if change is not None:
                Path(one).write_text(change)
            await client.turn(thread_id, "hi")
            texts.append(skill_texts(served.model.requests[-1]))
    first = f"{INTRODUCTION}\n- one: d (file: {one})"
    second = f"{INTRODUCTION}\n- one: other (file: {one})"
    none = "There are no skills any more."
    framed = [f"<skills>\n{text}\n</skills>" for text in (first, second, none)]
    assert texts == [framed[:1], framed[:2], framed[:2], framed]


@claim("turns:skill-named")
async def test_a_skill_that_a_text_names_is_read_to_the_model_once(tmp_path: Path) -> None:
    path = write(tmp_path / "skills" / "one", D + "Do it.\n")
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        turns = []
        for given in (
            [{"type": "text", "text": "use $one, $one and $none, not $$one or a$one"}],
            [
                {"type": "text", "text": "use $one"},
                {"type": "skill", "name": "one", "path": path},
            ],
        ):
            await client.call("turn/start", {"threadId": thread_id, "input": given})
            await client.wait_for("turn/completed")
            texts = [text for role, text in served.model.inputs() if role == "user"]
            turns.append(len([text for text in texts if text.startswith("<skill>")]))
    assert turns == [1, 2]


def test_of_too_many_skills_only_the_names_are_listed() -> None:
    def found(count: int, chars: int) -> list[FoundSkill]:
        return [
            FoundSkill("user", Skill(f"s{number:04}", "d" * chars, Path(f"/{number:04}")))
            for number in range(count)
        ]

    hidden = FoundSkill("user", Skill("hidden", "d", Path("/h"), is_listed=False))
    assert skills_text([hidden]) is None
    whole = skills_text([*found(2, 3), hidden])
    assert whole is not None
    assert whole.splitlines()[-2:] == ["- s0000: ddd (file: /0000)", "- s0001: ddd (file: /0001)"]
    names = skills_text(found(100, 1000))
    assert names is not None
    assert names.splitlines()[-1] == "- s0099 (file: /0099)"
    cut = skills_text(found(1000, 1))
    assert cut is not None
    assert len(cut.encode()) <= MAX_BYTES + len(INTRODUCTION) + 100
    assert cut.splitlines()[-1] == "- and 442 more, which are not listed"
