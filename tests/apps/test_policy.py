"""Apps: which tools may run, and who is asked how."""

import tomllib
from typing import Any

import pytest

from app_server.apps.settings import AppsSettings
from app_server.config.values import ConfigError
from tests.support.apps.policies import one, policy
from tests.support.harness import claim


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
