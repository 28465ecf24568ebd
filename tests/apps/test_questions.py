"""Apps: the texts of questions, and what is said of a call beside it."""

import json
from importlib import resources
from typing import Any

import pytest

from app_server.apps.inventory.inventory import build_inventory
from app_server.apps.inventory.names import allocate_routes
from app_server.apps.presentation import (
    TEMPLATES_FILE,
    ApprovalTemplates,
    app_context,
    present_tools,
)
from app_server.extensions.contract.metadata import (
    ApprovalPresentation,
    ParameterLabel,
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


def test_how_a_tool_was_presented_is_kept_where_it_would_not_change() -> None:
    def routes(*tools: dict[str, Any]) -> Any:
        return allocate_routes(build_inventory(tools))

    before = routes(listed("a"), listed("b"), listed("c", "mail", "Mail"))
    said = present_tools(before, NO_TEMPLATES, {}, {})
    known = {route.server: route for route in before}
    described = {"connector_description": "Other."}
    now = routes(
        listed("a", description="New."),
        listed("b", title="B"),
        listed("c", "mail", "Mail", meta=described),
    )
    again = present_tools(now, NO_TEMPLATES, known, said)
    assert again == present_tools(now, NO_TEMPLATES, {}, {})
    same = {
        (server, name): said[server].get(name) is metadata
        for server, tools in again.items()
        for name, metadata in tools.items()
    }
    assert same == {
        ("codex_apps__gmail", "a"): True,
        ("codex_apps__gmail", "b"): False,
        ("codex_apps__mail", "c"): False,
    }
