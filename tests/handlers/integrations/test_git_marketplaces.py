"""Marketplaces and plugins in repositories, over the wire, with a real Git server."""

import shutil
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.again.cases import named
from tests.support.again.dying import dying
from tests.support.files.plugins import write, write_marketplace, write_plugin
from tests.support.harness import Served, WireClient, WireError, claim, serve, write_config
from tests.support.host.git_peer import GitPeer, Repository, serve_git
from tests.support.processes import running

MAX_STEPS = 60


@pytest.fixture(autouse=True)
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("NO_PROXY", "*")


@dataclass
class Shop:
    """A server, and a repository with the marketplace `shop` and its plugin `alpha`."""

    served: Served
    client: WireClient
    peer: GitPeer
    repository: Repository

    @property
    def url(self) -> str:
        return self.peer.url("shop")

    @property
    def folder(self) -> Path:
        return self.served.home / ".tmp/marketplaces/shop"

    @property
    def file(self) -> str:
        return str(self.folder / ".agents/plugins/marketplace.json")

    def configured(self) -> dict[str, Any]:
        """Return the table of the marketplace in config.toml; the time is left out."""
        text = (self.served.home / "config.toml").read_text()
        table = tomllib.loads(text).get("marketplaces", {}).get("shop", {})
        table.pop("last_updated", None)
        return dict(table)

    def left(self) -> list[str]:
        """Return what of fetching was not cleared away."""
        return [path.name for path in (self.folder.parent / ".staging").iterdir()]

    async def versions(self) -> list[str | None]:
        listed = await self.client.call("plugin/list", {})
        return [p["localVersion"] for m in listed["marketplaces"] for p in m["plugins"]]


@asynccontextmanager
async def open_shop(tmp_path: Path) -> AsyncIterator[Shop]:
    repository = Repository(tmp_path / "git/shop")
    write_plugin(repository.folder / "alpha", "alpha", version="1.0")
    write_marketplace(repository.folder, "shop", "alpha")
    repository.commit("v1")
    async with (
        serve_git(tmp_path / "git") as peer,
        serve(tmp_path / "home") as served,
        served.client() as client,
    ):
        yield Shop(served, client, peer, repository)


@claim("plugins:repositories")
async def test_a_repository_is_fetched_once_used_and_deleted_again(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        commit = shop.repository.git("rev-parse", "HEAD")
        params = {"source": shop.url, "refName": "main"}
        added = {"marketplaceName": "shop", "installedRoot": str(shop.folder)}
        answer = await shop.client.call("marketplace/add", params)
        assert answer == {**added, "alreadyAdded": False}
        table = {"source_type": "git", "source": shop.url, "ref": "main", "last_revision": commit}
        assert shop.configured() == table
        assert "[marketplaces]" not in (shop.served.home / "config.toml").read_text()
        assert not (shop.folder / ".git").exists()
        assert await shop.versions() == ["1.0"]
        asked = len(shop.peer.requests)
        again = await shop.client.call("marketplace/add", params)
        assert again == {**added, "alreadyAdded": True}
        assert len(shop.peer.requests) == asked
        install = {"marketplacePath": shop.file, "pluginName": "alpha"}
        await shop.client.call("plugin/install", install)
        removed = await shop.client.call("marketplace/remove", {"marketplaceName": "shop"})
        assert removed == {"marketplaceName": "shop", "installedRoot": str(shop.folder)}
        assert (shop.configured(), shop.folder.exists(), shop.left()) == ({}, False, [])
        assert (shop.served.home / "plugins/cache/shop/alpha/1.0").is_dir()


@claim("again:operation")
async def test_a_repository_that_is_added_twice_under_a_name_is_fetched_once(
    tmp_path: Path,
) -> None:
    async with open_shop(tmp_path) as shop, shop.served.client() as other:
        params = named({"source": shop.url})
        at_once = [
            (each, await each.request("marketplace/add", params)) for each in (shop.client, other)
        ]
        answers = [(await each.answer(request))["result"] for each, request in at_once]
        added = {"marketplaceName": "shop", "installedRoot": str(shop.folder)}
        assert answers == [{**added, "alreadyAdded": False}] * 2
        asked = len(shop.peer.requests)
        assert await other.call("marketplace/add", params) == answers[0]
        refused = await other.refusal("marketplace/add", {**params, "refName": "main"})
        assert refused.data["code"] == "operationIdTaken"
        assert len(shop.peer.requests) == asked


@claim("again:operation-kill")
@pytest.mark.process
async def test_a_repository_whose_server_is_killed_while_it_is_added_is_there_once(
    tmp_path: Path,
) -> None:
    async with open_shop(tmp_path) as shop:
        home = tmp_path / "killed"
        write_config(home, shop.served.model.url)
        for step in range(MAX_STEPS):
            shutil.rmtree(home / ".tmp", ignore_errors=True)
            shutil.rmtree(home / "operations", ignore_errors=True)
            write_config(home, shop.served.model.url)
            params = named({"source": shop.url})
            async with running(home, **dying(step)) as server, server.client() as client:
                try:
                    first = await client.call("marketplace/add", params)
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    first = None
                    await server.ended()
            async with running(home) as server, server.client() as client:
                again = await client.call("marketplace/add", params)
                assert await client.call("marketplace/add", params) == again
            folder = home / ".tmp/marketplaces/shop"
            assert again == {
                "marketplaceName": "shop",
                "installedRoot": str(folder),
                "alreadyAdded": False,
            }
            table = tomllib.loads((home / "config.toml").read_text())["marketplaces"]
            assert [list(table), table["shop"]["source"]] == [["shop"], shop.url]
            assert (folder / "alpha").is_dir()
            if first is not None:
                break
        else:
            raise AssertionError(f"it takes more than {MAX_STEPS} steps")
        assert step >= 4


@claim("plugins:upgrade")
async def test_a_repository_that_has_moved_is_fetched_again_with_its_plugins(
    tmp_path: Path,
) -> None:
    async with open_shop(tmp_path) as shop:
        await shop.client.call("marketplace/add", {"source": shop.url})
        install = {"marketplacePath": shop.file, "pluginName": "alpha"}
        await shop.client.call("plugin/install", install)
        same = {"selectedMarketplaces": ["shop"], "upgradedRoots": [], "errors": []}
        assert await shop.client.call("marketplace/upgrade", {}) == same
        write_plugin(shop.repository.folder / "alpha", "alpha", version="2.0")
        commit = shop.repository.commit()
        upgraded = await shop.client.call("marketplace/upgrade", {"marketplaceName": "shop"})
        assert upgraded == {**same, "upgradedRoots": [str(shop.folder)]}
        assert shop.configured()["last_revision"] == commit
        assert await shop.versions() == ["2.0"]
        cache = shop.served.home / "plugins/cache/shop/alpha"
        assert [path.name for path in cache.iterdir()] == ["2.0"]
        assert shop.left() == []


@claim("plugins:upgrade")
async def test_a_pinned_commit_does_not_move(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        commit = shop.repository.git("rev-parse", "HEAD")
        write_plugin(shop.repository.folder / "alpha", "alpha", version="2.0")
        shop.repository.commit()
        await shop.client.call("marketplace/add", {"source": f"{shop.url}#{commit}"})
        assert await shop.versions() == ["1.0"]
        asked = len(shop.peer.requests)
        upgraded = await shop.client.call("marketplace/upgrade", {})
        assert (upgraded["upgradedRoots"], upgraded["errors"]) == ([], [])
        assert len(shop.peer.requests) == asked


@claim("plugins:upgrade")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("renamed", "it is called `other` now"),
        ("broken", "marketplace root does not contain a supported manifest"),
        ("gone", "git ls-remote failed: fatal: "),
    ],
)
async def test_what_cannot_be_upgraded_stays_as_it_was(
    tmp_path: Path, change: str, message: str
) -> None:
    async with open_shop(tmp_path) as shop:
        await shop.client.call("marketplace/add", {"source": shop.url})
        before = shop.configured()
        match change:
            case "renamed":
                write_marketplace(shop.repository.folder, "other", "alpha")
            case "broken":
                shutil.rmtree(shop.repository.folder / ".agents")
            case "gone":
                shop.peer.root = tmp_path / "nowhere"
        if change != "gone":
            shop.repository.commit()
        upgraded = await shop.client.call("marketplace/upgrade", {})
        [error] = upgraded["errors"]
        assert (error["marketplaceName"], upgraded["upgradedRoots"]) == ("shop", [])
        assert error["message"].startswith(message)
        assert (shop.configured(), shop.left()) == (before, [])
        assert await shop.versions() == ["1.0"]


