"""Apps: what app/list and app/installed show."""

import tomllib
from typing import Any

from app_server.apps.inventory.directory import (
    accessible_apps,
    installed_apps,
    merge_apps,
    parse_directory,
    with_declared,
)
from app_server.apps.inventory.inventory import build_inventory
from app_server.apps.policy import AppsPolicy
from protocol.integrations.apps import AppBranding, AppInfo, AppMetadata, InstalledApp
from tests.support.apps.inventories import listed
from tests.support.harness import claim


def merged(
    directory: list[AppInfo], accessible: list[AppInfo], *, loaded: bool = True, **more: Any
) -> list[AppInfo]:
    rules: dict[str, Any] = {"is_enabled": lambda _: True, "plugin_names": {}} | more
    return merge_apps(directory, accessible, directory_loaded=loaded, **rules)


def test_an_entry_is_read_in_either_spelling() -> None:
    snake = {
        "id": " a ",
        "name": " An App ",
        "description": " It works. ",
        "logo_url": "https://logo",
        "logo_url_dark": "https://dark",
        "icon_assets": {"1x": "https://icon"},
        "distribution_channel": "ECOSYSTEM_DIRECTORY",
        "branding": {"developer": "D", "is_discoverable_app": True},
        "app_metadata": {"sub_categories": ["s"], "version": "1"},
        "labels": {"k": "v"},
        "install_url": "https://evil",
        "is_accessible": True,
        "is_enabled": False,
        "plugin_display_names": ["P"],
        "something_new": 1,
    }
    camel = {
        "id": "a",
        "name": "An App",
        "description": "It works.",
        "logoUrl": "https://logo",
        "logoUrlDark": "https://dark",
        "iconAssets": {"1x": "https://icon"},
        "distributionChannel": "ECOSYSTEM_DIRECTORY",
        "branding": {"developer": "D", "isDiscoverableApp": True},
        "appMetadata": {"subCategories": ["s"], "version": "1"},
        "labels": {"k": "v"},
        "installUrl": "https://evil",
        "visibility": "LISTED",
    }
    app = AppInfo(
        id="a",
        name="An App",
        description="It works.",
        logo_url="https://logo",
        logo_url_dark="https://dark",
        icon_assets={"1x": "https://icon"},
        distribution_channel="ECOSYSTEM_DIRECTORY",
        branding=AppBranding(developer="D", is_discoverable_app=True),
        app_metadata=AppMetadata(sub_categories=["s"], version="1"),
        labels={"k": "v"},
    )
    assert parse_directory([snake]) == [app]
    assert parse_directory([camel]) == [app]
    assert parse_directory([app.model_dump(mode="json")]) == [app]


def test_what_makes_no_sense_is_left_out() -> None:
    assert parse_directory(
        [
            "text",
            {"name": "no id"},
            {"id": " ", "name": "blank"},
            {"id": "hidden", "name": "Hidden", "visibility": "HIDDEN"},
            {"id": "plain", "name": 5, "description": " ", "logo_url": 5, "branding": {"x": 1}},
        ]
    ) == [AppInfo(id="plain", name="plain")]


def test_entries_of_one_app_are_joined_member_by_member() -> None:
    first = {
        "id": "a",
        "name": "First",
        "description": "one",
        "logo_url": "",
        "labels": {"k": "first"},
        "branding": {"developer": "D", "is_discoverable_app": False},
        "app_metadata": {"version": "1"},
    }
    second = {
        "id": "a",
        "name": "Second",
        "description": "two",
        "logo_url": "https://logo",
        "labels": {"k": "second", "more": "x"},
        "branding": {"developer": "E", "website": "https://w", "is_discoverable_app": True},
        "distribution_channel": "C",
    }
    assert parse_directory([first, {"id": "b", "name": "B"}, second, {"id": "a"}]) == [
        AppInfo(
            id="a",
            name="First",
            description="two",
            logo_url="https://logo",
            labels={"k": "first"},
            branding=AppBranding(developer="D", website="https://w", is_discoverable_app=False),
            app_metadata=AppMetadata(version="1"),
            distribution_channel="C",
        ),
        AppInfo(id="b", name="B"),
    ]
    assert parse_directory([{"id": "a"}, second])[0].name == "Second"


