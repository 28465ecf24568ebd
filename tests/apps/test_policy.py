"""Apps: which tools may run, who is asked how, and what is registered for it."""

import json
import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Any

import pytest
from pydantic import SecretStr

from app_server.apps.inventory.inventory import AppTool, Connector, build_inventory
from app_server.apps.inventory.names import Route, allocate_routes
from app_server.apps.policy import AppsPolicy, Use, registrations
from app_server.apps.presentation import (
    TEMPLATES_FILE,
    ApprovalTemplates,
    app_context,
    present_tools,
)
from app_server.apps.settings import AppsSettings
from app_server.config.values import ConfigError
from app_server.extension.metadata import (
    ApprovalIdentity,
    ApprovalPersistence,
    ApprovalPresentation,
    ApprovalSource,
    ParameterLabel,
    RuntimeMetadata,
    Telemetry,
    ToolMetadata,
)
from app_server.extension.registration import Owner, Registration
from app_server.mcp.catalog.catalog import resolve_servers
from protocol.turns.items import McpToolCallAppContext
from tests.support.apps.inventories import listed
from tests.support.harness import claim
from tests.support.mcp_peers.shelf import Generation as CountingOwner

ORIGIN = "https://chatgpt.com"

NO_TEMPLATES = ApprovalTemplates()


def policy(config: str = "", requirements: str | None = None) -> AppsPolicy:
    demands = None if requirements is None else tomllib.loads(requirements)
    return AppsPolicy.read(tomllib.loads(config), demands)


def one(**members: Any) -> tuple[Connector, AppTool]:
    """Make a connector `gmail` with one tool `send`."""
    (connector,) = build_inventory([listed("send", **members)]).connectors
    return connector, connector.tools[0]


def hints(**named: Any) -> dict[str, Any]:
    return {"annotations": {f"{name}Hint": value for name, value in named.items()}}


HARMLESS = hints(destructive=False, openWorld=False)


@claim("apps:t-46")
@pytest.mark.parametrize(
    ("config", "tool", "enabled"),
    [
        ("", {}, True),
        ("[apps._default]\nenabled = false", {}, False),
        ("[apps._default]\nenabled = false\n[apps.gmail]", {}, True),
        ("[apps._default]\nenabled = false\n[apps.other]\nenabled = true", {}, False),
        ("[apps.gmail]\nenabled = false", {}, False),
        ("[apps.gmail]\nenabled = false\ntools.send.enabled = true", {}, False),
        ("[apps.gmail]\ntools.send.enabled = false", {}, False),
        ("[apps.gmail]\ntools.Send.enabled = false", {"title": "Gmail_Send"}, False),
        ("[apps.gmail]\ntools.Gmail_Send.enabled = false", {"title": "Gmail_Send"}, True),
        (
            "[apps.gmail]\ntools.Send.enabled = false\ntools.send.enabled = true",
            {"title": "Gmail_Send"},
            True,
        ),
        ("[apps.gmail]\ndefault_tools_enabled = false", {}, False),
        ("[apps.gmail]\ndefault_tools_enabled = false\ntools.send.enabled = true", {}, True),
        ("[apps.gmail]\ndefault_tools_enabled = true\ndestructive_enabled = false", {}, True),
        ("[apps.gmail]\ndestructive_enabled = false", {}, False),
        ("[apps.gmail]\ndestructive_enabled = false", hints(destructive=False), True),
        ("[apps.gmail]\ndestructive_enabled = false", hints(destructive="no"), False),
        ("[apps.gmail]\ndestructive_enabled = false", {"annotations": "none"}, False),
        ("[apps.gmail]\nopen_world_enabled = false", {}, False),
        ("[apps.gmail]\nopen_world_enabled = false", hints(openWorld=False), True),
        ("[apps.gmail]\nopen_world_enabled = false", hints(destructive=False), False),
        ("[apps._default]\ndestructive_enabled = false", hints(openWorld=False), False),
        ("[apps._default]\nopen_world_enabled = false", hints(destructive=False), False),
        ("[apps._default]\nopen_world_enabled = false", HARMLESS, True),
        (
            "[apps._default]\ndestructive_enabled = false\n"
            "[apps.gmail]\ndestructive_enabled = true",
            {},
            True,
        ),
    ],
)
def test_the_first_rule_that_says_something_decides_whether_a_tool_may_be_used(
    config: str, tool: dict[str, Any], enabled: bool
) -> None:
    assert policy(config).enabled(*one(**tool)) is enabled


