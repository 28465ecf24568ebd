"""Methods about what there is none of here answer as Codex does where it has none."""

import platform
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import claim, serve

NO_THREAD = "01900000-0000-7000-8000-000000000000"

OLDER = ["juniper", "maple", "spruce", "ember", "vale", "breeze", "arbor", "sol", "cove"]

VOICES = {
    "v1": OLDER,
    "v2": ["alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse", "marin", "cedar"],
    "v3": [
        *OLDER,
        *("aube", "bubbie", "haetsal", "hanul", "himari", "leher", "miko", "neer", "porto"),
        *("rindo", "rio", "rivage", "selva", "sonna", "tinta", "viola"),
    ],
    "defaultV1": "cove",
    "defaultV2": "marin",
}


@claim("methods:absent")
@pytest.mark.parametrize(
    ("method", "params", "answer"),
    [
        (
            "account/bedrock/checkGovCloudRequirements",
            {},
            {"isGovCloud": False, "shouldWarn": False},
        ),
        ("externalAgentConfig/detect", {}, {"items": [], "connectors": []}),
        (
            "externalAgentConfig/detect",
            {"includeHome": True, "cwds": ["/"], "migrationSource": "cursor"},
            {"items": [], "connectors": []},
        ),
        ("externalAgentConfig/import/readHistories", None, {"data": [], "connectors": []}),
        ("memory/reset", None, {}),
        (
            "plugin/reconcile",
            {"reason": "start"},
            {
                "changedPlugins": [],
                "failedRemotePluginIds": [],
                "failedMaterializationRemotePluginIds": [],
            },
        ),
        ("thread/realtime/listVoices", {}, {"voices": VOICES}),
        (
            "userVerification/status",
            {},
            {
                "credentialId": None,
                "unavailableReason": "providerUnavailable",
                "unavailableMessage": (
                    "User verification is not available in this build or account."
                ),
            },
        ),
        ("windowsSandbox/readiness", None, {"status": "notConfigured"}),
    ],
)
async def test_what_there_is_none_of_is_said_as_codex_says_it(
    tmp_path: Path, method: str, params: Any, answer: Any
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        assert await client.call(method, params) == answer
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


async def test_remote_control_is_off_and_the_id_is_that_of_the_home(tmp_path: Path) -> None:
    ids = []
    for home in ("one", "one", "two"):
        async with serve(tmp_path / home) as served, served.client() as client:
            answer = await client.call("remoteControl/status/read", None)
        ids.append(answer.pop("installationId"))
        assert answer == {
            "status": "disabled",
            "serverName": platform.node(),
            "environmentId": None,
        }
    assert [str(uuid.UUID(each)) for each in ids] == ids
    assert ids[0] == ids[1] != ids[2]


async def test_a_voice_session_that_there_is_not_is_stopped(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        assert await client.call("thread/realtime/stop", {"threadId": thread_id}) == {}
        error = await client.refusal("thread/realtime/stop", {"threadId": NO_THREAD})
        assert (error.code, error.data["code"]) == (-32600, "threadNotFound")
        error = await client.refusal("thread/realtime/start", {"threadId": thread_id})
        assert error.data["reason"] == "there are no voice sessions"
