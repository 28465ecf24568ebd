"""What terminal clients ask for before their first thread."""

import json
from pathlib import Path

import pytest

from tests.support.harness import (
    claim,
    serve,
)


@claim("terminal:bootstrap")
async def test_what_is_asked_before_the_first_thread_is_answered_truly(tmp_path: Path) -> None:
    config = 'sandbox_mode = "read-only"\n[model_providers.scripted.http_headers]\nX = "a-token"\n'
    async with serve(tmp_path, config=config) as served, served.client() as client:
        assert await client.call("account/read", {}) == {
            "account": None,
            "userId": None,
            "requiresOpenaiAuth": False,
            "workspaceRouting": None,
        }
        shown = await client.call("config/read", {"includeLayers": True, "cwd": "."})
        assert shown["config"]["model"] == "scripted"
        assert shown["config"]["sandbox_mode"] == "read-only"
        (layer,) = shown["layers"]
        assert (layer["name"]["type"], layer["config"]["model"]) == ("user", "scripted")
        assert "a-token" not in json.dumps(shown)
        assert await client.call("configRequirements/read") == {
            "requirements": None,
            "supportsIndependentSpeedModes": None,
        }
        models = await client.call("model/list", {})
        assert [model["id"] for model in models["data"] if model["isDefault"]] == ["scripted"]
        refused = await client.refusal("model/list", {"modelProvider": "other"})
        assert (refused.code, refused.data) == (
            -32600,
            {
                "code": "modelProviderNotConfigured",
                "type": "modelProviderNotConfigured",
                "modelProvider": "other",
            },
        )
        skills = await client.call("skills/list", {"cwds": ["/a", "/b"], "forceReload": True})
        assert skills == {
            "data": [{"cwd": cwd, "skills": [], "errors": []} for cwd in ("/a", "/b")]
        }
        assert await client.call("hooks/list", {"cwds": ["/a", "/b"]}) == {
            "data": [
                {"cwd": cwd, "hooks": [], "warnings": [], "errors": []} for cwd in ("/a", "/b")
            ]
        }
        assert await client.call("collaborationMode/list", {}) == {
            "data": [
                {"name": "Plan", "mode": "plan", "model": None, "reasoning_effort": "medium"},
                {"name": "Default", "mode": "default", "model": None, "reasoning_effort": None},
            ]
        }


@pytest.mark.parametrize(
    ("setting", "policy"),
    [("", "on-request"), ('approval_policy = "on-failure"', "on-request")],
)
async def test_the_approval_policy_is_shown_as_it_holds(
    tmp_path: Path, setting: str, policy: str
) -> None:
    async with serve(tmp_path, config=setting) as served, served.client() as client:
        shown = await client.call("config/read", {})
        assert shown["config"]["approval_policy"] == policy


async def test_the_place_of_a_setting_that_does_not_fit_the_wire_is_in_the_error(
    tmp_path: Path,
) -> None:
    config = "[sandbox_workspace_write]\nwritable_roots = 7"
    async with serve(tmp_path, config=config) as served, served.client() as client:
        error = await client.refusal("config/read", {})
        assert (error.code, error.data["code"]) == (-32600, "configInvalid")
        place = f"{tmp_path / 'config.toml'}:10:18"
        assert error.message == (
            f"failed to load configuration: {place}: Input should be a valid list"
        )