@claim("apps:t-46")
def test_modes_go_from_the_tool_to_its_link_its_app_and_the_default() -> None:
    steps = [
        "[apps._default]\ndefault_tools_approval_mode = 'writes'\n[apps.gmail]\n",
        "default_tools_approval_mode = 'prompt'\n",
        "links.link-1.default_tools_approval_mode = 'auto'\n",
        "tools.send.approval_mode = 'approve'\n",
    ]
    of_link = one(meta={"link_id": "link-1"})
    configs = ["".join(steps[:count]) for count in range(len(steps) + 1)]
    assert [policy(config).mode(*of_link) for config in configs] == [
        "auto",
        "writes",
        "prompt",
        "auto",
        "approve",
    ]
    assert policy(configs[3]).mode(*one()) == "prompt"


@claim("apps:t-47")
def test_an_administrator_switches_apps_off_and_chooses_modes_of_tools() -> None:
    mine = "[apps.gmail]\nenabled = true\ntools.send.approval_mode = 'approve'"
    off = policy(mine, "[apps.gmail]\nenabled = false")
    assert (off.app_enabled("gmail"), off.enabled(*one())) == (False, False)
    on = policy("[apps.gmail]\nenabled = false", "[apps.gmail]\nenabled = true")
    assert on.app_enabled("gmail") is False
    managed = policy(mine, "[apps.gmail.tools.send]\napproval_mode = 'prompt'")
    assert managed.mode(*one()) == "prompt"
    by_title = policy(mine, "[apps.gmail.tools.Send]\napproval_mode = 'prompt'")
    assert by_title.mode(*one(title="Gmail_Send")) == "approve"


@claim("apps:t-48")
@pytest.mark.parametrize(
    ("config", "requirements", "reviewer"),
    [
        ("", None, None),
        ("[apps._default]\napprovals_reviewer = 'auto_review'", None, "auto_review"),
        ("[apps.gmail]\napprovals_reviewer = 'guardian_subagent'", None, "auto_review"),
        (
            "[apps._default]\napprovals_reviewer = 'auto_review'\n"
            "[apps.gmail]\napprovals_reviewer = 'user'",
            None,
            "user",
        ),
        ("[apps.gmail]\napprovals_reviewer = 'user'", "allowed_approvals_reviewers = []", None),
        (
            "[apps._default]\napprovals_reviewer = 'auto_review'\n"
            "[apps.gmail]\napprovals_reviewer = 'user'",
            "allowed_approvals_reviewers = ['auto_review']",
            None,
        ),
        (
            "[apps.gmail]\napprovals_reviewer = 'auto_review'",
            "allowed_approvals_reviewers = ['guardian_subagent', 'someone new']",
            "auto_review",
        ),
    ],
)
def test_a_reviewer_who_is_not_allowed_is_dropped(
    config: str, requirements: str | None, reviewer: str | None
) -> None:
    connector, _ = one()
    assert policy(config, requirements).reviewer(connector) == reviewer


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ("apps = 1", "apps"),
        ("[apps.gmail]\nenabled = 'yes'", "apps.gmail.enabled"),
        (
            "[apps.gmail]\ndefault_tools_approval_mode = 'x'",
            "apps.gmail.default_tools_approval_mode",
        ),
        ("[apps.gmail]\napprovals_reviewer = 'x'", "apps.gmail.approvals_reviewer"),
        ("[apps.gmail]\nomit_tools_from = ['x']", "apps.gmail.omit_tools_from"),
        ("[apps.gmail.tools.send]\napproval_mode = 'x'", "apps.gmail.tools.send.approval_mode"),
        (
            "[apps.gmail.links.l]\napprovals_reviewer = 'x'",
            "apps.gmail.links.l.approvals_reviewer",
        ),
    ],
)
def test_a_wrong_setting_is_named(config: str, where: str) -> None:
    with pytest.raises(ConfigError, match=f"in `{where}`"):
        policy(config)
    with pytest.raises(ConfigError, match=f"in `{where}`"):
        policy("", config)


@pytest.mark.parametrize(
    ("members", "callable_"),
    [
        ({}, True),
        ({"meta": {"_codex_apps": {"synthetic_link": True}}}, False),
        ({"meta": {"ui": {"visibility": ["app"]}}}, False),
        ({"meta": {"ui": {"visibility": ["app", "model"]}}}, True),
    ],
)
def test_an_app_can_be_called_if_the_model_may_see_a_tool_that_does_something(
    members: dict[str, Any], callable_: bool
) -> None:
    connector, _ = one(**members)
    assert policy().callable(connector) is callable_
    assert policy("[apps.gmail]\ndefault_tools_enabled = false").callable(connector) is False


