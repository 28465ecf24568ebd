"""Apps: the endpoint's list of tools, and the names that are made from it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.apps.inventory.annotations import valid_email
from app_server.apps.inventory.inventory import (
    AppTool,
    Connector,
    InconsistentInventory,
    Inventory,
    build_inventory,
)
from app_server.apps.inventory.names import (
    MAX_NAME_BYTES,
    allocate_routes,
    install_url,
    mention_slug,
    stripped_title,
)
from tests.support.apps.inventories import listed
from tests.support.harness import claim

EMAIL = "me@example.com"


def only_tool(inventory: Inventory) -> AppTool:
    ((tool,),) = (connector.tools for connector in inventory.connectors)
    return tool


def said_of(tool: AppTool) -> dict[str, object]:
    names = ("envelope", "link_id", "action_name", "resources", "file_params", "visible_to_model")
    return {name: getattr(tool, name) for name in names}


@claim("apps:t-04")
def test_a_tool_is_read_with_all_its_annotations() -> None:
    meta = {
        "connector_id": " gmail ",
        "connector_name": " ",
        "connector_display_name": " Gmail ",
        "connector_description": "",
        "connectorDescription": " Mail. ",
        "link_id": "link-1",
        "_codex_apps": {
            "synthetic_link": 1,
            "connected_account_email": EMAIL,
            "template_id": "template-1",
            "resource_uri": "/connectors/gmail/send//",
            "anything": {"else": 1},
        },
        "openai/fileParams": ["file", 1, " ", "file", "more"],
        "ui": {"resourceUri": "ui://a", "visibility": ["app"]},
        "ui/resourceUri": "ui://b",
        "openai/outputTemplate": "ui://a",
        "codex/approvalContext": {"connectedAccountEmail": "forged@example.com"},
        "template_id": "outside the envelope",
        "kept": True,
    }
    envelope = {k: v for k, v in meta["_codex_apps"].items() if k != "connected_account_email"}  # type: ignore[attr-defined]
    tool = {"name": " send ", "title": " Send ", "inputSchema": {}, "_meta": meta}
    inventory = build_inventory([tool])
    assert inventory.connectors == (
        Connector(
            "gmail",
            "Gmail",
            "Mail.",
            (
                AppTool(
                    name=" send ",
                    definition={
                        **tool,
                        "_meta": {
                            **meta,
                            "_codex_apps": envelope,
                            "codex/approvalContext": {"connectedAccountEmail": EMAIL},
                        },
                    },
                    synthetic=False,
                ),
            ),
        ),
    )
    assert said_of(only_tool(inventory)) == {
        "envelope": envelope,
        "link_id": "link-1",
        "action_name": "send",
        "resources": ("ui://a", "ui://b"),
        "file_params": ("file", "more"),
        "visible_to_model": False,
    }
    assert only_tool(inventory).title == " Send "
    assert EMAIL not in repr(inventory)


@claim("apps:t-04")
def test_annotations_of_other_types_count_as_absent() -> None:
    meta = {
        "connector_description": 1,
        "link_id": [],
        "_codex_apps": "text",
        "openai/fileParams": "file",
        "ui": [],
        "ui/resourceUri": " ",
        "openai/outputTemplate": 1,
        "codex/approvalContext": "forged",
    }
    tool = only_tool(build_inventory([listed("a", title=1, meta=meta)]))
    assert tool == AppTool(
        name="a",
        definition=listed(
            "a", title=1, meta={k: v for k, v in meta.items() if k != "codex/approvalContext"}
        ),
        synthetic=False,
    )
    assert said_of(tool) == {
        "envelope": {},
        "link_id": None,
        "action_name": None,
        "resources": (),
        "file_params": (),
        "visible_to_model": True,
    }
    assert tool.title is None


@pytest.mark.parametrize(
    ("email", "valid"),
    [
        (EMAIL, True),
        ("a" * 316 + "@b.c", True),
        ("a" * 317 + "@b.c", False),
        ("ä" * 158 + "@b.c", True),
        ("ä" * 159 + "@b.c", False),
        ("nobody", False),
        ("a b@c.d", False),
        ("a@b.c\n", False),
        ("a\u0085@b.c", False),
        ("a\x00@b.c", False),
        (5, False),
        (None, False),
    ],
)
def test_only_a_sensible_email_is_passed_on(email: Any, valid: bool) -> None:
    assert valid_email(email) == (email if valid else None)
    meta = {"_codex_apps": {"connected_account_email": email}}
    tool = only_tool(build_inventory([listed("a", meta=meta)]))
    context = {"codex/approvalContext": {"connectedAccountEmail": email}} if valid else {}
    assert tool.definition == listed("a", meta={"_codex_apps": {}} | context)


@claim("apps:t-11")
@pytest.mark.parametrize(
    "dropped",
    [
        listed(" "),
        listed(""),
        listed(5),
        {"_meta": {"connector_id": "gmail", "connector_name": "Gmail"}},
        {"name": "a"},
        {"name": "a", "_meta": "text"},
        listed("a", connector_id=" "),
        listed("a", connector_name="\t"),
        {"name": "a", "_meta": {"connector_name": "Gmail"}},
    ],
)
def test_a_tool_without_name_or_origin_is_dropped(dropped: dict[str, Any]) -> None:
    inventory = build_inventory([dropped, listed("kept")])
    assert [tool.name for tool in inventory.connectors[0].tools] == ["kept"]
    assert len(inventory.connectors) == 1
    assert inventory.raw_tools == (dropped, listed("kept"))


def test_connectors_are_sorted_by_id_and_tools_stay_in_order() -> None:
    inventory = build_inventory(
        [
            listed("z", "b", "B"),
            listed("y", "a", "A"),
            listed("x", "b", "B", meta={"connector_description": "first"}),
            listed("w", "b", "B", meta={"connector_description": "second"}),
            listed("x", "b", "B", title="the second x"),
            listed("X", "b", "B"),
        ]
    )
    assert [
        (c.id, c.description, [(t.name, t.title) for t in c.tools]) for c in inventory.connectors
    ] == [
        ("a", None, [("y", None)]),
        ("b", "first", [("z", None), ("x", None), ("w", None), ("X", None)]),
    ]


@claim("apps:t-12")
def test_a_connector_with_two_names_spoils_the_inventory() -> None:
    with pytest.raises(InconsistentInventory, match="'gmail' goes by two names"):
        build_inventory([listed("a"), listed("x", "c", "C"), listed("b", connector_name="Mail")])
    with pytest.raises(InconsistentInventory, match=f"'{'x' * 100}' goes"):
        build_inventory([listed("a", "x" * 200, name) for name in ("A", "B")])


@claim("apps:t-14")
def test_a_connector_with_links_alone_is_known_but_gets_no_route() -> None:
    link = {"_codex_apps": {"synthetic_link": True}}
    inventory = build_inventory(
        [
            listed("link", "a", "A", meta=link),
            listed("link", "b", "B", meta=link),
            listed("real", "b", "B"),
        ]
    )
    assert [connector.id for connector in inventory.connectors] == ["a", "b"]
    assert [connector.id for connector in inventory.installed] == ["b"]
    (route,) = allocate_routes(inventory)
    assert route.server == "codex_apps__b"
    assert list(route.tools) == ["link", "real"]


def test_inventories_are_equal_if_all_that_is_served_is_equal() -> None:
    def served(*tools: dict[str, Any]) -> Any:
        return build_inventory(tools).connectors

    a, b, other = listed("a"), listed("b"), listed("a", "c", "C")
    same = served(a, b, other)
    assert served(a, other, listed(" "), b) == same
    assert served(dict(reversed(a.items())), b, other) == same
    email = {"_codex_apps": {"connected_account_email": EMAIL}}
    others = [
        served(b, a, other),
        served(a, b),
        served(listed("a", meta=email), b, other),
        served(listed("a", meta={"_codex_apps": {}}), b, other),
        served(listed("a", title="A"), b, other),
        served(a, b, listed("a", "c", "D")),
    ]
    assert all(one != same for one in others)


def routes(*tools: dict[str, Any]) -> dict[str, list[str]]:
    return {
        route.server: list(route.tools) for route in allocate_routes(build_inventory(list(tools)))
    }


@claim("apps:t-15")
@pytest.mark.parametrize(
    ("tools", "named"),
    [
        (
            [listed("a", "drive-one", "Drive!"), listed("a", "drive-two", "Drive?")],
            {"codex_apps__drive_99a0d4a4035d": ["a"], "codex_apps__drive_b469ba67a2f2": ["a"]},
        ),
        (
            [listed("GmailFoo-Bar"), listed("GmailFoo_Bar")],
            {"codex_apps__gmail": ["foo_bar_7362b7bd5a54", "foo_bar_8919b3893acb"]},
        ),
        ([listed("GmailSearchMessages")], {"codex_apps__gmail": ["searchmessages"]}),
        ([listed("connector_beta", "beta", "Beta")], {"codex_apps__beta": ["connector_beta"]}),
        (
            [listed("Google Drive: list", "g", "Google Drive")],
            {"codex_apps__google_drive": ["__list"]},
        ),
        ([listed("gmail", "gmail", "Gmail")], {"codex_apps__gmail": ["gmail"]}),
        ([listed("g1_send", "g1", "Gmail")], {"codex_apps__gmail": ["_send"]}),
        ([listed("日本", "j", "日本")], {"codex_apps__app": ["app"]}),
        # A name without a letter or digit is nothing that a tool's name could begin with.
        ([listed("append_row", "日", "日本")], {"codex_apps__app": ["append_row"]}),
    ],
)
def test_names_are_those_of_the_reference(
    tools: list[dict[str, Any]], named: dict[str, list[str]]
) -> None:
    assert routes(*tools) == named


@claim("apps:t-16")
def test_long_names_end_in_a_hash_at_64_bytes() -> None:
    fits, long = "n" * 52, "n" * 53
    assert list(routes(listed("a", "i", fits))) == [f"codex_apps__{fits}"]
    (server,) = routes(listed("a", "i", long))
    assert server == f"codex_apps__{'n' * 39}_{server[-12:]}"
    assert len(server) == MAX_NAME_BYTES
    ((tool,),) = routes(listed("t" * 65)).values()
    assert tool == f"{'t' * 51}_{tool[-12:]}"


@claim("apps:t-17")
def test_a_natural_name_is_never_taken_away() -> None:
    collide = [listed("a", "drive-one", "Drive!"), listed("a", "drive-two", "Drive?")]
    natural = listed("a", "a", "Drive_99a0d4a4035d")
    assert routes(*collide, natural) == {
        "codex_apps__drive_99a0d4a4035d": ["a"],
        "codex_apps__drive_d7c3a5cfced6": ["a"],
        "codex_apps__drive_b469ba67a2f2": ["a"],
    }
    (first, *_) = allocate_routes(build_inventory([*collide, natural]))
    assert first.connector.id == "a"


@claim("apps:t-14")
def test_the_first_real_tool_of_a_connector_renames_no_other() -> None:
    link = listed("l", "drive-two", "Drive?", meta={"_codex_apps": {"synthetic_link": True}})
    one = listed("a", "drive-one", "Drive!")
    before = routes(one, link)
    assert before == {"codex_apps__drive_99a0d4a4035d": ["a"]}
    assert before.items() <= routes(one, link, listed("a", "drive-two", "Drive?")).items()


@claim("apps:t-16", "apps:t-18")
@given(
    st.lists(
        st.tuples(
            st.text(min_size=1, max_size=80),
            st.sampled_from(["a", "b", "ä", "Ä" * 70]),
        ),
        max_size=12,
    )
)
def test_names_are_unique_short_and_plain_whatever_apps_are_called(
    tools: list[tuple[str, str]],
) -> None:
    named = {"a": "Mail!", "b": "Mail?", "ä": "Ä" * 70, "Ä" * 70: "m" * 64}
    raw = [listed(name, id_, named[id_]) for name, id_ in tools]
    inventory = build_inventory(raw)
    made = allocate_routes(inventory)
    servers = [route.server for route in made]
    assert len(set(servers)) == len(inventory.connectors)
    for route in made:
        assert tuple(route.tools.values()) == route.connector.tools
        for name in (route.server, *route.tools):
            assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
            assert 0 < len(name.encode()) <= MAX_NAME_BYTES
    shuffled = allocate_routes(build_inventory(list(reversed(raw))))
    assert {(r.server, r.connector.id) for r in shuffled} == {
        (r.server, r.connector.id) for r in made
    }


@pytest.mark.parametrize(
    ("title", "stripped"),
    [
        ("Gmail_Send", "Send"),
        ("Gmail_", "Gmail_"),
        ("gmail_Send", "gmail_Send"),
        ("Gmail Send", "Gmail Send"),
        (" ", None),
    ],
)
def test_a_title_loses_the_name_of_its_connector(title: str, stripped: str | None) -> None:
    (connector,) = build_inventory([listed("a", title=title)]).connectors
    assert stripped_title(connector, connector.tools[0]) == stripped


@pytest.mark.parametrize(
    ("name", "slug"),
    [("Google Drive", "google-drive"), ("--A__b--", "a--b"), ("日本", "app"), ("Ürün", "r-n")],
)
def test_a_slug_is_made_of_letters_digits_and_hyphens(name: str, slug: str) -> None:
    assert mention_slug(name) == slug
    assert install_url(name, "connector_1-a") == f"https://chatgpt.com/apps/{slug}/connector_1-a"


def test_an_id_cannot_lead_the_install_page_elsewhere() -> None:
    assert install_url("A", "x/../y?z#") == "https://chatgpt.com/apps/a/x%2F..%2Fy%3Fz%23"
