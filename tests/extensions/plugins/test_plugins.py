"""Plugins on disk: what is read of them, what is refused, and how they are installed."""

import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest

from app_server.config.editing.toml_edit import NotEditable, remove, set_value
from app_server.extensions.contract.registration import (
    ContributionContext,
    Registration,
    RuntimeMetadata,
    Tier,
)
from app_server.extensions.plugins.contributor import Plugins
from app_server.extensions.plugins.manifest import Plugin, read_plugin
from app_server.extensions.plugins.marketplace import find_marketplaces, read_marketplace
from app_server.extensions.plugins.selected_roots import SelectedRoot
from app_server.extensions.plugins.store import PluginId, PluginStore
from app_server.extensions.skills.skill_file import Skill
from app_server.runtime.files.opening import MAX_FILE_BYTES, BrokenFiles
from tests.support.files.plugins import server, write, write_marketplace, write_plugin
from tests.support.large import Case, made

ID = PluginId("shop", "alpha")


def test_a_plugin_is_read_with_all_that_it_brings(tmp_path: Path) -> None:
    interface = {
        "displayName": " Alpha ",
        "logo": "./l.png",
        "screenshots": ["./s.png", "../x.png", 5],
        "defaultPrompt": ["a", "b", "c", "d"],
    }
    root = write_plugin(
        tmp_path / "alpha",
        "alpha",
        servers={"one": server(type="stdio", cwd="run"), "bad": {"foo": 1}},
        apps=["app_1", "app_2", "app_1"],
        version="1.2.3",
        description="Does.",
        keywords=["k", 1],
        interface=interface,
    )
    skill = write(root / "skills/greet/SKILL.md", '---\nname: "greet"\ndescription: Hi.\n---\nx')
    write(root / "skills/mute/SKILL.md", "no front matter")
    plugin = read_plugin(root)
    assert plugin.interface is not None
    assert plugin == Plugin(
        root=root,
        name="alpha",
        version="1.2.3",
        description="Does.",
        keywords=("k",),
        interface=plugin.interface,
        servers={"one": server(cwd=str(root / "run"))},
        app_ids=("app_1", "app_2"),
        skills=(Skill("greet", "Hi.", skill),),
        problems=(
            "skill mute: missing YAML frontmatter delimited by ---",
            "MCP server bad: invalid transport",
        ),
    )
    shown = plugin.interface.model_dump(mode="json", exclude_none=True)
    assert shown == {
        "displayName": "Alpha",
        "capabilities": [],
        "defaultPrompt": ["a", "b", "c"],
        "logo": str(root / "l.png"),
        "screenshots": [str(root / "s.png")],
        "screenshotUrls": [],
    }


