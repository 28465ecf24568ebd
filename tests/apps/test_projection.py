"""Apps: what is registered for them."""

from typing import Any

from pydantic import SecretStr

from app_server.extensions.contract.registration import (
    ApprovalIdentity,
    ApprovalPersistence,
    ApprovalSource,
    Registration,
    RuntimeMetadata,
    Telemetry,
    ToolMetadata,
)
from app_server.mcp.catalog.catalog import resolve_servers
from tests.support.apps.inventories import listed
from tests.support.apps.policies import ORIGIN, SEND, Served, project
from tests.support.harness import claim


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
            "default_tools_approval_mode": "auto",
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
