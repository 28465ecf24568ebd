"""app/read and app/installed over the wire."""

import logging
from pathlib import Path
from typing import Any

import pytest

from app_server.apps.inventory.directory import parse_details
from app_server.apps.inventory.inventory import build_inventory
from tests.support.apps.fake_apps import (
    NO_BACKEND,
    NO_TOOLS,
    FakeApps,
    FakeBackend,
    Snapshot,
    connectors,
)
from tests.support.apps.inventories import listed
from tests.support.apps.list import open_desk
from tests.support.harness import REQUIREMENTS, claim


def found(app_id: str, name: str, **members: Any) -> dict[str, Any]:
    """Write an app as `app/read` answers it."""
    return {
        "id": app_id,
        "name": name,
        "description": None,
        "iconUrl": None,
        "iconUrlDark": None,
        "distributionChannel": None,
        "installUrl": f"https://chatgpt.com/apps/{name.lower()}/{app_id}",
        "pluginDisplayNames": [],
        "toolSummaries": None,
        **members,
    }


SUMMARY = {
    "name": "look",
    "title": None,
    "description": "Looks.",
    "isEnabled": True,
    "disabledReason": None,
    "isReadOnly": True,
}
RECORDS = parse_details(
    [
        {
            "id": "a",
            "name": "Ay",
            "tools": [{"name": "look", "description": "Looks.", "is_read_only": True}],
        },
        {"id": "b", "name": "Bee"},
    ],
    True,
)


@claim("apps:t-57", "apps:measured")
async def test_apps_are_read_in_the_order_of_their_first_ids(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "app_server.apps.measured")
    backend = FakeBackend(records=RECORDS)
    apps = FakeApps(backend=backend, plugins={"b": ["Q", "P", "Q"]})
    async with open_desk(tmp_path, apps) as desk:
        answer = await desk.client.call("app/read", {"appIds": ["y", "b", "x", "a", "b", "y"]})
        assert answer == {
            "apps": [found("b", "Bee", pluginDisplayNames=["P", "Q"]), found("a", "Ay")],
            "missingAppIds": ["y", "x"],
        }
        answer = await desk.client.call("app/read", {"appIds": ["a", "b"], "includeTools": True})
        assert answer == {
            "apps": [
                found("a", "Ay", toolSummaries=[SUMMARY]),
                found("b", "Bee", pluginDisplayNames=["P", "Q"]),
            ],
            "missingAppIds": [],
        }
        assert backend.asked[1::2] == [
            ("details", ["y", "b", "x", "a"], False),
            ("details", ["a", "b"], True),
        ]
        assert apps.asked == []
        [first, _] = [one.getMessage() for one in caplog.records if "codex." in one.getMessage()]
        assert first.startswith("codex.apps.read.duration_ms=")
        assert first.endswith(" outcome=done apps=4 found=2")


@claim("apps:t-57")
async def test_at_most_100_ids_are_read(tmp_path: Path) -> None:
    async with open_desk(tmp_path, FakeApps()) as desk:
        ids = [str(number) for number in range(100)]
        answer = await desk.client.call("app/read", {"appIds": ids})
        assert answer == {"apps": [], "missingAppIds": ids}
        refusal = await desk.client.refusal("app/read", {"appIds": [*ids, "0"]})
        assert (refusal.code, refusal.message) == (
            -32602,
            "app/read accepts at most 100 appIds",
        )
        assert len(desk.apps.backend.asked) == 2


@claim("apps:t-57")
async def test_a_backend_that_fails_fails_the_reading(tmp_path: Path) -> None:
    async with open_desk(tmp_path, FakeApps(backend=FakeBackend(records=NO_BACKEND))) as desk:
        refusal = await desk.client.refusal("app/read", {"appIds": ["a"]})
        assert (refusal.code, refusal.message, refusal.data) == (
            -32603,
            "failed to read app metadata: HTTP status 500",
            {"code": "appsUnavailable"},
        )


def row(name: str, *, enabled: bool = True, callable_: bool = True) -> dict[str, Any]:
    """Write an app as `app/installed` answers it."""
    return {"id": name.lower(), "runtimeName": name, "enabled": enabled, "callable": callable_}


@claim("apps:t-56")
async def test_installed_apps_are_those_that_are_known_and_nobody_is_asked(tmp_path: Path) -> None:
    apps = FakeApps(kept=connectors("Drive", "Calendar"), fresh=NO_TOOLS)
    async with open_desk(tmp_path, apps) as desk:
        answer = await desk.client.call("app/installed", {})
        assert answer == {"apps": [row("Calendar"), row("Drive")]}
        assert (apps.asked, apps.backend.asked[1:]) == (["known"], [])


@claim("apps:t-56")
async def test_a_forced_refresh_fetches_once_and_a_failure_leaves_what_was_known(
    tmp_path: Path,
) -> None:
    kept, fresh = connectors("Drive"), Snapshot(connectors("Gmail"))
    apps = FakeApps(kept=kept, fresh=fresh)
    async with open_desk(tmp_path, apps) as desk:
        answer = await desk.client.call("app/installed", {"forceRefresh": True})
        assert (answer, apps.asked) == ({"apps": [row("Gmail")]}, ["refresh"])
        apps.fresh = NO_TOOLS
        refusal = await desk.client.refusal("app/installed", {"forceRefresh": True})
        assert (refusal.code, refusal.message, refusal.data) == (
            -32603,
            "failed to refresh apps: the endpoint is away",
            {"code": "appsUnavailable"},
        )
        assert await desk.client.call("app/installed", {}) == {"apps": [row("Drive")]}
        apps.fresh = None
        assert await desk.client.call("app/installed", {"forceRefresh": True}) == {"apps": []}


@claim("apps:t-56")
async def test_policy_decides_what_of_the_installed_apps_can_be_used(tmp_path: Path) -> None:
    inventory = build_inventory(
        [
            listed("look", name.lower(), name, annotations={"destructiveHint": name == "Drive"})
            for name in ("Calendar", "Drive", "Gmail", "Notes")
        ]
    )
    config = (
        "[apps._default]\nopen_world_enabled = true\ndestructive_enabled = false\n"
        "[apps.gmail]\nenabled = false\n"
    )
    async with open_desk(tmp_path, FakeApps(kept=inventory.installed), config) as desk:
        (tmp_path / REQUIREMENTS).write_text("[apps.notes]\nenabled = false\n")
        answer = await desk.client.call("app/installed", {})
        rows = [
            row("Calendar"),
            row("Drive", callable_=False),
            row("Gmail", enabled=False, callable_=False),
            row("Notes", enabled=False, callable_=False),
        ]
        assert answer == {"apps": rows}
        thread_id = await desk.client.start_thread(config={"apps.gmail.enabled": True})
        answer = await desk.client.call("app/installed", {"threadId": thread_id})
        assert answer == {"apps": [*rows[:2], row("Gmail"), rows[3]]}