def test_servers_of_the_manifest_stand_in_for_the_file(tmp_path: Path) -> None:
    root = write_plugin(tmp_path, "a", servers={"file": server()}, mcpServers={"inline": server()})
    assert list(read_plugin(root).servers) == ["inline"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "missing plugin.json"),
        ("[]", "failed to parse plugin.json: expected an object"),
        (
            "{",
            "failed to parse plugin.json: EOF while parsing an object at line 1 column 1",
        ),
        ("[" * 100_000, "failed to parse plugin.json: "),
        ('{"name": "\\ud800"}', "failed to parse plugin.json: "),
        ('{"name": NaN}', "failed to parse plugin.json: "),
        (lambda: " " * (MAX_FILE_BYTES + 1), f"plugin.json is larger than {MAX_FILE_BYTES} bytes"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(
    tmp_path: Path, content: Case[str] | None, text: str
) -> None:
    if content is not None:
        write(tmp_path / ".codex-plugin/plugin.json", made(content))
    with pytest.raises(BrokenFiles) as failure:
        read_plugin(tmp_path)
    assert str(failure.value).startswith(text)


def test_nothing_outside_of_a_plugin_is_read(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret/.mcp.json", {"mcpServers": {"stolen": server()}})
    write(tmp_path / "secret/skills/s/SKILL.md", "---\nname: s\ndescription: S.\n---\n")
    root = write_plugin(tmp_path / "a", "a", servers={"out": server(cwd="../secret")})
    (root / ".app.json").symlink_to(secret)
    (root / "skills").symlink_to(tmp_path / "secret/skills")
    plugin = read_plugin(root)
    assert (plugin.servers, plugin.app_ids, plugin.skills) == ({}, (), ())
    assert plugin.problems == (
        "skills: `skills` leads out of its folder",
        "MCP server out: `../secret` leads out of its folder",
        "apps: `.app.json` leads out of its folder",
    )


def test_paths_that_no_system_has_and_circles_of_links_break_one_part_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "skills").symlink_to(tmp_path / "skills")
    root = write_plugin(tmp_path, "a", servers={"nul": server(cwd="a\0"), "good": server()})
    plugin = read_plugin(root)
    assert list(plugin.servers) == ["good"]
    assert plugin.problems == (
        "skills: `skills` is no usable path",
        "MCP server nul: `a\0` is no usable path",
    )


def test_a_marketplace_lists_what_its_sources_say(tmp_path: Path) -> None:
    (tmp_path / "away").symlink_to("/")
    file = write_marketplace(
        tmp_path,
        "shop",
        "alpha",
        {"name": "alpha", "source": "./second"},
        {
            "name": "beta",
            "source": {"source": "local", "path": "./b"},
            "policy": {"installation": "NOT_AVAILABLE", "authentication": "ON_USE"},
            "category": "Design",
        },
        {"name": "git", "source": {"source": "url", "url": "https://a.example/x", "ref": "main"}},
        {"name": "npm", "source": {"source": "npm", "package": "@a/b", "version": "1"}},
        {"name": "escape", "source": "./../b"},
        {"name": "away", "source": "./away"},
        {"name": "bad name", "source": "./b"},
        {"name": "nowhere"},
    )
    found = read_marketplace(file)
    shown: list[Any] = [
        (one.name, one.source.model_dump(mode="json", exclude_none=True), one.install_policy,
         one.auth_policy, one.category)
        for one in found.entries
    ]  # fmt: skip
    usual = ("AVAILABLE", "ON_INSTALL", None)
    assert shown == [
        ("alpha", {"type": "local", "path": str(tmp_path / "alpha")}, *usual),
        ("beta", {"type": "local", "path": str(tmp_path / "b")}, "NOT_AVAILABLE", "ON_USE",
         "Design"),
        ("git", {"type": "git", "url": "https://a.example/x", "refName": "main"}, *usual),
        ("npm", {"type": "npm", "package": "@a/b", "version": "1"}, *usual),
    ]  # fmt: skip
    assert (found.name, found.display_name, found.root) == ("shop", "The Shop", tmp_path)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "marketplace file `FILE` does not exist"),
        (
            {"name": "a b", "plugins": []},
            "invalid marketplace file `FILE`: invalid marketplace name",
        ),
        ({"name": "a"}, "invalid marketplace file `FILE`: missing field `plugins`"),
        (
            {"name": "a", "plugins": [
                {"name": "p", "source": "./p", "policy": {"authentication": "X"}}
            ]},
            "invalid marketplace file `FILE`: unknown variant `X`, expected one of `ON_INSTALL`, "
            "`ON_USE`",
        ),
    ],
)  # fmt: skip
def test_a_marketplace_that_cannot_be_used_is_refused(
    tmp_path: Path, content: Any, text: str
) -> None:
    file = tmp_path / ".agents/plugins/marketplace.json"
    if content is not None:
        write(file, content)
    with pytest.raises(BrokenFiles) as failure:
        read_marketplace(file)
    assert str(failure.value) == text.replace("FILE", str(file))


def test_marketplaces_are_found_at_home_in_repositories_and_where_configured(
    tmp_path: Path,
) -> None:
    for name in ("home", "repo", "repo/sub", "configured", "other"):
        write_marketplace(tmp_path / name, "m")
    # A sandbox leaves an empty one where nothing may be made.
    (tmp_path / "repo/sub/.git").mkdir()
    write(tmp_path / "repo/.git/HEAD", "ref: refs/heads/main\n")
    found = find_marketplaces(
        [tmp_path / "repo/sub", tmp_path / "nowhere"], tmp_path / "home", [tmp_path / "configured"]
    )
    roots = [str(file.parents[2].relative_to(tmp_path)) for file in found]
    assert roots == ["home", "repo", "repo/sub", "configured"]


def test_an_installed_plugin_is_replaced_as_a_whole(tmp_path: Path) -> None:
    store = PluginStore(tmp_path / "home")
    source = write_plugin(tmp_path / "a", "alpha", version="1.0")
    write(source / "old.txt", "old")
    first = store.install(source, ID, "1.0")
    assert first == tmp_path / "home/plugins/cache/shop/alpha/1.0"
    (source / "old.txt").unlink()
    assert store.install(source, ID, "1.0") == first
    assert not (first / "old.txt").exists()
    second = store.install(source, ID, "1.1")
    assert (store.installed(), first.exists()) == ({ID: second}, False)
    store.remove(ID)
    store.remove(ID)
    assert (store.installed(), list((tmp_path / "home/plugins/cache").iterdir())) == ({}, [])


