"""Plugins that a model lists and suggests: who is asked, and when an install counts."""

import json
import tomllib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app_server.extensions.contract.registration import ContributionContext
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.tools.install_plugin import LIST, REQUEST, UNKNOWN
from tests.support.files.plugins import server, write, write_marketplace, write_plugin
from tests.support.harness import Served, WireClient, claim, serve
from tests.support.model import calls, says

METHOD = "mcpServer/elicitation/request"
CAL = "cal@shop"
WANTED = """
[tool_suggest]
discoverables = [
    { type = "plugin", id = "cal@shop" },
    { type = "plugin", id = "plain@shop" },
    { type = "plugin", id = "not-there@shop" },
    { type = "connector", id = "other@shop" },
]
"""
SUGGESTION = {
    "tool_type": "plugin",
    "action_type": "install",
    "tool_id": CAL,
    "suggest_reason": " You asked. ",
}


class Apps:
    """Says which of the apps that plugins declare are there."""

    def __init__(self, *there: str) -> None:
        self.there = there
        self.asked: list[Sequence[str]] = []

    async def verify_install(
        self, app_ids: Sequence[str], context: ContributionContext
    ) -> bool | None:
        self.asked.append(app_ids)
        return all(id_ in self.there for id_ in app_ids)


@asynccontextmanager
async def shop(
    tmp_path: Path, config: str = WANTED, apps: Apps | None = None
) -> AsyncIterator[tuple[Served, WireClient, str]]:
    root = tmp_path / "shop"
    cal = write_plugin(
        root / "cal",
        "cal",
        servers={"tools": server()},
        apps=["app-cal"],
        description="x" * 241,
    )
    write(cal / "skills/s/SKILL.md", "---\nname: s\ndescription: d\n---\n")
    for name in ("plain", "other", "never"):
        write_plugin(root / name, name)
    never = {"name": "never", "source": "./never", "policy": {"installation": "NOT_AVAILABLE"}}
    file = write_marketplace(root, "shop", "cal", "plain", "other", never)
    config = f'{config}\n[marketplaces.shop]\nsource = "{root}"\n'
    registry = ExtensionRegistry(install_checks=[] if apps is None else [apps])
    async with (
        serve(tmp_path / "home", config=config, extensions=registry) as served,
        served.client() as client,
    ):
        yield served, client, str(file)


async def begin(served: Served, client: WireClient, *functions: Any) -> str:
    served.model.scripts += [*(calls(function) for function in functions), says("done")]
    thread_id = await client.start_thread()
    said = [{"type": "text", "text": "go"}]
    await client.call("turn/start", {"threadId": thread_id, "input": said})
    return thread_id


def suggests(**changes: Any) -> dict[str, Any]:
    return {"name": REQUEST, "arguments": {**SUGGESTION, **changes}}


def outputs(served: Served) -> list[str]:
    return [item["output"] for item in served.model.items() if "output" in item]


def declared(served: Served) -> list[str]:
    tools = served.model.requests[-1]["tools"]
    return [tool["name"] for tool in tools if tool.get("name") in (LIST, REQUEST)]


@claim("plugins:offered")
async def test_the_model_lists_what_the_settings_name_and_a_marketplace_has(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path) as (served, client, _):
        await begin(served, client, {"name": LIST, "arguments": {}})
        await client.wait_for("turn/completed")
        assert declared(served) == [LIST, REQUEST]
        assert json.loads(outputs(served)[0]) == {
            "tools": [
                {
                    "id": CAL,
                    "name": "cal",
                    "description": "x" * 240,
                    "tool_type": "plugin",
                    "has_skills": True,
                    "mcp_server_names": ["tools"],
                    "app_connector_ids": ["app-cal"],
                },
                {
                    "id": "plain@shop",
                    "name": "plain",
                    "description": None,
                    "tool_type": "plugin",
                    "has_skills": False,
                    "mcp_server_names": [],
                    "app_connector_ids": [],
                },
            ]
        }


@claim("plugins:offered")
@pytest.mark.parametrize(
    "config",
    [
        "",
        f"[features]\ntool_suggest = false\n{WANTED}",
        f"[features]\nplugins = false\n{WANTED}",
        '[tool_suggest]\ndiscoverables = [{ type = "plugin", id = "cal@shop" }]\n'
        'disabled_tools = [{ type = "plugin", id = "cal@shop" }]\n',
        '[tool_suggest]\ndiscoverables = "cal@shop"\n',
        "[tool_suggest]\ndiscoverables = [1, { type = 'plugin' }]\n",
    ],
)
async def test_without_something_to_suggest_there_are_no_such_functions(
    tmp_path: Path, config: str
) -> None:
    async with shop(tmp_path, config) as (served, client, _):
        await begin(served, client, {"name": LIST, "arguments": {}})
        await client.wait_for("turn/completed")
        assert declared(served) == []
        assert outputs(served) == [f"unsupported call: {LIST}"]