@claim("plugins:repositories")
async def test_what_cannot_be_added_leaves_nothing(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        (tmp_path / "git/empty").mkdir()
        Repository(tmp_path / "git/empty").commit()
        cases = [
            (shop.peer.url("gone"), -32603, "failed to fetch the repository: git fetch failed: "),
            (shop.peer.url("empty"), -32600, "marketplace root does not contain a supported "),
        ]
        for source, code, text in cases:
            with pytest.raises(WireError) as failure:
                await shop.client.call("marketplace/add", {"source": source})
            assert failure.value.code == code
            assert failure.value.message.startswith(text)
        write_marketplace(tmp_path / "local", "shop")
        await shop.client.call("marketplace/add", {"source": str(tmp_path / "local")})
        before = shop.configured()
        with pytest.raises(WireError, match="already added from a different source"):
            await shop.client.call("marketplace/add", {"source": shop.url})
        assert (shop.configured(), shop.folder.exists(), shop.left()) == (before, False, [])


@claim("plugins:repositories")
async def test_a_plugin_is_installed_from_a_repository_at_its_commit(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        far = Repository(tmp_path / "git/far")
        write_plugin(far.folder / "plugins/beta", "beta", version="1.0")
        commit = far.commit()
        write_plugin(far.folder / "plugins/beta", "beta", version="2.0")
        far.commit()
        place = {"source": "git-subdir", "url": shop.peer.url("far"), "path": "plugins/beta"}
        write(
            tmp_path / "local/.agents/plugins/marketplace.json",
            {
                "name": "mine",
                "plugins": [
                    {"name": "beta", "source": {**place, "sha": commit}},
                    {"name": "newest", "source": place},
                    {"name": "outside", "source": {**place, "path": "../x"}},
                    {"name": "password", "source": {**place, "url": "https://a:s3cr3t@b/c"}},
                    {"name": "unpinned", "source": {**place, "sha": "main"}},
                ],
            },
        )
        path = str(tmp_path / "local/.agents/plugins/marketplace.json")

        async def install(name: str) -> Any:
            params = {"marketplacePath": path, "pluginName": name}
            return await shop.client.call("plugin/install", params)

        await install("beta")
        assert (shop.served.home / "plugins/cache/mine/beta/1.0").is_dir()
        refused = {
            "newest": "plugin.json name `beta` does not match marketplace plugin name `newest`",
            "outside": "`path` leads out of the repository",
            "password": "a marketplace source must not have credentials; use a credential helper",
            "unpinned": "`sha` is not the full name of a commit",
        }
        for name, text in refused.items():
            with pytest.raises(WireError) as failure:
                await install(name)
            assert (failure.value.code, failure.value.message) == (-32600, text)
        assert shop.left() == []