@pytest.mark.parametrize("version", ["..", "a/b", "", "-x"])
def test_a_version_that_is_no_name_of_a_folder_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(BrokenFiles):
        PluginStore(tmp_path / "home").install(tmp_path, ID, version)


def test_a_plugin_with_links_is_not_installed_and_what_was_there_stays(tmp_path: Path) -> None:
    store = PluginStore(tmp_path / "home")
    source = write_plugin(tmp_path / "a", "alpha")
    installed = store.install(source, ID, None)
    (source / "link").symlink_to("/etc")
    with pytest.raises(BrokenFiles, match="`link` is neither a file nor a folder"):
        store.install(source, ID, None)
    assert store.installed() == {ID: installed}
    assert list((tmp_path / "home/plugins/.staging").iterdir()) == []


def test_the_newest_version_counts_and_links_are_no_plugins(tmp_path: Path) -> None:
    cache = tmp_path / "plugins/cache"
    for version in ("0.9.0", "0.10.0", "0.2"):
        write_plugin(cache / "shop/alpha" / version, "alpha")
    (cache / "shop/linked").symlink_to(cache / "shop/alpha")
    assert PluginStore(tmp_path).installed() == {ID: cache / "shop/alpha/0.10.0"}


def context(config: dict[str, Any], thread_id: str | None = None) -> ContributionContext:
    return ContributionContext("discover", config, thread_id)


ON: dict[str, Any] = {"plugins": {"alpha@shop": {}}}


async def test_plugins_that_are_switched_on_register_their_servers(tmp_path: Path) -> None:
    folder = write_plugin(
        tmp_path / "plugins/cache/shop/alpha/local", "alpha", servers={"a": server(), "b": server()}
    )
    plugins = Plugins(PluginStore(tmp_path), lambda _: True)
    assert plugins.contribute(context(ON)) == []
    before = plugins.revision()
    await plugins.refresh(context(ON))
    metadata = RuntimeMetadata(plugin_id="alpha@shop", plugin_display_names=("alpha",))
    adjusted = {"alpha@shop": {"mcp_servers": {"b": {"enabled": False, "command": "evil"}}}}
    assert plugins.contribute(context({"plugins": adjusted})) == [
        Registration("a", server(), metadata=metadata, tier=Tier.PLUGIN),
        Registration("b", server(enabled=False), metadata=metadata, tier=Tier.PLUGIN),
    ]
    for off in (
        {},
        {"plugins": {"alpha@shop": {"enabled": False}}},
        {**ON, "features": {"plugins": False}},
        {"plugins": 5},
    ):
        assert plugins.contribute(context(off)) == []
    assert plugins.revision() == before + 1
    await plugins.load()
    assert plugins.revision() == before + 1
    write(folder / ".mcp.json", {})
    await plugins.load()
    assert (plugins.revision(), plugins.contribute(context(ON))) == (before + 2, [])


async def test_a_broken_plugin_is_named_and_hurts_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = tmp_path / "plugins/cache/shop"
    write_plugin(cache / "alpha/local", "alpha", servers={"a": server()})
    write(cache / "broken/local/.codex-plugin/plugin.json", "[]")
    plugins = Plugins(PluginStore(tmp_path), lambda _: True)
    with caplog.at_level(logging.WARNING):
        await plugins.load()
    assert [one.name for one in plugins.contribute(context(ON))] == ["a"]
    assert caplog.messages == [
        "plugin broken@shop cannot be loaded: failed to parse plugin.json: expected an object"
    ]


