"""Which resources of a server are skills, and which files belong to one."""

from typing import Any

import pytest

from app_server.mcp.servers.skills import ServerSkill, belongs_to, read_skills

ONE = "skill://plug/one"


def skill(uri: str, **meta: str) -> dict[str, Any]:
    more = {"mimeType": "mcp/skill", "description": "First\n skill", "_meta": meta}
    return {"uri": uri, "name": uri, **more}


@pytest.mark.parametrize(
    "resource",
    [
        skill(f"{ONE}/", plugin_name="p", skill_name="s"),
        skill(f"{ONE}?x", plugin_name="p", skill_name="s"),
        skill(f"{ONE}#x", plugin_name="p", skill_name="s"),
        skill("skill://u:p@plug/one", plugin_name="p", skill_name="s"),
        skill("skill://plug:1/one", plugin_name="p", skill_name="s"),
        skill("skill:///one", plugin_name="p", skill_name="s"),
        skill("skill://plug", plugin_name="p", skill_name="s"),
        skill("skill://plug/../one", plugin_name="p", skill_name="s"),
        skill("skill://plug/%2e%2e/one", plugin_name="p", skill_name="s"),
        skill("skill://plug//one", plugin_name="p", skill_name="s"),
        skill("file://plug/one", plugin_name="p", skill_name="s"),
        skill(f"skill://plug/{'x' * 1024}", plugin_name="p", skill_name="s"),
        skill(ONE, skill_name="s"),
        skill(ONE, plugin_name="p"),
        skill(ONE, plugin_name="p", skill_name="a<b"),
        skill(ONE, plugin_name="p", skill_name="s" * 65),
        {"uri": ONE, "mimeType": "mcp/skill"},
        {"uri": 1, "mimeType": "mcp/skill", "_meta": {}},
    ],
)
def test_a_resource_that_makes_no_sense_is_no_skill(resource: dict[str, Any]) -> None:
    assert read_skills([resource]) == ([], 1)


def test_a_hundred_skills_of_a_server_count() -> None:
    many = [skill(f"{ONE}{n}", plugin_name="p", skill_name=f"s{n}") for n in range(101)]
    skills, left_out = read_skills([{"uri": "a:b", "mimeType": "text/plain"}, *many])
    assert (len(skills), left_out) == (100, 0)
    assert skills[0] == ServerSkill(f"{ONE}0", "p:s0", "First skill")


def test_a_file_belongs_to_a_skill_if_it_is_below_it() -> None:
    assert belongs_to(ONE, f"{ONE}/a/b.md")
    for other in (ONE, f"{ONE}x/SKILL.md", f"{ONE}/../two", f"{ONE}/a?b", f"{ONE}/%2e%2e/b"):
        assert not belongs_to(ONE, other)
