"""What clients list at their start: permission profiles, features, hooks, terminals."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import REQUIREMENTS, Served, claim, serve

NO_THREAD = "0190d7d8-0000-7000-8000-000000000000"
OURS = ["skill_mcp_dependency_install", "tool_suggest"]
"""Features that are on and that no test switches."""


def profile(name: str, *, allowed: bool = True) -> dict[str, Any]:
    return {"id": name, "description": None, "allowed": allowed}


PROFILES = [profile(":read-only"), profile(":workspace"), profile(":danger-full-access")]


@claim("permissions:list")
async def test_the_built_in_profiles_are_listed_in_pages(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        pages = [
            ({}, PROFILES, None),
            ({"cwd": "."}, PROFILES, None),
            ({"limit": 2}, PROFILES[:2], "2"),
            ({"limit": 2, "cursor": "2"}, PROFILES[2:], None),
            ({"limit": 0}, PROFILES[:1], "1"),
            ({"cursor": "3"}, [], None),
        ]
        for params, data, next_cursor in pages:
            page = await client.call("permissionProfile/list", params)
            assert page == {"data": data, "nextCursor": next_cursor}
        for cursor, problem in (
            ("x", "invalid cursor: x"),
            ("-1", "invalid cursor: -1"),
            ("", "invalid cursor: "),
            ("4", "cursor 4 exceeds total permission profiles 3"),
            ("0123", "cursor 123 exceeds total permission profiles 3"),
            ("9" * 30, f"invalid cursor: {'9' * 30}"),
        ):
            error = await client.refusal("permissionProfile/list", {"cursor": cursor})
            assert (error.code, error.message) == (-32600, problem)
            assert error.data == {"code": "invalidCursor", "cursor": cursor}


@claim("permissions:demanded")
async def test_profiles_that_an_administrator_forbids_are_listed_as_such(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        demands = 'allowed_sandbox_modes = ["read-only", "workspace-write"]\n'
        (tmp_path / REQUIREMENTS).write_text(demands)
        page = await client.call("permissionProfile/list", {})
        assert page["data"] == [*PROFILES[:2], profile(":danger-full-access", allowed=False)]


OWN = """
[permissions.mine]
extends = ":workspace"
[permissions.mine.filesystem]
"/opt" = "write"
"/srv/secret" = "deny"
[permissions.look.filesystem]
":root" = "read"
"""


@claim("permissions:own")
async def test_profiles_of_the_configuration_are_listed_and_chosen(tmp_path: Path) -> None:
    async with serve(tmp_path, config=OWN) as served, served.client() as client:
        demands = 'allowed_sandbox_modes = ["read-only"]\n'
        listed = await client.call("permissionProfile/list", {})
        assert listed["data"] == [*PROFILES, profile("mine"), profile("look")]
        policy = {
            "type": "workspaceWrite",
            "writableRoots": ["/opt"],
            "networkAccess": False,
            "excludeTmpdirEnvVar": False,
            "excludeSlashTmp": False,
        }
        mine, look = {"id": "mine", "extends": ":workspace"}, {"id": "look", "extends": None}
        chosen = await client.call("thread/start", {"permissions": "mine"})
        assert (chosen["sandbox"], chosen["activePermissionProfile"]) == (policy, mine)
        thread_id = chosen["thread"]["id"]
        await client.turn(thread_id, "go", permissions="look")
        params = {"threadId": thread_id}
        resumed = await client.call("thread/resume", params)
        assert resumed["activePermissionProfile"] == look
        await client.call("thread/settings/update", {**params, "permissions": "mine"})
        fork = await client.call("thread/fork", params)
        assert (fork["sandbox"], fork["activePermissionProfile"]) == (policy, mine)
        await client.call(
            "thread/settings/update", {**params, "sandboxPolicy": {"type": "readOnly"}}
        )
        resumed = await client.call("thread/resume", params)
        assert resumed["activePermissionProfile"] == {"id": ":read-only", "extends": None}
        (tmp_path / REQUIREMENTS).write_text(demands)
        listed = await client.call("permissionProfile/list", {})
        assert [one["id"] for one in listed["data"] if one["allowed"]] == [":read-only", "look"]
        replaced = await client.call("thread/start", {"permissions": "mine"})
        assert (replaced["sandbox"]["type"], replaced["activePermissionProfile"]) == (
            "readOnly",
            mine,
        )


@claim("permissions:own")
async def test_a_profile_can_be_the_default_and_has_to_make_sense(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, config=f'default_permissions = "look"\n{OWN}') as served,
        served.client() as client,
    ):
        started = await client.call("thread/start", {})
        assert started["activePermissionProfile"] == {"id": "look", "extends": None}
        broken = {"permissions.look.filesystem": {"relative": "read"}}
        error = await client.refusal("thread/start", {"config": broken})
        assert error.message == (
            "failed to load configuration: filesystem path `relative` must be absolute, use "
            "`~/...`, or start with `:`\nin `permissions.look.filesystem.relative`\n"
        )


async def sandbox_of_turns(served: Served, method: str, **params: Any) -> str:
    """Start a thread, or a turn in one, with a profile, and return the sandbox that holds then."""
    async with served.client() as client:
        if method == "thread/start":
            return str((await client.call(method, params))["sandbox"]["type"])
        thread_id = await client.start_thread()
        await client.call(
            method, {"threadId": thread_id, "input": [{"type": "text", "text": "x"}], **params}
        )
        await client.wait_for("turn/completed")
        resumed = await client.call("thread/resume", {"threadId": thread_id})
        return str(resumed["sandbox"]["type"])


@pytest.mark.parametrize("method", ["thread/start", "turn/start"])
@claim("permissions:chosen")
async def test_a_profile_can_be_chosen(tmp_path: Path, method: str) -> None:
    async with serve(tmp_path) as served:
        for name, sandbox in (
            (":read-only", "readOnly"),
            (":workspace", "workspaceWrite"),
            (":danger-full-access", "dangerFullAccess"),
        ):
            assert await sandbox_of_turns(served, method, permissions=name) == sandbox
        async with served.client() as client:
            thread_id = await client.start_thread()
            common = {"threadId": thread_id, "input": [{"type": "text", "text": "x"}]}
            base: dict[str, Any] = {} if method == "thread/start" else common
            error = await client.refusal(method, {**base, "permissions": "mine"})
            assert error.message == (
                "failed to load configuration: default_permissions refers to undefined profile "
                "`mine`"
            )
            member = "sandbox" if method == "thread/start" else "sandboxPolicy"
            other = "read-only" if method == "thread/start" else {"type": "readOnly"}
            both = {**base, "permissions": ":read-only", member: other}
            error = await client.refusal(method, both)
            assert error.message == f"`permissions` cannot be combined with `{member}`"


def feature(name: str, stage: str, *, enabled: bool, default: bool) -> dict[str, Any]:
    return {
        "name": name,
        "stage": stage,
        "displayName": None,
        "description": None,
        "announcement": None,
        "enabled": enabled,
        "defaultEnabled": default,
    }


@claim("features:list")
async def test_features_are_listed_as_they_are_switched(tmp_path: Path) -> None:
    # A feature may be a table of its settings.
    config = "[features]\nconnectors = false\nnetwork_proxy.mode = 'limited'\n"
    async with serve(tmp_path, config=config) as served, served.client() as client:
        mine = {"features.mcp_tool_list_changed": False}
        thread_id = await client.start_thread(config=mine)
        switched = [
            feature(
                "apply_patch_streaming_events", "underDevelopment", enabled=False, default=False
            ),
            feature("apps", "stable", enabled=False, default=True),
            feature("auth_elicitation", "stable", enabled=True, default=True),
            feature(
                "default_mode_request_user_input",
                "underDevelopment",
                enabled=False,
                default=False,
            ),
            feature("mcp_tool_list_changed", "underDevelopment", enabled=True, default=True),
            {
                **feature("network_proxy", "beta", enabled=True, default=False),
                "displayName": "Network proxy",
                "description": (
                    "Confined commands that have a network reach only the hosts that your "
                    "settings allow."
                ),
                "announcement": "",
            },
            feature("plugins", "stable", enabled=True, default=True),
            feature("request_permissions_tool", "underDevelopment", enabled=False, default=False),
            feature("skill_mcp_dependency_install", "stable", enabled=True, default=True),
            feature("tool_suggest", "stable", enabled=True, default=True),
        ]
        listed = await client.call("experimentalFeature/list", {})
        assert listed == {"data": switched, "nextCursor": None}
        page = {"limit": 1, "cursor": "4"}
        listed = await client.call("experimentalFeature/list", page)
        assert listed == {"data": switched[4:5], "nextCursor": "5"}
        listed = await client.call("experimentalFeature/list", {**page, "threadId": thread_id})
        assert listed["data"][0]["enabled"] is False
        for params, problem in (
            ({"threadId": NO_THREAD}, f"thread not found: {NO_THREAD}"),
            ({"cursor": "99"}, f"cursor 99 exceeds total feature flags {len(switched)}"),
        ):
            error = await client.refusal("experimentalFeature/list", params)
            assert (error.code, error.message) == (-32600, problem)


@claim("features:switch")
async def test_features_are_switched_where_no_setting_says_otherwise(tmp_path: Path) -> None:
    config = "[features]\nplugins = true\n"
    async with serve(tmp_path, config=config) as served, served.client() as client:

        async def enabled() -> list[str]:
            listed = await client.call("experimentalFeature/list", {})
            return [each["name"] for each in listed["data"] if each["enabled"]]

        assert await enabled() == [
            "apps", "auth_elicitation", "mcp_tool_list_changed", "plugins", *OURS
        ]  # fmt: skip
        wanted = {"plugins": False, "connectors": False, "no_such": True}
        wanted["request_permissions_tool"] = True
        answer = await client.call("experimentalFeature/enablement/set", {"enablement": wanted})
        assert answer == {"enablement": {"apps": False, "request_permissions_tool": True}}
        on = [
            "auth_elicitation",
            "mcp_tool_list_changed",
            "plugins",
            "request_permissions_tool",
            *OURS,
        ]
        assert await enabled() == on
        # A thread that starts now has the function that goes with it.
        await client.turn(await client.start_thread(), "hi")
        names = [tool.get("name") for tool in served.model.requests[-1]["tools"]]
        assert "request_permissions" in names
        assert "request_permissions" not in (tmp_path / "config.toml").read_text()
        back = {"enablement": {"request_permissions_tool": False}}
        assert await client.call("experimentalFeature/enablement/set", back) == back
        assert await enabled() == ["auth_elicitation", "mcp_tool_list_changed", "plugins", *OURS]


@claim("hooks:list")
async def test_hooks_are_listed_with_their_hash_and_trust(tmp_path: Path) -> None:
    config = (
        '[[hooks.PreToolUse]]\nmatcher = "Bash"\n[[hooks.PreToolUse.hooks]]\ntype = "command"\n'
        'command = "true"\ntimeout = 7\n[[hooks.SubagentStop]]\n'
    )
    key = f"{tmp_path}/config.toml:pre_tool_use:0:0"
    # As Codex 0.169.0 computes it.
    current = "sha256:be5e8bd5ce1d7720c039c9eee3b95f1b959cf99083e6f426e5b63b46a4ab99d2"
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread(cwd="/")
        hook = {
            "handlerType": "command",
            "key": key,
            "eventName": "preToolUse",
            "command": "true",
            "async": False,
            "matcher": "Bash",
            "timeoutSec": 7,
            "statusMessage": None,
            "additionalContextLimit": None,
            "sourcePath": f"{tmp_path}/config.toml",
            "source": "user",
            "pluginId": None,
            "environmentId": None,
            "displayOrder": 0,
            "enabled": True,
            "isManaged": False,
            "currentHash": current,
            "trustStatus": "untrusted",
        }
        entry = {
            "cwd": str(tmp_path),
            "hooks": [hook],
            "warnings": [
                f"{tmp_path}/config.toml: hooks of `SubagentStop` are not run by this server"
            ],
            "errors": [],
        }
        assert await client.call("hooks/list", {}) == {"data": [entry]}
        of_thread = await client.call("hooks/list", {"threadId": thread_id})
        assert of_thread == {"data": [{**entry, "cwd": "/"}]}
        for trusted, status in ((current, "trusted"), ("sha256:old", "modified")):
            edit = {
                "keyPath": f'hooks.state."{key}".trusted_hash',
                "value": trusted,
                "mergeStrategy": "upsert",
            }
            await client.call("config/batchWrite", {"edits": [edit]})
            (shown,) = (await client.call("hooks/list", {}))["data"][0]["hooks"]
            assert shown["trustStatus"] == status
        for params, problem in (
            ({"threadId": thread_id, "cwds": ["/"]}, "specify either threadId or cwds"),
            ({"threadId": NO_THREAD}, f"thread not found: {NO_THREAD}"),
        ):
            error = await client.refusal("hooks/list", params)
            assert (error.code, error.message) == (-32600, problem)


@claim("terminals:list")
async def test_a_loaded_thread_has_no_background_terminals(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        pages: list[dict[str, Any]] = [{}, {"cursor": "0"}, {"cursor": "5", "limit": 0}]
        for page in pages:
            listed = await client.call(
                "thread/backgroundTerminals/list", {"threadId": thread_id, **page}
            )
            assert listed == {"data": [], "nextCursor": None}
        for params, problem in (
            ({"threadId": NO_THREAD}, f"thread not found: {NO_THREAD}"),
            ({"threadId": thread_id, "cursor": "x"}, "invalid cursor: x"),
        ):
            error = await client.refusal("thread/backgroundTerminals/list", params)
            assert (error.code, error.message) == (-32600, problem)