def test_apps_that_plugins_declare_are_in_the_directory_under_their_ids() -> None:
    known = AppInfo(id="a", name="A")
    assert with_declared([known], ["c", "a", "b", "c"]) == [
        known,
        AppInfo(id="b", name="b"),
        AppInfo(id="c", name="c"),
    ]


@claim("apps:t-53")
def test_an_accessible_app_fills_what_the_directory_lacks() -> None:
    directory = [
        AppInfo(id="a", name="A", description="Of the directory.", is_accessible=True),
        AppInfo(id="b", name="b", logo_url="https://logo"),
    ]
    inventory = build_inventory(
        [
            listed("t", id_, name, meta={"connector_description": "Of the tools."})
            for id_, name in (("a", "Another"), ("b", "Bee"))
        ]
    )
    accessible = accessible_apps(inventory.installed)
    plugin_names = {"a": ["P", "O", "P"], "z": ["Z"]}
    apps = merged(
        directory, accessible, is_enabled=lambda id_: id_ == "b", plugin_names=plugin_names
    )
    assert apps == [
        AppInfo(
            id="a",
            name="A",
            description="Of the directory.",
            install_url="https://chatgpt.com/apps/a/a",
            is_accessible=True,
            is_enabled=False,
            plugin_display_names=["O", "P"],
        ),
        AppInfo(
            id="b",
            name="Bee",
            description="Of the tools.",
            logo_url="https://logo",
            install_url="https://chatgpt.com/apps/bee/b",
            is_accessible=True,
        ),
    ]
    (alone,) = merged(directory[:1], [])
    assert alone.is_accessible is False


@claim("apps:t-53")
def test_what_the_directory_does_not_know_is_listed_until_it_is_loaded() -> None:
    unknown = [AppInfo(id="x", name="X", is_accessible=True)]
    directory = [AppInfo(id="a", name="A")]
    assert [app.id for app in merged(directory, unknown, loaded=False)] == ["x", "a"]
    assert [app.id for app in merged(directory, unknown, loaded=True)] == ["a"]


@claim("apps:t-53")
def test_accessible_apps_come_first_then_names_then_ids() -> None:
    directory = [
        AppInfo(id=id_, name=name) for id_, name in (("4", "B"), ("3", "B"), ("2", "A"), ("1", "C"))
    ]
    accessible = [AppInfo(id=id_, name="ignored") for id_ in ("1", "4")]
    assert [app.id for app in merged(directory, accessible)] == ["4", "1", "2", "3"]


def app(number: int) -> AppInfo:
    return AppInfo(id=str(number), name=str(number))


@claim("apps:t-56")
def test_installed_apps_are_those_with_real_tools_whether_they_can_be_used_or_not() -> None:
    link = {"_codex_apps": {"synthetic_link": True}}
    inventory = build_inventory(
        [
            listed("t", "c", "Sea"),
            listed("t", "b", "Bee"),
            listed("l", "a", "A", meta=link),
            listed("t", "d", "Dee", meta={"ui": {"visibility": []}}),
        ]
    )
    policy = AppsPolicy.read(tomllib.loads("[apps.b]\nenabled = false"), None)
    rows = [("b", "Bee", False, False), ("c", "Sea", True, True), ("d", "Dee", True, False)]
    assert installed_apps(inventory.installed, policy, allowed=True) == [
        InstalledApp(id=id_, runtime_name=name, enabled=enabled, callable=callable_)
        for id_, name, enabled, callable_ in rows
    ]
    assert installed_apps(inventory.installed, policy, allowed=False) == [
        InstalledApp(id=id_, runtime_name=name, enabled=False, callable=False)
        for id_, name, *_ in rows
    ]
