"""plugin/* and marketplace/* over the wire, and what plugins do for threads."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.files.plugins import server, write, write_marketplace, write_plugin
from tests.support.harness import Served, WireClient, WireError, claim, serve
from tests.support.model import calls, says

STARTED = "mcpServer/startupStatus/updated"
ALPHA = "alpha@shop"


@pytest.fixture(autouse=True)
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "user"
    monkeypatch.setenv("HOME", str(home))
    return home


@asynccontextmanager
async def shop(tmp_path: Path, config: str = "") -> AsyncIterator[tuple[Served, WireClient, str]]:
    """Serve, beside a marketplace with one plugin; gives the path of its file, too."""
    root = tmp_path / "shop"
    write_plugin(root / "alpha", "alpha", servers={"tools": server()}, version="1.0")
    file = write_marketplace(root, "shop", "alpha", "gone")
    async with (
        serve(tmp_path / "home", config=config, with_apps=True) as served,
        served.client() as client,
    ):
        yield served, client, str(file)


async def install(client: WireClient, file: str, name: str = "alpha") -> Any:
    return await client.call("plugin/install", {"marketplacePath": file, "pluginName": name})


def summary(tmp_path: Path, name: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"{name}@shop",
        "remotePluginId": None,
        "version": None,
        "localVersion": None,
        "name": name,
        "shareContext": None,
        "source": {"type": "local", "path": str(tmp_path / "shop" / name)},
        "installed": False,
        "installedAt": None,
        "enabled": False,
        "installPolicy": "AVAILABLE",
        "installPolicySource": None,
        "mustShowInstallationInterstitial": None,
        "authPolicy": "ON_INSTALL",
        "availability": "AVAILABLE",
        "disabledReason": None,
        "eligiblePlanTypes": None,
        "interface": None,
        "keywords": [],
        **more,
    }


@claim("plugins:list")
async def test_marketplaces_are_listed_with_their_plugins_and_broken_ones_named(
    tmp_path: Path,
) -> None:
    broken = write(tmp_path / "broken/.agents/plugins/marketplace.json", "[]")
    async with shop(tmp_path) as (_, client, file):
        cwds = [str(tmp_path / "shop"), str(tmp_path / "broken"), str(tmp_path / "nowhere")]
        listed = await client.call("plugin/list", {"cwds": cwds})
        assert listed == {
            "marketplaces": [
                {
                    "name": "shop",
                    "path": file,
                    "interface": {"displayName": "The Shop"},
                    "plugins": [
                        summary(tmp_path, "alpha", localVersion="1.0"),
                        summary(tmp_path, "gone"),
                    ],
                }
            ],
            "marketplaceLoadErrors": [
                {
                    "marketplacePath": str(broken),
                    "message": f"invalid marketplace file `{broken}`: failed to parse "
                    "marketplace.json: expected an object",
                }
            ],
            "featuredPluginIds": [],
        }
        kinds = await client.call(
            "plugin/list", {"cwds": cwds, "marketplaceKinds": ["shared-with-me"]}
        )
        nothing: dict[str, Any] = {"marketplaces": [], "marketplaceLoadErrors": []}
        assert kinds == {**nothing, "featuredPluginIds": []}
        assert await client.call("plugin/installed", {"cwds": cwds[:1]}) == nothing


@claim("plugins:read")
async def test_a_plugin_is_shown_with_all_that_it_brings(tmp_path: Path) -> None:
    skill = tmp_path / "shop/alpha/skills/greet/SKILL.md"
    write(skill, "---\nname: greet\ndescription: Hi.\n---\n")
    async with shop(tmp_path) as (_, client, file):
        params = {"marketplacePath": file, "pluginName": "alpha"}
        assert await client.call("plugin/read", params) == {
            "plugin": {
                "marketplaceName": "shop",
                "marketplacePath": file,
                "summary": summary(tmp_path, "alpha", localVersion="1.0"),
                "shareUrl": None,
                "description": None,
                "skills": [
                    {
                        "name": "alpha:greet",
                        "description": "Hi.",
                        "shortDescription": None,
                        "interface": None,
                        "path": str(skill),
                        "enabled": True,
                    }
                ],
                "onboardingSkill": None,
                "hooks": [],
                "apps": [],
                "appTemplates": [],
                "mcpServers": ["tools"],
                "scheduledTasks": None,
            }
        }


@claim("plugins:read")
async def test_a_plugin_that_is_elsewhere_is_shown_as_its_marketplace_lists_it(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path) as (_, client, file):
        source = {"source": "url", "url": "https://a.example/x.git"}
        entry = {"name": "far", "source": source, "category": "Design"}
        write_marketplace(tmp_path / "shop", "shop", entry)
        params = {"marketplacePath": file, "pluginName": "far"}
        plugin = (await client.call("plugin/read", params))["plugin"]
        git = {"type": "git", "url": source["url"], "path": None, "refName": None, "sha": None}
        assert (plugin["summary"]["source"], plugin["skills"]) == (git, [])
        assert plugin["summary"]["interface"]["category"] == "Design"


BOTH = "plugin/read requires exactly one of marketplacePath or remoteMarketplaceName"
HOSTED = ": hosted plugin catalogs are not supported by this server"


@claim("plugins:refused")
async def test_what_is_not_there_or_hosted_is_refused(tmp_path: Path) -> None:
    async with shop(tmp_path) as (_, client, file):
        local = {"marketplacePath": file}
        remote = {"remoteMarketplaceName": "x", "pluginName": "p"}
        refused: list[tuple[str, Any, str]] = [
            ("plugin/read", {"pluginName": "p"}, BOTH),
            ("plugin/read", {**local, **remote}, BOTH),
            ("plugin/read", remote, f"read remote plugin details{HOSTED}"),
            ("plugin/install", remote, f"read remote plugin details{HOSTED}"),
            ("plugin/uninstall", {"pluginId": "plugin_1"},
             f"resolve remote plugin before uninstall{HOSTED}"),
            ("plugin/read", {**local, "pluginName": "p"},
             "plugin `p` was not found in marketplace `shop`"),
            ("plugin/install", {**local, "pluginName": "gone"}, "missing plugin.json"),
            ("plugin/read", {"marketplacePath": "/none", "pluginName": "p"},
             "marketplace file `/none` does not exist"),
        ]  # fmt: skip
        for method, params, text in refused:
            with pytest.raises(WireError) as failure:
                await client.call(method, params)
            assert (failure.value.code, failure.value.message) == (-32600, text)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"name": "alpha", "source": "./alpha", "policy": {"installation": "NOT_AVAILABLE"}},
         "plugin `alpha` is not available for install in marketplace `shop`"),
        ({"name": "other", "source": "./alpha"},
         "plugin.json name `alpha` does not match marketplace plugin name `other`"),
        ({"name": "npm", "source": {"source": "npm", "package": "@a/b"}},
         "plugins of npm packages cannot be installed"),
    ],
)  # fmt: skip
async def test_a_plugin_that_may_not_be_installed_is_refused(
    tmp_path: Path, entry: dict[str, Any], text: str
) -> None:
    async with shop(tmp_path) as (served, client, file):
        write_marketplace(tmp_path / "shop", "shop", entry)
        with pytest.raises(WireError) as failure:
            await install(client, file, entry["name"])
        assert (failure.value.code, failure.value.message) == (-32600, text)
        assert not (served.home / "plugins").exists()


@claim("plugins:install")
async def test_a_loaded_thread_gets_a_plugin_that_is_installed_and_loses_it_again(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path) as (served, client, file):
        before = (served.home / "config.toml").read_text()
        thread_id = await client.start_thread()
        answer = await install(client, file)
        assert answer == {"authPolicy": "ON_INSTALL", "appsNeedingAuth": []}
        await client.wait_for(STARTED, lambda p: (p["name"], p["status"]) == ("tools", "ready"))
        text = (served.home / "config.toml").read_text()
        assert text == f'{before}\n[plugins."{ALPHA}"]\nenabled = true\n'
        assert (served.home / "plugins/cache/shop/alpha/1.0/.mcp.json").is_file()
        installed = await client.call("plugin/installed", {"cwds": [str(tmp_path / "shop")]})
        state = {"localVersion": "1.0", "installed": True, "enabled": True}
        [marketplace] = installed["marketplaces"]
        assert marketplace["plugins"] == [summary(tmp_path, "alpha", **state)]
        status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
        [entry] = status["data"]
        assert [entry[key] for key in ("name", "runtimeStatus", "pluginId")] == [
            "tools",
            "connected",
            ALPHA,
        ]
        for _ in range(2):
            assert await client.call("plugin/uninstall", {"pluginId": ALPHA}) == {}
        assert (await client.call("mcpServerStatus/list", {"threadId": thread_id}))["data"] == []
        assert (served.home / "config.toml").read_text().strip() == before.strip()
        assert not (served.home / "plugins/cache/shop").exists()


@claim("plugins:call")
async def test_a_call_names_the_plugin_to_the_server_and_in_its_item(tmp_path: Path) -> None:
    async with shop(tmp_path) as (served, client, file):
        await install(client, file)
        thread_id = await client.start_thread()
        await client.wait_for(STARTED, lambda p: p["status"] == "ready")
        served.model.scripts += [
            calls({"namespace": "mcp__tools", "name": "meta"}),
            says("done"),
        ]
        params = {
            "threadId": thread_id,
            "input": [{"type": "text", "text": "go"}],
            "approvalPolicy": "never",
            "sandboxPolicy": {"type": "dangerFullAccess"},
        }
        await client.call("turn/start", params)
        done = await client.wait_for("item/completed", lambda p: p["item"]["type"] == "mcpToolCall")
        item = done["params"]["item"]
        assert (item["pluginId"], item["status"]) == (ALPHA, "completed")
        [seen] = item["result"]["content"]
        assert json.loads(seen["text"])["plugin_id"] == ALPHA
        [declared] = [
            tool
            for entry in served.model.requests[0]["tools"]
            if entry["type"] == "namespace"
            for tool in entry["tools"]
            if tool["name"] == "meta"
        ]
        assert declared["description"].endswith("Part of the plugin `alpha`.")


@claim("plugins:selected")
async def test_a_folder_chosen_for_a_thread_is_its_own_and_wins_over_installed_ones(
    tmp_path: Path,
) -> None:
    chosen = write_plugin(tmp_path / "sel", "sel", servers={"tools": server(), "more": server()})
    place = {"type": "environment", "environmentId": "local", "path": str(chosen)}
    selected = {"selectedCapabilityRoots": [{"id": "sel@x", "location": place}]}
    async with shop(tmp_path) as (_, client, file):
        await install(client, file)

        async def plugin_ids(thread_id: str) -> dict[str, str]:
            status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
            return {entry["name"]: entry["pluginId"] for entry in status["data"]}

        thread_id = (await client.call("thread/start", selected))["thread"]["id"]
        assert await plugin_ids(thread_id) == {"tools": "sel@x", "more": "sel@x"}
        assert await plugin_ids(await client.start_thread()) == {"tools": ALPHA}
    async with serve(tmp_path / "home", with_apps=True) as served, served.client() as client:
        await client.call("thread/resume", {"threadId": thread_id})
        assert await plugin_ids(thread_id) == {"tools": "sel@x", "more": "sel@x"}


@claim("plugins:required")
async def test_an_administrator_decides_on_servers_of_plugins_too(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    write(
        tmp_path / "home/requirements.toml",
        '[mcp_servers.other.identity]\ncommand = "other"\n',
    )
    async with shop(tmp_path) as (_, client, file):
        await install(client, file)
        thread_id = await client.start_thread()
        status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
        assert [(one["name"], one["runtimeStatus"]) for one in status["data"]] == [
            ("tools", "disabled")
        ]


@claim("plugins:marketplaces")
async def test_a_marketplace_is_configured_once_and_taken_out_again(tmp_path: Path) -> None:
    async with shop(tmp_path) as (served, client, file):
        before = (served.home / "config.toml").read_text()
        root = str(tmp_path / "shop")
        added = {"marketplaceName": "shop", "installedRoot": root, "alreadyAdded": False}
        assert await client.call("marketplace/add", {"source": root}) == added
        text = (served.home / "config.toml").read_text()
        table = f'[marketplaces.shop]\nsource_type = "local"\nsource = "{root}"\n'
        assert text == f"{before}\n{table}"
        assert await client.call("marketplace/add", {"source": "../shop"}) == {
            **added,
            "alreadyAdded": True,
        }
        [found] = (await client.call("plugin/list", {}))["marketplaces"]
        assert found["path"] == file
        upgraded = await client.call("marketplace/upgrade", {})
        assert upgraded == {"selectedMarketplaces": [], "upgradedRoots": [], "errors": []}
        removed = await client.call("marketplace/remove", {"marketplaceName": "shop"})
        assert removed == {"marketplaceName": "shop", "installedRoot": None}
        assert (await client.call("plugin/list", {}))["marketplaces"] == []


@claim("plugins:marketplaces")
async def test_what_is_no_marketplace_is_refused(tmp_path: Path) -> None:
    write_marketplace(tmp_path / "other", "shop")
    write(tmp_path / "file", "")
    (tmp_path / "empty").mkdir()
    no_source = (
        "invalid marketplace source format; expected owner/repo, a git URL, or a local "
        "marketplace path"
    )
    secret = "a marketplace source must not have credentials; use a credential helper"
    folders = "sparsePaths: expected folders of the repository"
    missing = "failed to resolve local marketplace source path: No such file or directory"
    empty = "marketplace root does not contain a supported manifest"
    different = (
        "marketplace `shop` is already added from a different source; "
        "remove it before adding this source"
    )
    unknown = "marketplace `none` is not configured"
    bad_name = "invalid marketplace name: only ASCII letters, digits, `_`, and `-` are allowed"
    refused: list[tuple[str, Any, str]] = [
        ("add", {"source": "shop"}, no_source),
        ("add", {"source": "file:///x.git"}, no_source),
        ("add", {"source": "ext::sh -c true"}, no_source),
        ("add", {"source": "--upload-pack=x"}, no_source),
        ("add", {"source": "owner/name/more"}, no_source),
        ("add", {"source": "https://a.example/a b"}, no_source),
        ("add", {"source": "https://u:s3cr3t@a.example/x"}, secret),
        ("add", {"source": "https://s3cr3t@a.example/x"}, secret),
        ("add", {"source": "ssh://u:s3cr3t@a.example/x"}, secret),
        ("add", {"source": "https:///x"}, "invalid marketplace source: the URL has no host"),
        ("add", {"source": "ssh://-oProxyCommand=x/y"},
         "invalid marketplace source: the URL has no host"),
        ("add", {"source": f"https://a.example/{'x' * 2048}"},
         "marketplace source exceeds 2048 characters"),
        ("add", {"source": "owner/name", "refName": "-x"},
         "invalid revision: at most 256 characters of a Git revision"),
        ("add", {"source": "owner/name#a..b"},
         "invalid revision: at most 256 characters of a Git revision"),
        ("add", {"source": "owner/name", "sparsePaths": ["../x"]}, folders),
        ("add", {"source": "owner/name", "sparsePaths": ["--stdin"]}, folders),
        ("add", {"source": "owner/name", "sparsePaths": ["x"] * 65},
         "sparsePaths accepts at most 64 entries"),
        ("add", {"source": str(tmp_path / "none")}, missing),
        ("add", {"source": str(tmp_path / "file")},
         "local marketplace source must be a directory, not a file"),
        ("add", {"source": str(tmp_path / "empty")}, empty),
        ("add", {"source": str(tmp_path / "other")}, different),
        ("add", {"source": "./x", "refName": "main"},
         "--ref is only supported for git marketplace sources"),
        ("add", {"source": "./x", "sparsePaths": ["a"]},
         "--sparse is only supported for git marketplace sources"),
        ("add", {"source": " "}, "marketplace source must not be empty"),
        ("add", {"source": "a\0"}, "a path must not hold a NUL character"),
        ("remove", {"marketplaceName": "none"}, f"{unknown} or installed"),
        ("remove", {"marketplaceName": "a/b"}, bad_name),
        ("upgrade", {"marketplaceName": "none"}, f"{unknown} as a Git marketplace"),
    ]  # fmt: skip
    async with shop(tmp_path) as (_, client, _file):
        await client.call("marketplace/add", {"source": str(tmp_path / "shop")})
        for method, params, text in refused:
            with pytest.raises(WireError) as failure:
                await client.call(f"marketplace/{method}", params)
            assert (failure.value.code, failure.value.message) == (-32600, text)


@claim("plugins:install")
async def test_what_is_switched_on_in_the_file_is_there_after_a_reload(tmp_path: Path) -> None:
    async with shop(tmp_path, '[plugins."alpha@shop".mcp_servers.tools]\nenabled = false\n') as (
        served,
        client,
        _,
    ):
        thread_id = await client.start_thread()
        write_plugin(
            served.home / "plugins/cache/shop/alpha/local", "alpha", servers={"tools": server()}
        )
        await client.call("config/mcpServer/reload")
        status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
        assert [(one["name"], one["runtimeStatus"]) for one in status["data"]] == [
            ("tools", "disabled")
        ]
