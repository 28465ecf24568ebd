"""Skills that a server has among its resources: what the model lists, reads, and may not read."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from pydantic import SecretStr

from app_server.extensions.contract.registration import Registration, RuntimeMetadata
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.mcp.servers import skills
from tests.support.apps.threads import Desk, open_desk
from tests.support.harness import WAIT_S, claim, serve
from tests.support.mcp_peers.calls import answer_question, settled
from tests.support.mcp_peers.sdk_peer import sdk_app
from tests.support.mcp_peers.shelf import Generation, Shelf
from tests.support.mcp_peers.web_servers import listening
from tests.support.model import calls, says

ON = "[orchestrator.skills]\nenabled = true\n"
KIND = {"authority": {"kind": "orchestrator"}}
ONE = "skill://plug/one"


def skill(uri: str, **meta: str) -> dict[str, Any]:
    more = {"mimeType": "mcp/skill", "description": "First\n skill", "_meta": meta}
    return {"uri": uri, "name": uri, **more}


def file(uri: str, text: str) -> dict[str, Any]:
    return {"uri": uri, "mimeType": "text/markdown", "text": text}


@asynccontextmanager
async def desk_with(
    tmp_path: Path, *resources: dict[str, Any], config: str = ON
) -> AsyncIterator[Desk]:
    async with open_desk(tmp_path, config=config) as desk:
        desk.apps.hosted.endpoint.resources |= {one["uri"]: one for one in resources}
        await desk.open_thread()
        yield desk


async def run(desk: Desk, *functions: tuple[str, Any]) -> list[str]:
    """Have the model make calls; gives what it reads of each."""
    made = ({"namespace": "skills", "name": name, "arguments": a} for name, a in functions)
    desk.served.model.scripts += [*map(calls, made), says("done")]
    await desk.client.turn(desk.thread_id, "go")
    return [item["output"] for item in desk.served.model.items() if "output" in item]


RESOURCES = (
    skill(ONE, plugin_name="plug", skill_name="one"),
    skill("skill://me/two", source="user", skill_name="two"),
    skill("skill://bad", skill_name="bad"),
    file(f"{ONE}/SKILL.md", "x" * 8_192 + "yz"),
    file("skill://plug/other/SKILL.md", "no"),
)


@claim("skills:of-servers")
async def test_the_model_lists_skills_and_reads_their_files_page_by_page(tmp_path: Path) -> None:
    main = {**KIND, "package": ONE, "resource": f"{ONE}/SKILL.md"}
    async with desk_with(tmp_path, *RESOURCES) as desk:
        listed, first, second = await run(
            desk, ("list", KIND), ("read", main), ("read", {**main, "cursor": "8192"})
        )
        assert "skills" in desk.namespaces()
    assert json.loads(listed) == {
        "skills": [
            {
                **KIND,
                "package": ONE,
                "name": "plug:one",
                "description": "First skill",
                "main_resource": f"{ONE}/SKILL.md",
            },
            {
                **KIND,
                "package": "skill://me/two",
                "name": "two",
                "description": "First skill",
                "main_resource": "skill://me/two/SKILL.md",
            },
        ],
        "warnings": ["1 skills make no sense and are left out"],
    }
    page = {"resource": f"{ONE}/SKILL.md", "contents": "x" * 8_192}
    assert json.loads(first) == {**page, "next_cursor": "8192", "truncated": True}
    assert json.loads(second) == {
        **page,
        "contents": "yz",
        "next_cursor": None,
        "truncated": False,
    }


@claim("skills:of-servers")
async def test_nothing_but_files_of_listed_skills_is_read(tmp_path: Path) -> None:
    main = {**KIND, "package": ONE, "resource": f"{ONE}/SKILL.md"}
    cases = [
        ({**main, "package": "skill://plug/other"}, "skill package is not available from the "),
        ({**main, "resource": "skill://plug/other/SKILL.md"}, "skill resource does not match"),
        ({**main, "resource": f"{ONE}/../other/SKILL.md"}, "skill resource does not match"),
        ({**main, "resource": f"{ONE}/gone.md"}, "the skills cannot be had: "),
        ({**main, "cursor": "9000"}, "skills.read cursor is out of range"),
        ({**main, "cursor": "x"}, "failed to parse function arguments: cursor: "),
        ({**main, "authority": {"kind": "host"}}, "failed to parse function arguments: authority"),
    ]
    async with desk_with(tmp_path, *RESOURCES) as desk:
        outputs = await run(desk, *[("read", arguments) for arguments, _ in cases])
        reads = [m for m in desk.apps.hosted.script.names() if m == "resources/read"]
    for output, (_, text) in zip(outputs, cases, strict=True):
        assert output.startswith(text)
    # One that is not there, and one whose cursor was wrong.
    assert len(reads) == 2


@claim("skills:of-servers")
@pytest.mark.parametrize("config", ["", "[orchestrator.skills]\nenabled = false\n"])
async def test_without_the_setting_there_are_no_such_functions(tmp_path: Path, config: str) -> None:
    async with desk_with(tmp_path, *RESOURCES, config=config) as desk:
        assert await run(desk, ("list", KIND)) == ["unsupported call: skillslist"]
        assert "skills" not in desk.namespaces()


async def test_a_file_that_is_too_large_or_slow_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = {**KIND, "package": ONE, "resource": f"{ONE}/SKILL.md"}
    monkeypatch.setattr(skills, "MAX_FILE_BYTES", 8_193)
    async with desk_with(tmp_path, *RESOURCES) as desk:
        assert await run(desk, ("read", main)) == ["the resource is larger than 8193 bytes"]
        monkeypatch.setattr(skills, "ANSWER_S", 0.0)
        assert (await run(desk, ("list", KIND)))[-1] == "the skills did not come within 0 s"


def shown(name: str, uri: str, text: str) -> tuple[str, str]:
    frame = f"<skill>\n<name>{name}</name>\n<path>{uri}/SKILL.md</path>\n{text}\n</skill>"
    return ("user", frame)


TWO = "skill://me/two"
CUT = "x" * 8_192 + "\n[… the rest is read with `skills.read` and the cursor `8192`]"


async def run_turn(desk: Desk, *parts: dict[str, Any]) -> list[dict[str, Any]]:
    """Begin a turn; gives all that the client receives until its end."""
    await desk.client.call("turn/start", {"threadId": desk.thread_id, "input": list(parts)})
    return await desk.client.until("turn/completed")


def skill_warnings(messages: list[dict[str, Any]]) -> list[str]:
    warnings = [one["params"]["message"] for one in messages if one["method"] == "warning"]
    return [text for text in warnings if "skills" in text]


@claim("skills:of-servers")
@pytest.mark.parametrize(
    ("part", "names"),
    [
        ({"type": "text", "text": "use $plug:one, $plug:one and $two!"}, ["one", "two"]),
        ({"type": "text", "text": f"[$any]({TWO}/SKILL.md) and [$one]({ONE})"}, ["one", "two"]),
        ({"type": "skill", "name": "two", "path": f"{TWO}/SKILL.md"}, ["two"]),
        ({"type": "mention", "name": "two", "path": TWO}, ["two"]),
        ({"type": "text", "text": f"$HOME $one [$two](app://two) [two]({TWO})"}, []),
    ],
    ids=["names", "links", "skill", "mention", "others"],
)
async def test_skills_of_a_server_that_the_user_names_are_shown_to_the_model(
    tmp_path: Path, part: dict[str, Any], names: list[str]
) -> None:
    texts = {"one": shown("plug:one", ONE, CUT), "two": shown("two", TWO, "Do it.")}
    async with desk_with(tmp_path, *RESOURCES, file(f"{TWO}/SKILL.md", "Do it.")) as desk:
        heard = await run_turn(desk, part)
        said = desk.served.model.inputs()
        assert [one for one in said if "<skill>" in one[1]] == [texts[name] for name in names]
        assert skill_warnings(heard) == []
        await run_turn(desk, {"type": "text", "text": "go on"})
        # Once, as part of the history.
        assert [one for one in desk.served.model.inputs() if one in texts.values()] == [
            texts[name] for name in names
        ]


async def test_a_skill_in_a_file_comes_before_one_of_a_server_with_the_same_name(
    tmp_path: Path,
) -> None:
    own = tmp_path / "home/skills/two/SKILL.md"
    own.parent.mkdir(parents=True)
    own.write_text("---\ndescription: d\n---\nMine.\n")
    async with desk_with(tmp_path, *RESOURCES, file(f"{TWO}/SKILL.md", "Do it.")) as desk:
        await run_turn(desk, {"type": "text", "text": f"$two [$x]({own}) [$x](skill://{own})"})
        said = [text for role, text in desk.served.model.inputs() if "<skill>" in text]
    assert said == [f"<skill>\n<name>two</name>\n<path>{own}</path>\n{own.read_text()}\n</skill>"]


async def test_skills_that_are_named_and_cannot_be_read_are_named_to_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk_with(tmp_path, *RESOURCES) as desk:

        async def warned(text: str) -> list[str]:
            heard = await run_turn(desk, {"type": "text", "text": text})
            assert desk.served.model.inputs()[-1] == ("user", text)
            return skill_warnings(heard)

        [gone] = await warned("$two")
        assert gone.startswith("skills were left out: `two` cannot be read: ")
        monkeypatch.setattr(skills, "MAX_FILE_BYTES", 8_193)
        assert await warned("$plug:one") == [
            "skills were left out: `plug:one` cannot be read: "
            "the resource is larger than 8193 bytes"
        ]
        monkeypatch.setattr(skills, "ANSWER_S", 0.0)
        assert await warned("$plug:one $x") == [
            "skills were left out: `plug:one`, `x` did not come within 0 s"
        ]


async def test_a_named_skill_that_cannot_be_read_keeps_no_other_one_back(tmp_path: Path) -> None:
    there = file(f"{ONE}/SKILL.md", "Do it.")
    async with desk_with(tmp_path, *RESOURCES[:3], there) as desk:
        heard = await run_turn(desk, {"type": "text", "text": "$two $plug:one"})
        said = [one for one in desk.served.model.inputs() if "<skill>" in one[1]]
        assert said == [shown("plug:one", ONE, "Do it.")]
        [gone] = skill_warnings(heard)
        assert gone.startswith("skills were left out: `two` cannot be read: ")


async def test_without_the_setting_no_server_is_asked_for_skills(tmp_path: Path) -> None:
    async with desk_with(tmp_path, *RESOURCES, config="") as desk:
        await run_turn(desk, {"type": "text", "text": "$two"})
        assert desk.served.model.inputs()[-1] == ("user", "$two")
        assert "resources/list" not in desk.apps.hosted.script.names()


@asynccontextmanager
async def asking_server(way: str) -> AsyncIterator[Registration]:
    """Serve a skill whose file is read once the user has answered a form.

    With `list` the list is given only then, which needs a session.
    """

    async def listed(context: Any, params: Any) -> types.ListResourcesResult:
        described = skill(TWO, source="user", skill_name="two")
        if way == "list":
            schema = {"type": "object", "properties": {"which": {"type": "string"}}}
            said = await context.session.elicit_form("Which?", schema, context.request_id)
            described["description"] = said.action
        return types.ListResourcesResult(resources=[types.Resource.model_validate(described)])

    async with sdk_app() as (peer, app), listening(app) as port:
        peer.server.add_request_handler("resources/list", types.PaginatedRequestParams, listed)
        protocol = "2025" if way == "list" else "auto"
        table = {"url": f"http://127.0.0.1:{port}/mcp", "protocol": protocol}
        metadata = RuntimeMetadata(serves_skills=True)
        yield Registration("shelved", table, SecretStr("bearer"), Generation("one"), metadata)


@claim("skills:of-servers", "mcp:question-call")
@pytest.mark.parametrize("way", ["named", "read", "list"])
async def test_a_question_about_skills_has_the_turn(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skills, "ANSWER_S", WAIT_S)
    text, scripts = "$two", [says("done")]
    if way != "named":
        file = {"package": TWO, "resource": f"{TWO}/SKILL.md"} if way == "read" else {}
        made = {"namespace": "skills", "name": way, "arguments": {**KIND, **file}}
        text, scripts = "go", [calls(made), says("done")]
    async with AsyncExitStack() as stack:
        shelf = Shelf("shelf", await stack.enter_async_context(asking_server(way)))
        serving = serve(tmp_path, config=ON, extensions=ExtensionRegistry([shelf]))
        served = await stack.enter_async_context(serving)
        client = await stack.enter_async_context(served.client())
        thread_id = await client.start_thread()
        assert await settled(client, "shelved") == ("ready", None)
        served.model.scripts += scripts
        begun = {"threadId": thread_id, "input": [{"type": "text", "text": text}]}
        turn_id = (await client.call("turn/start", begun))["turn"]["id"]
        asked = await answer_question(client, {"result": {"action": "decline"}})
        await client.wait_for("turn/completed")
    assert (asked["threadId"], asked["turnId"]) == (thread_id, turn_id)
    assert "decline" in json.dumps(served.model.requests[-1]["input"])