def test_settings_say_whether_there_are_apps() -> None:
    everything = AppsSettings(True, True, True, "https://chatgpt.com/backend-api", None, True)
    assert AppsSettings.read({}) == everything
    assert AppsSettings.read(
        tomllib.loads("""
            chatgpt_base_url = "http://127.0.0.1:1"
            apps_mcp_product_sku = " sku "
            include_apps_instructions = false
            [features]
            apps = false
            connectors = true
            auth_elicitation = false
            [orchestrator.mcp]
            enabled = false
        """)
    ) == AppsSettings(False, False, False, "http://127.0.0.1:1", "sku", False)
    assert AppsSettings.read({"features": {"connectors": False}}).enabled is False
    assert AppsSettings.read({"apps_mcp_product_sku": " "}).sku is None


@claim("apps:r1")
def test_a_disabled_bundle_is_not_served() -> None:
    def serves(**table: Any) -> bool:
        return AppsSettings.read({"mcp_servers": {"codex_apps": table}}).serves_mcp

    assert (serves(), serves(enabled=True), serves(enabled=False)) == (True, True, False)


class Served:
    """A generation without a listener."""

    def __init__(self, *tools: dict[str, Any], id_: str = "1") -> None:
        self._owner = CountingOwner(id_)
        self._routes = allocate_routes(build_inventory(tools))

    @property
    def routes(self) -> Sequence[Route]:
        return self._routes

    @property
    def owner(self) -> Owner:
        return self._owner

    def url(self, server: str) -> str:
        return f"http://127.0.0.1:9/mcp/{server}"

    def bearer(self, server: str) -> SecretStr:
        return SecretStr(f"bearer of {server}")


def project(
    served: Served,
    config: str = "",
    plugins: dict[str, list[str]] | None = None,
    templates: ApprovalTemplates = NO_TEMPLATES,
) -> dict[str, Registration]:
    presented = present_tools(served.routes, templates, {}, {})
    made = registrations(served, Use(policy(config), ORIGIN, plugins or {}), presented, {})
    assert len({registration.name for registration in made}) == len(made)
    return {registration.name: registration for registration in made}


SEND = listed("Gmail send", title="Gmail_Send", meta={"connector_description": "Mail."})


@claim("apps:b1")
def test_a_generation_becomes_registrations_with_all_that_the_rest_may_know() -> None:
    served = Served(SEND, listed("drop"), listed("x", "a", "Zebra"))
    made = project(
        served,
        """
            [apps.gmail]
            approvals_reviewer = "user"
            omit_tools_from = ["code_mode"]
            tools.drop.enabled = false
            tools.Send.approval_mode = "prompt"
        """,
        {"gmail": [" Mail ", "Post", "Mail", ""], "other": ["Other"]},
    )
    assert list(made) == ["codex_apps", "codex_apps__gmail", "codex_apps__zebra"]
    shared = {
        "environment_id": "local",
        "enabled": True,
        "required": False,
        "supports_parallel_tool_calls": False,
    }
    telemetry = Telemetry(origin=ORIGIN, count_list=False)
    assert made["codex_apps"] == Registration(
        "codex_apps",
        {"url": "http://127.0.0.1:9/mcp/codex_apps", **shared, "enabled_tools": []},
        SecretStr("bearer of codex_apps"),
        served.owner,
        RuntimeMetadata(telemetry=telemetry, serves_skills=True),
    )
    gmail = made["codex_apps__gmail"]
    of_tools = gmail.metadata.tools
    assert list(of_tools) == ["_send", "drop"]
    assert gmail == Registration(
        "codex_apps__gmail",
        {
            "url": "http://127.0.0.1:9/mcp/codex_apps__gmail",
            **shared,
            "enabled_tools": ["_send"],
            "tools": {"_send": {"approval_mode": "prompt"}},
            "omit_tools_from": ["code_mode"],
        },
        SecretStr("bearer of codex_apps__gmail"),
        served.owner,
        RuntimeMetadata(
            telemetry=telemetry,
            plugin_display_names=("Mail", "Post"),
            client_meta_names=("codex_apps",),
            trusts_effective_input=True,
            trusts_approval_context=True,
            sandbox_state_source="primary",
            approvals_reviewer="user",
            tools=of_tools,
        ),
    )
    assert of_tools["_send"] == ToolMetadata(
        approval_identity=ApprovalIdentity(server="codex_apps", source="gmail", tool="Gmail send"),
        approval_source=ApprovalSource(id="gmail", name="Gmail", description="Mail."),
        approval_header="Approve app tool call?",
        approval_form_meta={
            "source": "connector",
            "connector_id": "gmail",
            "connector_name": "Gmail",
            "connector_description": "Mail.",
        },
        approval_persistence=ApprovalPersistence(
            target="apps", path=("apps", "gmail", "tools", "Gmail send", "approval_mode")
        ),
        metric_labels={"connector_id": "gmail", "connector_name": "Gmail"},
        search_aliases=("Gmail", "Gmail send"),
    )


