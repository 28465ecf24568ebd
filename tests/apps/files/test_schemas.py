"""Tools with files: what their schemas ask for."""

from pathlib import Path
from typing import Any

import pytest

from app_server.apps.files.files import SENTENCE, SandboxState, with_paths
from app_server.mcp_wire.errors import PeerError
from protocol.model import JsonObject
from tests.support.apps.files.calls import FILES, SCHEMA, open_desk
from tests.support.apps.peer import listed, serve_tools


async def test_tools_with_files_ask_for_paths(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        tools = {t["name"]: t for t in (await desk.client.request("tools/list"))["tools"]}
        assert desk.client.hello["capabilities"]["experimental"] == {
            "codex/sandbox-state-meta": {},
            "codex/tool-input-meta": {},
        }
    assert tools["send"]["inputSchema"] == {
        **SCHEMA,
        "properties": {
            "file": {"type": "string", "description": f"A file. {SENTENCE}"},
            "more": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": 40,
                "description": SENTENCE,
            },
            "note": {"type": "string"},
        },
    }
    assert tools["plain"]["inputSchema"] == {"type": "object"}


async def test_without_file_support_tools_and_arguments_stay_as_they_are() -> None:
    tool = listed("send", meta=FILES, inputSchema=SCHEMA)
    async with serve_tools([tool]) as served, served.client() as client:
        [shown] = (await client.request("tools/list"))["tools"]
        assert shown["inputSchema"] == SCHEMA
        await client.call("send", {"file": "/etc/passwd"})
        [(_, sent)] = served.pool.asked()
        assert sent["arguments"] == {"file": "/etc/passwd"}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"type": ["array", "null"]}, {"type": "array", "items": {"type": "string"}}),
        (
            {"items": {}, "minItems": 1},
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
        ),
        (
            {"type": "array", "minItems": 2, "maxItems": 3, "uniqueItems": True},
            {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 2,
                "maxItems": 3,
                "uniqueItems": True,
            },
        ),
        (
            {"type": "array", "minItems": -1, "maxItems": "3", "uniqueItems": "yes"},
            {"type": "array", "items": {"type": "string"}},
        ),
        ({"type": "object", "minItems": 2}, {"type": "string"}),
        (True, {"type": "string"}),
    ],
)
def test_a_schema_is_masked_whatever_it_was(given: Any, shown: JsonObject) -> None:
    tool = {"inputSchema": {"properties": {"f": given}}}
    once = with_paths(tool, ["f", "absent"])
    assert once["inputSchema"]["properties"] == {"f": {**shown, "description": SENTENCE}}
    assert with_paths(once, ["f"]) == once


@pytest.mark.parametrize("schema", [None, {}, {"properties": []}])
def test_a_tool_without_properties_is_not_masked(schema: Any) -> None:
    assert with_paths({"inputSchema": schema}, ["f"]) == {"inputSchema": schema}


@pytest.mark.parametrize(
    "state",
    [
        7,
        {},
        {"permissionProfile": {}, "sandboxCwd": "/tmp"},
        {"permissionProfile": {}, "sandboxCwd": "file://elsewhere/tmp"},
        {"permissionProfile": {}, "sandboxCwd": "file:relative"},
        {"permissionProfile": {}, "sandboxCwd": 1},
        {"permissionProfile": [], "sandboxCwd": "file:///tmp"},
        {"permissionProfile": {}, "sandboxCwd": "file:///tmp", "environmentInstanceId": 1},
    ],
)
def test_a_sandbox_state_that_makes_no_sense_is_refused(state: Any) -> None:
    with pytest.raises(PeerError) as refused:
        SandboxState.parse(state)
    assert refused.value.code == -32602


def test_a_sandbox_state_is_read_with_what_it_leaves_out() -> None:
    given = {"permissionProfile": {"a": 1}, "sandboxCwd": "file:///a%20b", "useMxc": False}
    assert SandboxState.parse(given) == SandboxState(
        environmentId="local",
        environmentInstanceId=None,
        permissionProfile={"a": 1},
        codexLinuxSandboxExe=None,
        sandboxCwd="file:///a%20b",
        useLegacyLandlock=False,
    )
    assert SandboxState.parse(given).sandbox_cwd == "/a b"
