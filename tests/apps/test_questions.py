"""Apps: the texts of questions, and what is said of a call beside it."""

import json
from importlib import resources
from typing import Any

import pytest

from app_server.apps.inventory.inventory import AppTool, Connector, build_inventory
from app_server.apps.inventory.names import allocate_routes
from app_server.apps.presentation import (
    TEMPLATES_FILE,
    ApprovalTemplates,
    PresentedTools,
    app_context,
)
from app_server.extensions.contract.registration import (
    ApprovalIdentity,
    ApprovalPresentation,
    ParameterLabel,
    RuntimeMetadata,
    ToolMetadata,
)
from protocol.turns.items import McpToolCallAppContext
from tests.support.apps.inventories import listed
from tests.support.apps.policies import NO_TEMPLATES, SEND, Served, one, project, templates


def question(text: bytes) -> ApprovalPresentation | None:
    made = project(Served(SEND), templates=ApprovalTemplates.parse(text))
    return made["codex_apps__gmail"].metadata.of_tool("_send").approval_presentation


def test_a_template_puts_the_question_for_its_tool() -> None:
    assert question(templates()) == ApprovalPresentation(
        question="Let Gmail send it?", labels=(ParameterLabel(name="to", label="To"),)
    )


@pytest.mark.parametrize(
    "members",
    [
        {"connector_id": "Gmail"},
        {"server_name": "codex_apps__gmail"},
        {"tool_title": "Gmail_Send"},
        {"tool_title": "send"},
        {"template": "Send it."},
        {"template": "Send? Now?"},
        {"template_params": [{"name": "to", "label": "To"}, {"name": "cc", "label": " "}]},
    ],
)
def test_a_template_that_does_not_fit_exactly_is_not_used(members: dict[str, Any]) -> None:
    assert question(templates(**members)) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "Invalid JSON"),
        (templates().replace(b"4", b"3"), "schema_version: Input should be 4"),
        (b'{"schema_version": 4}', "templates: Field required"),
        (templates(template_params=None), "template_params: Input should be a valid array"),
    ],
)
def test_templates_that_cannot_be_used_are_none_and_logged(
    text: bytes, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert question(text) is None
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.startswith("the questions for approval cannot be used: ")
    assert problem in message


def test_each_template_of_the_package_makes_a_question(caplog: pytest.LogCaptureFixture) -> None:
    text = resources.files("app_server.apps").joinpath(TEMPLATES_FILE).read_text()
    shipped = json.loads(text)["templates"]
    loaded = ApprovalTemplates.load()
    assert caplog.records == []
    assert shipped
    for template in shipped:
        tool = listed("t", template["connector_id"], "An App", title=template["tool_title"])
        (connector,) = build_inventory([tool]).connectors
        assert loaded.presentation(connector, connector.tools[0]) == ApprovalPresentation(
            question=template["template"].replace("{connector_name}", "An App"),
            labels=tuple(ParameterLabel(**entry) for entry in template["template_params"]),
        )


def test_an_item_says_to_which_app_it_goes() -> None:
    meta = {
        "link_id": "link-1",
        "_codex_apps": {"resource_uri": "/gmail/send_email"},
        "ui/resourceUri": "ui://a",
    }
    assert app_context(*one(meta=meta)) == McpToolCallAppContext(
        connector_id="gmail",
        link_id="link-1",
        resource_uri="ui://a",
        app_name="Gmail",
        action_name="send_email",
    )
    assert app_context(*one()) == McpToolCallAppContext(connector_id="gmail", app_name="Gmail")


def test_a_tool_is_presented_when_somebody_asks_for_it() -> None:
    (route,) = allocate_routes(build_inventory([listed("a"), listed("b")]))
    asked: list[str] = []

    class Templates(ApprovalTemplates):
        def presentation(self, connector: Connector, tool: AppTool) -> ApprovalPresentation | None:
            asked.append(tool.name)
            return super().presentation(connector, tool)

    said = PresentedTools(route, Templates())
    metadata = RuntimeMetadata(tools=said)
    assert (metadata.tools, list(said), len(said), asked) == (said, ["a", "b"], 2, [])
    assert metadata.of_tool("x") == ToolMetadata()
    first = metadata.of_tool("b")
    assert metadata.of_tool("b") is first
    assert asked == ["b"]
    assert first.approval_identity == ApprovalIdentity(
        server="codex_apps", source="gmail", tool="b"
    )
    assert dict(said) == dict(PresentedTools(route, NO_TEMPLATES))
    assert asked == ["b", "a"]