@claim("plugins:suggested")
async def test_the_client_is_asked_installs_the_plugin_and_the_model_reads_that_it_is_complete(
    tmp_path: Path,
) -> None:
    apps = Apps("app-cal")
    async with shop(tmp_path, apps=apps) as (served, client, file):
        # The approval policy has no say: nothing happens that the user does not do.
        listing = {"name": LIST, "arguments": {}}
        served.model.scripts += [calls(suggests()), calls(listing), says("done")]
        thread_id = await client.start_thread(approvalPolicy="never")
        said = [{"type": "text", "text": "go"}]
        await client.call("turn/start", {"threadId": thread_id, "input": said})
        messages = await client.until(METHOD)
        status = [m["params"]["status"] for m in messages if "status" in m.get("params", {})]
        assert status[-1] == {"type": "active", "activeFlags": ["waitingOnApproval"]}
        question = messages[-1]
        assert question["params"].pop("turnId")
        assert question["params"] == {
            "threadId": thread_id,
            "serverName": "codex_apps",
            "mode": "form",
            "_meta": {
                "codex_approval_kind": "tool_suggestion",
                "persist": "always",
                "tool_type": "plugin",
                "suggest_type": "install",
                "suggest_reason": "You asked.",
                "tool_id": CAL,
                "tool_name": "cal",
                "suggestion_id": "request_plugin_install_call_1",
                "app_connector_ids": ["app-cal"],
            },
            "message": "You asked.",
            "requestedSchema": {"type": "object", "properties": {}},
        }
        await client.call("plugin/install", {"marketplacePath": file, "pluginName": "cal"})
        await client.send({"id": question["id"], "result": {"action": "accept", "content": {}}})
        await client.wait_for("turn/completed")
        result, listed = outputs(served)
        assert json.loads(result) == {
            "completed": True,
            "user_confirmed": True,
            "tool_type": "plugin",
            "action_type": "install",
            "tool_id": CAL,
            "tool_name": "cal",
            "suggest_reason": "You asked.",
        }
        assert apps.asked == [["app-cal"]]
        assert [one["id"] for one in json.loads(listed)["tools"]] == ["plain@shop"]


async def answered(tmp_path: Path, answer: Any, apps: Apps, *, installs: bool) -> Any:
    """Give what the model reads of an answer of the client."""
    async with shop(tmp_path, apps=apps) as (served, client, file):
        await begin(served, client, suggests())
        question = await client.wait_for(METHOD)
        if installs:
            await client.call("plugin/install", {"marketplacePath": file, "pluginName": "cal"})
        await client.send({"id": question["id"], **answer})
        await client.wait_for("turn/completed")
        result = json.loads(outputs(served)[-1])
        return result["user_confirmed"], result["completed"]


@claim("plugins:suggested")
@pytest.mark.parametrize(
    ("answer", "installs", "there", "result"),
    [
        ({"result": {"action": "accept"}}, False, ["app-cal"], (True, False)),
        ({"result": {"action": "accept"}}, True, [], (True, False)),
        ({"result": {"action": "decline"}}, True, ["app-cal"], (False, False)),
        ({"result": {"action": "cancel"}}, False, ["app-cal"], (False, False)),
        ({"error": {"code": -32000, "message": "no"}}, False, ["app-cal"], (False, False)),
    ],
)
async def test_an_install_counts_if_the_user_agreed_and_plugin_and_apps_are_there(
    tmp_path: Path, answer: Any, installs: bool, there: Sequence[str], result: Any
) -> None:
    assert await answered(tmp_path, answer, Apps(*there), installs=installs) == result


@claim("plugins:declined")
async def test_a_plugin_that_is_declined_for_good_is_not_suggested_again(tmp_path: Path) -> None:
    async with shop(tmp_path) as (served, client, _):
        listing = {"name": LIST, "arguments": {}}
        await begin(served, client, suggests(), listing, suggests())
        question = await client.wait_for(METHOD)
        declined = {"action": "decline", "_meta": {"persist": "always"}}
        await client.send({"id": question["id"], "result": declined})
        await client.wait_for("turn/completed")
        first, listed, again = outputs(served)
        assert json.loads(first)["user_confirmed"] is False
        assert [one["id"] for one in json.loads(listed)["tools"]] == ["plain@shop"]
        assert again == UNKNOWN
        written = tomllib.loads((served.home / "config.toml").read_text())["tool_suggest"]
        assert written["disabled_tools"] == [{"type": "plugin", "id": CAL}]


@claim("plugins:suggested")
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"tool_id": "other@shop"}, UNKNOWN),
        ({"tool_id": "never@shop"}, UNKNOWN),
        (
            {"suggest_reason": " "},
            "failed to parse function arguments: suggest_reason: "
            "String should have at least 1 character",
        ),
        (
            {"action_type": "enable"},
            "failed to parse function arguments: action_type: Input should be 'install'",
        ),
        (
            {"tool_type": "connector"},
            "failed to parse function arguments: tool_type: Input should be 'plugin'",
        ),
    ],
)
async def test_a_suggestion_that_makes_no_sense_asks_nobody(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    async with shop(tmp_path) as (served, client, _):
        await begin(served, client, suggests(**changes))
        messages = await client.until("turn/completed")
        assert METHOD not in [message.get("method") for message in messages]
        assert outputs(served) == [text]