async def test_folders_chosen_for_a_thread_give_it_their_servers(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "s", "sel", servers={"a": server()}, apps=["app_1"])
    plugins = Plugins(PluginStore(tmp_path), lambda _: True)
    problems = await plugins.select(
        "t",
        [
            SelectedRoot("sel@x", "local", str(folder)),
            SelectedRoot("far@x", "elsewhere", str(folder)),
            SelectedRoot("rel@x", "local", "s"),
            SelectedRoot("none@x", "local", str(tmp_path / "none")),
            SelectedRoot(" ", "local", str(folder)),
            SelectedRoot("x" * 513, "local", str(folder)),
        ],
    )
    assert problems == [
        "plugin far@x: cannot be loaded: environment `elsewhere` cannot be read from here",
        "plugin rel@x: cannot be loaded: its path is not absolute",
        "plugin none@x: cannot be loaded: missing plugin.json",
        "plugin  : cannot be loaded: its id must have 1 to 512 characters",
        f"plugin {'x' * 128}: cannot be loaded: its id must have 1 to 512 characters",
    ]
    metadata = RuntimeMetadata(plugin_id="sel@x", plugin_display_names=("sel",))
    config = server(cwd=str(folder))
    assert plugins.contribute(context({}, "t")) == [
        Registration("a", config, metadata=metadata, tier=Tier.SELECTED_PLUGIN)
    ]
    assert plugins.contribute(context({}, "other")) == []
    assert plugins.app_names({}, "t") == {"app_1": ["sel"]}


async def test_a_thread_has_32_folders_and_no_more(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "s", "sel", servers={"a": server()})
    plugins = Plugins(PluginStore(tmp_path), lambda _: True)
    roots = [SelectedRoot(f"{number}@x", "local", str(folder)) for number in range(33)]
    assert await plugins.select("t", roots) == [
        "plugin 32@x: cannot be loaded: a thread has at most 32"
    ]
    assert len(plugins.active({}, "t")) == 32


def test_what_is_too_much_of_a_plugin_is_left_out(tmp_path: Path) -> None:
    root = write_plugin(
        tmp_path / "a",
        "a",
        servers={f"s{number}": server() for number in range(65)},
        apps=[f"app_{number}" for number in range(257)],
        interface={"displayName": "x" * 257},
    )
    for number in range(129):
        write(root / f"skills/{number:03}/SKILL.md", "---\ndescription: D.\n---\n")
    plugin = read_plugin(root)
    counts = (len(plugin.servers), len(plugin.app_ids), len(plugin.skills))
    assert (counts, len(plugin.display_name)) == ((64, 256, 128), 256)
    assert plugin.problems == ("mcpServers: more than 64",)


@pytest.mark.parametrize("bound", ["MAX_FILES", "MAX_BYTES"])
def test_a_plugin_that_is_too_large_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    source = write_plugin(tmp_path / "a", "alpha")
    write(source / "x", "12")
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    limit = {"MAX_FILES": 3, "MAX_BYTES": size}[bound]
    store = PluginStore(tmp_path / "home")
    monkeypatch.setattr(f"app_server.extensions.plugins.store.{bound}", limit)
    installed = store.install(source, ID, None)
    write(source / ("y" if bound == "MAX_FILES" else "x"), "123")
    with pytest.raises(BrokenFiles, match="more than"):
        store.install(source, ID, None)
    assert store.installed() == {ID: installed}


TWO = '# top\n[plugins."a@m"]\n# of a\nenabled = true\n\n# of b\n[plugins."b@m"]\nenabled = true\n'


def test_a_table_is_taken_away_and_the_rest_stays() -> None:
    assert remove(TWO, ("plugins", "b@m")) == (
        '# top\n[plugins."a@m"]\n# of a\nenabled = true\n\n# of b\n'
    )
    assert remove(TWO, ("plugins", "c@m")) == TWO
    assert remove(TWO, ("other", "c")) == TWO
    added = set_value("x = 1\n", ("plugins", "a@m", "enabled"), True)
    assert added == 'x = 1\n\n[plugins."a@m"]\nenabled = true\n'
    assert remove(added, ("plugins", "a@m")).strip() == "x = 1"


def test_a_table_that_cannot_be_taken_away_alone_is_left() -> None:
    with pytest.raises(NotEditable):
        remove("x = nan\n[a.b]\nc = 1\n", ("a", "b"))


def test_what_a_killed_process_left_is_cleared_away_after_an_hour(tmp_path: Path) -> None:
    parent = tmp_path / "plugins/.staging"
    for name, age_s in (("old", 3_700), ("new", 0)):
        (parent / name / "half").mkdir(parents=True)
        os.utime(parent / name, (time.time() - age_s,) * 2)
    store = PluginStore(tmp_path)
    store.install(write_plugin(tmp_path / "p", "p"), PluginId("shop", "p"), None)
    assert [path.name for path in parent.iterdir()] == ["new"]
    clones = store.clones
    folder = clones.make_staging()
    os.utime(folder, (time.time() - 3_700,) * 2)
    again = clones.make_staging()
    assert list(folder.parent.iterdir()) == [again]