@claim("apps:b1")
def test_two_projections_of_one_generation_are_equal() -> None:
    served = Served(SEND, listed("x", "a", "Zebra"))
    assert project(served) == project(served)
    assert project(served) != project(Served(SEND, listed("x", "a", "Zebra"), id_="2"))
    assert project(served) != project(served, "[apps.gmail]\nenabled = false")


def test_the_rest_takes_registrations_as_they_are() -> None:
    made = project(Served(SEND, listed("drop")), "[apps.gmail]\ntools.drop.enabled = false")
    servers = resolve_servers({}, list(made.values()))
    assert list(servers) == ["codex_apps", "codex_apps__gmail"]
    gmail = servers["codex_apps__gmail"]
    assert gmail.enabled
    assert [gmail.allows(tool) for tool in ("_send", "drop")] == [True, False]
    assert gmail.approval_mode_of("_send") == "auto"
    assert servers["codex_apps"].allows("anything") is False


@claim("apps:t-49")
def test_an_app_without_an_enabled_tool_keeps_its_registration() -> None:
    gmail = project(Served(SEND), "[apps.gmail]\nenabled = false")["codex_apps__gmail"]
    assert gmail.config["enabled_tools"] == []
    assert gmail.config["enabled"] is True


@claim("apps:r2")
def test_an_approval_is_remembered_by_what_stays_when_names_change() -> None:
    def named(*tools: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        return {
            f"{name}/{tool}": (metadata.approval_identity, metadata.approval_persistence)
            for name, registration in project(Served(*tools)).items()
            for tool, metadata in registration.metadata.tools.items()
        }

    alone = named(listed(" delete ", "drive-one", "Drive!"))
    mine = alone["codex_apps__drive/delete"]
    assert mine == (
        ApprovalIdentity(server="codex_apps", source="drive-one", tool=" delete "),
        ApprovalPersistence(
            target="apps", path=("apps", "drive-one", "tools", " delete ", "approval_mode")
        ),
    )
    joined = named(
        listed(" delete ", "drive-one", "Drive!"), listed(" delete ", "drive-two", "Drive?")
    )
    assert joined["codex_apps__drive_99a0d4a4035d/delete"] == mine
    heir = named(listed(" delete ", "drive-two", "Drive?"))["codex_apps__drive/delete"]
    assert heir[0].key != mine[0].key


def test_what_is_too_long_for_the_rest_is_left_out_and_the_app_stays() -> None:
    id_, name = "i" * 3000, "n" * 2000
    description = {"connector_description": "d" * 5000}
    made = project(
        Served(
            listed("t" * 65, meta=description),
            listed("t", id_, name, meta=description),
        ),
        plugins={"gmail": [f"plugin {number:03}" for number in range(70)]},
    )
    long = made.pop(f"codex_apps__{'n' * 39}_{list(made)[-1][-12:]}").metadata.tools["t"]
    assert long.approval_form_meta == {"source": "connector"}
    assert (long.metric_labels, long.search_aliases) == ({}, ("t",))
    gmail = made["codex_apps__gmail"].metadata
    assert gmail.plugin_display_names == tuple(f"plugin {number:03}" for number in range(64))
    (tool,) = gmail.tools.values()
    assert tool.approval_form_meta == {
        "source": "connector",
        "connector_id": "gmail",
        "connector_name": "Gmail",
    }
    assert tool.search_aliases == ("Gmail",)


def templates(**members: Any) -> bytes:
    template = {
        "connector_id": "gmail",
        "server_name": "codex_apps",
        "tool_title": "Send",
        "template": "Let {connector_name} send it?",
        "template_params": [{"name": "to", "label": "To"}],
    }
    return json.dumps({"schema_version": 4, "templates": [template | members]}).encode()


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
