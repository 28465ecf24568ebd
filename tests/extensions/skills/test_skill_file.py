"""What a skill says of itself: the head of its SKILL.md, and agents/openai.yaml."""

from pathlib import Path

import pytest

from app_server.extensions.skills.skill_file import Skill, front_matter, read_skill
from app_server.runtime.files.opening import BrokenFiles
from protocol.integrations.skills import SkillDependencies, SkillInterface, SkillToolDependency

HEAD = "---\nname: n\ndescription: d\n---\n"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_head_is_yaml() -> None:
    head = (
        'name: "q: x"\ndescription: >-\n  one\n\n  two\nmetadata: {short-description: s}\nlist: [1]'
    )
    expected = {
        "name": "q: x",
        "description": "one\ntwo",
        "metadata": {"short-description": "s"},
        "list": [1],
    }
    assert front_matter(f"---\n{head}\n---\nname: body\n") == expected
    assert front_matter(f"---\n{head}\n---\n".replace("\n", "\r\n")) == expected
    assert front_matter("---\n---\n") == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "missing YAML frontmatter delimited by ---"),
        ("\n---\nname: a\n---\n", "missing YAML frontmatter delimited by ---"),
        ("---\nname: a\n", "missing YAML frontmatter delimited by ---"),
        ("---\n- a\n---\n", "invalid YAML: expected a mapping"),
        ("---\na: [\n---\n", "invalid YAML: expected the node content, but found '<stream end>'"),
        ("---\na: 2026-13-45\n---\n", "invalid YAML: month must be in 1..12"),
        ("---\na: !!python/object:os.system x\n---\n", "invalid YAML: could not determine a"),
        (f"---\na: {'[' * 5000}\n---\n", "invalid YAML: nested too deeply"),
    ],
)
def test_a_head_that_is_none_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BrokenFiles) as caught:
        front_matter(text)
    assert str(caught.value).startswith(reason)


def test_a_skill_is_read_whole(tmp_path: Path) -> None:
    folder = tmp_path / "n"
    file = write(folder / "SKILL.md", HEAD)
    icon = write(folder / "assets/small.svg", "<svg/>")
    write(
        folder / "agents/openai.yaml",
        "interface:\n  display_name: N\n  icon_small: ./assets/small.svg\n"
        "  icon_large: ./large.svg\n  brand_color: '#112233'\n"
        "policy:\n  allow_implicit_invocation: false\n"
        "dependencies:\n  tools:\n  - {type: mcp, value: docs, url: 'http://127.0.0.1:9'}\n"
        "  - {type: mcp}\n  - 5\n",
    )
    tool = SkillToolDependency(type="mcp", value="docs", url="http://127.0.0.1:9")
    expected = Skill(
        name="n",
        description="d",
        file=file,
        interface=SkillInterface(display_name="N", icon_small=str(icon), brand_color="#112233"),
        dependencies=SkillDependencies(tools=[tool]),
        is_listed=False,
    )
    assert read_skill(folder) == (expected, ())


def test_broken_metadata_leave_the_skill(tmp_path: Path) -> None:
    file = write(tmp_path / "n/SKILL.md", HEAD)
    metadata = write(tmp_path / "n/agents/openai.yaml", "- no mapping")
    skill, problems = read_skill(tmp_path / "n")
    assert skill == Skill("n", "d", file)
    assert problems == [(metadata, "invalid YAML: expected a mapping")]


@pytest.mark.parametrize("icon", ["assets/../../secret", "/etc/passwd", "assets/link", 5])
def test_an_icon_is_one_of_the_skills_own(tmp_path: Path, icon: object) -> None:
    write(tmp_path / "n/SKILL.md", HEAD)
    write(tmp_path / "secret", "x")
    (tmp_path / "n/assets").mkdir()
    (tmp_path / "n/assets/link").symlink_to(tmp_path / "secret")
    write(tmp_path / "n/agents/openai.yaml", f"interface:\n  icon_small: {icon}\n")
    skill, _ = read_skill(tmp_path / "n")
    assert skill is not None
    assert skill.interface is not None
    assert skill.interface.icon_small is None
