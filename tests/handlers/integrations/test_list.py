"""app/list and app/list/updated over the wire."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.apps.inventory.cache import CacheIdentity
from app_server.apps.upstream.backend import AppsBackend, KnownDirectory
from app_server.handlers.integrations import apps as app_listing
from app_server.handlers.integrations import apps as apps_list
from app_server.mcp.servers.server_set import ServerSet
from protocol.integrations.apps import AppInfo
from tests.support.apps.chatgpt_peer import ChatgptPeer
from tests.support.apps.fake_apps import (
    ACCOUNT,
    NO_BACKEND,
    NO_TOOLS,
    FakeApps,
    FakeBackend,
    Snapshot,
    connectors,
    directory,
)
from tests.support.apps.list import UPDATED, open_desk, shown
from tests.support.harness import WAIT_S, claim, serve
from tests.support.model import Gate


@claim("apps:t-54")
async def test_what_is_known_is_sent_at_once_and_then_each_source_as_it_comes(
    tmp_path: Path,
) -> None:
    tools, pages = Gate(), Gate()
    backend = FakeBackend(
        known=KnownDirectory(directory("Calendar"), False),
        listed=directory("Calendar", "Drive", "Gmail"),
        gate=pages,
    )
    apps = FakeApps(
        Snapshot(connectors("Drive")), Snapshot(connectors("Gmail")), backend=backend, gate=tools
    )
    async with open_desk(tmp_path, apps) as desk:
        request = await desk.client.request("app/list", {})

        async def next_list() -> list[str]:
            message = await desk.client.wait_for(UPDATED)
            return shown(message["params"]["data"])

        assert await next_list() == ["+drive", "calendar"]
        await tools.wait_until_reached()
        tools.opened.set()
        assert await next_list() == ["+gmail", "calendar"]
        await pages.wait_until_reached()
        pages.opened.set()
        assert await next_list() == ["+gmail", "calendar", "drive"]
        answer = await desk.client.answer(request)
        assert shown(answer["result"]["data"]) == ["+gmail", "calendar", "drive"]
        assert (desk.apps.asked, backend.asked[1:]) == (["snapshot"], [("directory", False)])


@claim("apps:t-54")
async def test_a_list_without_an_app_that_can_be_used_waits_for_both_sources(
    tmp_path: Path,
) -> None:
    backend = FakeBackend(KnownDirectory(directory("Drive"), True), directory("Drive"))
    apps = FakeApps(fresh=Snapshot(()), backend=backend)
    async with open_desk(tmp_path, apps) as desk:
        assert await desk.listed() == ([["drive"]], ["drive"])
        assert desk.apps.asked == ["first"]


@claim("apps:t-54")
async def test_no_list_is_sent_twice_in_one_request(tmp_path: Path) -> None:
    backend = FakeBackend(KnownDirectory(directory("Drive"), True), directory("Drive"))
    live = Snapshot(connectors("Drive"))
    async with open_desk(tmp_path, FakeApps(live, live, backend=backend)) as desk:
        assert await desk.listed() == ([["+drive"]], ["+drive"])
        assert await desk.listed() == ([["+drive"]], ["+drive"])


@claim("apps:t-54")
@pytest.mark.parametrize(
    ("order", "expected"),
    [
        # Gmail is not in the directory that stands in.
        (("tools", "pages"), [["+calendar"], ["+gmail", "drive"]]),
        (("pages", "tools"), [["+gmail", "drive"]]),
    ],
)
async def test_a_forced_list_leaves_out_what_could_be_used_before_until_it_is_fetched(
    tmp_path: Path, order: tuple[str, str], expected: list[list[str]]
) -> None:
    gates = {"tools": Gate(), "pages": Gate()}
    backend = FakeBackend(
        KnownDirectory(directory("Calendar"), True),
        directory("Drive", "Gmail"),
        gate=gates["pages"],
    )
    apps = FakeApps(
        Snapshot(connectors("Calendar")),
        Snapshot(connectors("Calendar", "Gmail")),
        backend=backend,
        gate=gates["tools"],
    )
    async with open_desk(tmp_path, apps) as desk:
        request = await desk.client.request("app/list", {"forceRefetch": True})
        for gate in gates.values():
            await gate.wait_until_reached()
        told: list[list[str]] = []
        gates[order[0]].opened.set()
        while len(told) < len(expected) - 1:
            told.append(shown((await desk.client.receive())["params"]["data"]))
        gates[order[1]].opened.set()
        while (message := await desk.client.receive()).get("id") != request:
            told.append(shown(message["params"]["data"]))
        assert (told, shown(message["result"]["data"])) == (expected, expected[-1])
        assert (apps.asked, backend.asked[1:]) == (["refresh"], [("directory", True)])


@claim("apps:t-54")
async def test_a_list_of_what_the_disk_kept_is_followed_by_the_live_one(tmp_path: Path) -> None:
    gate = Gate()
    backend = FakeBackend(listed=directory("Drive", "Gmail"))
    apps = FakeApps(
        Snapshot(connectors("Drive"), is_live=False),
        Snapshot(connectors("Gmail")),
        backend=backend,
        gate=gate,
    )
    async with open_desk(tmp_path, apps) as desk:
        told, answer = await desk.listed()
        assert (told[-1], answer) == (["+drive", "gmail"], ["+drive", "gmail"])
        await gate.wait_until_reached()
        gate.opened.set()
        message = await desk.client.wait_for(UPDATED)
        assert shown(message["params"]["data"]) == ["+gmail", "drive"]
        assert (apps.asked, backend.asked[1:]) == (["snapshot"], [("directory", False)])
        apps.fresh = NO_TOOLS
        apps.published = Snapshot(connectors("Drive"), is_live=False)
        apps.gate = again = Gate()
        await desk.listed()
        await again.wait_until_reached()
        again.opened.set()
        assert await desk.lists_before(1) == []


async def test_only_so_many_lists_are_followed_up_at_a_time(tmp_path: Path) -> None:
    gate = Gate()
    kept = Snapshot(connectors("Drive"), is_live=False)
    backend = FakeBackend(listed=directory("Drive", "Gmail"))
    apps = FakeApps(kept, Snapshot(connectors("Gmail")), backend=backend, gate=gate)
    async with open_desk(tmp_path, apps) as desk:
        desk.served.services.part(apps_list.FollowUps).max_count = 1
        await desk.listed()
        await gate.wait_until_reached()
        await desk.listed()
        gate.opened.set()
        await desk.client.wait_for(UPDATED)
        assert apps.asked == ["snapshot"]


@claim("apps:t-54")
@pytest.mark.parametrize(
    ("apps", "message"),
    [
        (FakeApps(fresh=NO_TOOLS), "failed to load accessible apps: the endpoint is away"),
        (
            FakeApps(backend=FakeBackend(listed=NO_BACKEND)),
            "failed to list apps: HTTP status 500",
        ),
    ],
)
async def test_a_source_that_fails_fails_the_list(
    tmp_path: Path, apps: FakeApps, message: str
) -> None:
    async with open_desk(tmp_path, apps) as desk:
        refusal = await desk.client.refusal("app/list", {})
        assert (refusal.code, refusal.message, refusal.data) == (
            -32603,
            message,
            {"code": "appsUnavailable"},
        )


async def test_a_list_that_does_not_come_in_time_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apps_list, "LOAD_S", 0)
    async with open_desk(tmp_path, FakeApps(gate=Gate())) as desk:
        refusal = await desk.client.refusal("app/list", {})
        assert (refusal.code, refusal.message) == (
            -32603,
            "timed out waiting for app lists after 0 seconds",
        )


@claim("apps:other-account")
async def test_a_list_that_was_begun_for_another_account_is_begun_anew(tmp_path: Path) -> None:
    gate = Gate()
    backend = FakeBackend(listed=directory("Drive"), gate=gate)
    live = Snapshot(connectors("Drive"))
    async with open_desk(tmp_path, FakeApps(live, live, backend=backend)) as desk:
        request = await desk.client.request("app/list", {})
        assert shown((await desk.client.wait_for(UPDATED))["params"]["data"]) == ["+drive"]
        await gate.wait_until_reached()
        desk.apps.signed_in = replace(ACCOUNT, identity=CacheIdentity("acct-2", None, False))
        desk.apps.published = desk.apps.fresh = Snapshot(connectors("Gmail"))
        backend.listed = directory("Drive", "Gmail")
        gate.opened.set()
        told = [await desk.client.receive()]
        while told[-1].get("id") != request:
            told.append(await desk.client.receive())
        assert shown(told[-1]["result"]["data"]) == ["+gmail", "drive"]
        lists = [shown(message["params"]["data"]) for message in told[:-1]]
        assert lists == [["+gmail"], ["+gmail", "drive"]]
        asked = [one[1].account.identity for one in backend.asked if one[0] == "setting"]
        assert [identity.account_id for identity in asked] == ["acct-1", "acct-2"]


@claim("apps:other-account")
async def test_an_account_that_keeps_changing_is_not_listed_for_ever(tmp_path: Path) -> None:
    apps = FakeApps(
        accounts=[replace(ACCOUNT, identity=CacheIdentity(str(n), None, False)) for n in range(9)]
    )
    async with open_desk(tmp_path, apps) as desk:
        refusal = await desk.client.refusal("app/list", {})
        assert (refusal.code, refusal.message) == (
            -32603,
            "the account changes while its apps are listed",
        )


@claim("apps:t-54")
async def test_nobody_waits_for_a_list_that_somebody_else_asked_for(tmp_path: Path) -> None:
    gate = Gate()
    async with open_desk(tmp_path, FakeApps(gate=gate)) as desk:
        request = await desk.client.request("app/list", {})
        await gate.wait_until_reached()
        assert await desk.client.call("app/installed", {}) == {"apps": []}
        gate.opened.set()
        assert (await desk.client.answer(request))["result"]["data"] == []


@claim("apps:t-55")
@pytest.mark.parametrize(
    ("config", "change"),
    [
        ("[features]\napps = false\n", {}),
        ("[features]\nconnectors = false\n", {}),
        ("", {"signed_in": None}),
        ("", {"backend": FakeBackend(allowed=False)}),
    ],
)
async def test_where_apps_are_not_allowed_there_are_none_and_nobody_is_asked(
    tmp_path: Path, config: str, change: dict[str, Any]
) -> None:
    apps = FakeApps(Snapshot(connectors("Drive")), kept=connectors("Drive"), **change)
    async with open_desk(tmp_path, apps, config) as desk:
        for refetch in (False, True):
            answer = await desk.client.call("app/list", {"forceRefetch": refetch, "cursor": "7"})
            assert answer == {"data": [], "nextCursor": None}
        read = await desk.client.call("app/read", {"appIds": ["b", "a", "b"]})
        assert read == {"apps": [], "missingAppIds": ["b", "a"]}
        installed = await desk.client.call("app/installed", {"forceRefresh": True})
        row = {"id": "drive", "runtimeName": "Drive", "enabled": False, "callable": False}
        assert installed == {"apps": [row]}
        assert apps.asked == ["known"]
        assert [asked for asked in apps.backend.asked if asked[0] != "setting"] == []


@claim("apps:t-55")
async def test_without_a_service_of_apps_there_are_none(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        assert await client.call("app/list", {}) == {"data": [], "nextCursor": None}
        assert await client.call("app/read", {"appIds": ["a"]}) == {
            "apps": [],
            "missingAppIds": ["a"],
        }
        assert await client.call("app/installed", {}) == {"apps": []}


@claim("apps:t-55")
async def test_a_threads_own_flag_and_settings_count_for_its_list(tmp_path: Path) -> None:
    live = Snapshot(connectors("Drive"))
    backend = FakeBackend(listed=directory("Drive"))
    async with open_desk(tmp_path, FakeApps(live, live, backend=backend)) as desk:
        off = await desk.client.start_thread(config={"features.apps": False})
        other = await desk.client.start_thread(config={"apps.drive.enabled": False})
        assert (await desk.listed(threadId=off))[1] == []
        assert (await desk.listed(threadId=other))[1] == ["+drive-"]
        assert (await desk.listed())[1] == ["+drive"]
        write(tmp_path, "[features]\napps = false\n")
        assert (await desk.listed(threadId=other))[1] == ["+drive-"]
        assert (await desk.listed())[1] == []
        nobody = "0199a213-81c0-7800-8aa1-bbab2a035a53"
        for method in ("app/list", "app/read", "app/installed"):
            refusal = await desk.client.refusal(method, {"appIds": [], "threadId": nobody})
            assert (refusal.code, refusal.message) == (-32600, f"thread not found: {nobody}")


def write(home: Path, config: str) -> None:
    """Add to config.toml."""
    file = home / "config.toml"
    file.write_text(f"{file.read_text()}\n{config}")


@claim("apps:t-53", "apps:b7")
async def test_apps_that_are_not_linked_are_listed_with_where_to_link_them(
    tmp_path: Path,
) -> None:
    backend = FakeBackend(listed=[AppInfo(id="drive", name="Drive!", install_url="https://evil")])
    plugins = {"drive": ["Files", "Desk"], "declared": ["Desk"]}
    live = Snapshot(connectors("Gmail"))
    config = "[apps.drive]\nenabled = false\n"
    async with open_desk(
        tmp_path, FakeApps(live, live, backend=backend, plugins=plugins), config
    ) as desk:
        answer = await desk.client.call("app/list", {})
        assert [
            (app["id"], app["installUrl"], app["isEnabled"], app["pluginDisplayNames"])
            for app in answer["data"]
        ] == [
            ("drive", "https://chatgpt.com/apps/drive/drive", False, ["Desk", "Files"]),
            ("declared", "https://chatgpt.com/apps/declared/declared", True, ["Desk"]),
        ]


@claim("apps:t-53")
async def test_a_list_is_paged_by_index_and_cut_where_a_message_would_be_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeBackend(listed=directory(*"ABCDE"))
    async with open_desk(tmp_path, FakeApps(backend=backend)) as desk:
        page = await desk.client.call("app/list", {"limit": 2})
        assert (shown(page["data"]), page["nextCursor"]) == (["a", "b"], "2")
        page = await desk.client.call("app/list", {"cursor": "4", "limit": 2})
        assert (shown(page["data"]), page["nextCursor"]) == (["e"], None)
        for cursor, message in (
            ("x", "invalid cursor: x"),
            ("6", "cursor 6 exceeds total apps 5"),
        ):
            refusal = await desk.client.refusal("app/list", {"cursor": cursor})
            assert (refusal.code, refusal.message) == (-32600, message)
            assert refusal.data == {"code": "invalidCursor", "cursor": cursor}
        size = len(AppInfo.model_validate(page["data"][0]).model_dump_json())
        monkeypatch.setattr(apps_list, "MAX_PAGE_CHARS", 2 * size)
        monkeypatch.setattr(app_listing, "MAX_TOLD_CHARS", 5 * size - 1)
        await desk.lists_before(1)
        request = await desk.client.request("app/list", {"cursor": "1"})
        answer = await desk.client.receive()
        assert answer["id"] == request, "a list that fits no message was sent"
        assert shown(answer["result"]["data"]) == ["b", "c"]
        assert answer["result"]["nextCursor"] == "3"


@claim("apps:r5")
async def test_lists_need_no_mcp_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = Snapshot(connectors("Drive"))
    backend = FakeBackend(listed=directory("Drive"))
    apps = FakeApps(live, live, connectors("Drive"), backend)
    async with open_desk(tmp_path, apps) as desk:
        thread_id = await desk.client.start_thread()

        def fail(*_: Any, **__: Any) -> None:
            raise AssertionError("an MCP connection was used")

        with monkeypatch.context() as patch:
            for name, member in vars(ServerSet).items():
                if callable(member):
                    patch.setattr(ServerSet, name, fail)
            both: list[dict[str, Any]] = [{}, {"threadId": thread_id}]
            for params in both:
                assert (await desk.listed(**params))[1] == ["+drive"]
                read = await desk.client.call("app/read", {**params, "appIds": ["drive"]})
                assert read["missingAppIds"] == ["drive"]
                installed = await desk.client.call("app/installed", params)
                assert [row["callable"] for row in installed["apps"]] == [True]
            broken = await desk.client.refusal("mcpServerStatus/list", {"threadId": thread_id})
            assert broken.code == -32603


@claim("apps:t-53")
async def test_the_real_directory_is_read_for_a_list(tmp_path: Path) -> None:
    entries = {"apps": [{"id": "drive", "name": "Drive", "logo_url": "https://logo"}]}
    answers = {"connectors/directory/list": [entries]}
    async with ChatgptPeer(answers).serve() as peer:
        apps = FakeApps(backend=AppsBackend(tmp_path))  # type: ignore[arg-type]
        config = f'chatgpt_base_url = "{peer.url}"\napps_mcp_product_sku = "a-product"\n'
        async with open_desk(tmp_path, apps, config) as desk:
            with anyio.fail_after(WAIT_S):
                told, listed = await desk.listed()
            assert (told, listed) == ([["drive"]], ["drive"])
            assert peer.lines() == ["GET connectors/directory/list"]
            assert peer.asked[0].headers["authorization"] == "Bearer s3cr3t-token"
        assert "s3cr3t-token" not in "\n".join(desk.client.transcript)
