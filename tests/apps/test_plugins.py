"""Apps that plugins declare: whose tools they are said to be, and what is left to sign in to."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from app_server.apps.upstream.backend import KnownDirectory
from app_server.extensions.plugins.contributor import Plugins
from app_server.extensions.plugins.selected_roots import SelectedRoot
from app_server.extensions.plugins.store import PluginStore
from protocol.integrations.apps import AppInfo
from tests.support.apps.fake_apps import NO_TOOLS, FakeApps, FakeBackend, Snapshot, connectors
from tests.support.apps.hosted import connector, serve_hosted, sign_in
from tests.support.apps.service import runs
from tests.support.apps.threads import STARTED, Desk, open_desk
from tests.support.files.plugins import write_marketplace, write_plugin
from tests.support.harness import claim, methods_of, serve
from tests.support.model import tools_of_thread

SHOP = '[plugins."desk@shop"]\n[plugins."second@shop"]\nenabled = true\n'
LINK = "https://chatgpt.com/apps"


@pytest.fixture(autouse=True)
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))


def description(desk: Desk) -> str:
    """Return how the last model request described the tool of the app."""
    [entry] = [one for one in desk.served.model.requests[-1]["tools"] if one["type"] == "namespace"]
    [tool] = entry["tools"]
    return str(tool["description"])


@claim("apps:t-52")
async def test_tools_of_an_app_name_the_plugins_that_are_there_in_this_very_step(
    tmp_path: Path,
) -> None:
    cache = tmp_path / "plugins/cache/shop"
    named = {"interface": {"displayName": "Desk"}}
    write_plugin(cache / "desk/1", "desk", apps=["cal"], **named)
    write_plugin(cache / "second/1", "second", apps=["cal", "mail"], **named)
    chosen = write_plugin(tmp_path / "chosen", "chosen", apps=["cal"])
    available = True
    plugins = Plugins(PluginStore(tmp_path), lambda _: available)
    await plugins.load()
    async with open_desk(tmp_path, config=SHOP, plugins=plugins) as desk:
        await desk.open_thread()
        await desk.client.turn(desk.thread_id, "hi")
        assert description(desk).endswith("\n\nPart of the plugin `Desk`.")
        generation = desk.generation()

        async def said_after(change: bool) -> str:
            nonlocal available
            available = change
            plugins.environment_changed()
            text = {"type": "text", "text": "hi"}
            params = {"threadId": desk.thread_id, "input": [text]}
            await desk.client.call("turn/start", params)
            messages = await desk.client.until("turn/completed")
            # Nobody has started anew, and what serves the tools is the same.
            assert STARTED not in methods_of(messages)
            assert desk.generation() is generation
            return description(desk).splitlines()[-1]

        await plugins.select(desk.thread_id, [SelectedRoot("chosen@x", "local", str(chosen))])
        both = "Part of the plugins `Desk`, `chosen`."
        assert await said_after(True) == both
        assert await said_after(False) == "Part of the plugin `Desk`."
        assert await said_after(True) == both


def summary(id_: str, name: str, slug: str) -> dict[str, Any]:
    url = f"{LINK}/{slug}/{id_}"
    return {"id": id_, "name": name, "description": None, "installUrl": url, "category": None}


async def installed_with(tmp_path: Path, apps: FakeApps) -> tuple[Any, Any, Any]:
    """Install a plugin with three apps; gives the answers of install and read, and of app/list."""
    root = tmp_path / "shop"
    write_plugin(root / "desk", "desk", servers={}, apps=["gmail", "drive", "linear"])
    file = str(write_marketplace(root, "shop", "desk"))
    params = {"marketplacePath": file, "pluginName": "desk"}
    async with serve(tmp_path / "home", apps=apps) as served, served.client() as client:
        installed = await client.call("plugin/install", params)
        shown = await client.call("plugin/read", params)
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
        assert tools_of_thread(served.model.requests[-1]) == []
        return installed, shown, await client.call("app/list", {})


@claim("apps:plugin-sign-in", "apps:b7")
async def test_an_installed_plugin_names_the_apps_that_are_not_linked_and_offers_no_tool_for_it(
    tmp_path: Path,
) -> None:
    listed = [AppInfo(id="drive", name="My Drive")]
    apps = FakeApps(
        fresh=Snapshot(connectors("Gmail")),
        backend=FakeBackend(KnownDirectory(listed, is_fresh=True), listed),
        plugins={"linear": ["desk"]},
    )
    installed, shown, found = await installed_with(tmp_path, apps)
    drive, linear = summary("drive", "My Drive", "my-drive"), summary("linear", "linear", "linear")
    assert installed == {"authPolicy": "ON_INSTALL", "appsNeedingAuth": [drive, linear]}
    assert shown["plugin"]["apps"] == [drive, summary("gmail", "gmail", "gmail"), linear]
    [absent] = [app for app in found["data"] if app["id"] == "linear"]
    assert [
        absent[key] for key in ("name", "isAccessible", "installUrl", "pluginDisplayNames")
    ] == [
        "linear",
        False,
        f"{LINK}/linear/linear",
        ["desk"],
    ]


class OfThreads(FakeApps):
    """Apps of which threads have a plugin of their own."""

    def plugin_names(
        self, config: Mapping[str, Any], thread_id: str | None = None
    ) -> Mapping[str, Sequence[str]]:
        return {"drive": ["desk"] if thread_id is None else ["desk", f"of {thread_id}"]}


async def test_lists_for_a_thread_name_the_plugins_that_were_chosen_for_it(tmp_path: Path) -> None:
    listed = [AppInfo(id="drive", name="My Drive")]
    apps = OfThreads(
        fresh=Snapshot(connectors("Gmail")),
        backend=FakeBackend(KnownDirectory(listed, is_fresh=True), listed),
    )
    async with serve(tmp_path, apps=apps) as served, served.client() as client:
        thread_id = await client.start_thread()
        for params, names in (
            ({}, ["desk"]),
            ({"threadId": thread_id}, ["desk", f"of {thread_id}"]),
        ):
            found = await client.call("app/list", params)
            shown = {app["id"]: app["pluginDisplayNames"] for app in found["data"]}
            assert shown["drive"] == names


@claim("apps:plugin-sign-in")
async def test_what_needs_a_sign_in_is_not_guessed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "shop"
    write_plugin(root / "desk", "desk", apps=["gmail"])
    params = {
        "marketplacePath": str(write_marketplace(root, "shop", "desk")),
        "pluginName": "desk",
    }
    nothing = {"authPolicy": "ON_INSTALL", "appsNeedingAuth": []}
    cases = [FakeApps(fresh=NO_TOOLS), FakeApps(), FakeApps(signed_in=None)]
    with caplog.at_level(logging.WARNING):
        for apps in cases:
            async with serve(tmp_path / "home", apps=apps) as served, served.client() as client:
                assert await client.call("plugin/install", params) == nothing
    told = [text for text in caplog.messages if "needs a sign-in" in text or "need a" in text]
    assert told == [
        "which apps of a plugin need a sign-in is not known: the endpoint is away",
        "which apps of a plugin need a sign-in is not known",
    ]


@claim("plugins:named")
async def test_a_plugin_that_is_named_has_the_tools_of_the_apps_that_it_declares(
    tmp_path: Path,
) -> None:
    for name, app in (("desk", "test"), ("second", "mail")):
        write_plugin(tmp_path / f"plugins/cache/shop/{name}/1", name, apps=[app])
    async with serve_hosted([connector(*runs("look"))]) as hosted:
        config = f"{sign_in(tmp_path, hosted)}mcp_optional_startup_grace_ms = 0\n{SHOP}"
        async with (
            serve(tmp_path, config=config, with_apps=True) as served,
            served.client() as client,
        ):
            thread_id = await client.start_thread()
            said = "[@Desk](plugin://desk@shop) [@Second](plugin://second@shop)"
            await client.turn(thread_id, said)
            assert served.model.inputs()[-2:] == [
                ("user", said),
                (
                    "developer",
                    "The user named the plugin `desk`. For this message use what it brings first:\n"
                    "- Tools of its MCP servers, in the namespaces `mcp__codex_apps__test`.",
                ),
            ]
