"""mcp: the names of tools that models see."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.mcp.tools.naming import MAX_LENGTH, RawName, assign_names
from tests.support.harness import (
    claim,
)


def visible(*tools: tuple[str, str]) -> dict[tuple[str, str], tuple[str, str]]:
    return {
        (raw.server, raw.tool): (name.namespace, name.name)
        for raw, name in assign_names(RawName(*tool) for tool in tools).items()
    }


@claim("mcp:names")
def test_names_are_those_of_the_reference() -> None:
    long = "z" * 200
    assert visible(
        ("raw", "echo"),
        ("weird:@/.name", "x"),
        ("mcp__pre", "x"),
        ("example-server", "a-b"),
        ("example-server", "a_b"),
        ("example-server", "a.b"),
        ("example_server", "x"),
        ("q", "with space"),
        ("q", "ünïcode"),
        ("q", ""),
        ("s", long),
    ) == {
        ("raw", "echo"): ("mcp__raw", "echo"),
        ("weird:@/.name", "x"): ("mcp__weird____name", "x"),
        ("mcp__pre", "x"): ("mcp__pre", "x"),
        ("example-server", "a-b"): ("mcp__example_server_8d5022e9c6b4", "a_b_c4c9458dce12"),
        ("example-server", "a_b"): ("mcp__example_server_8d5022e9c6b4", "a_b_6c648c10abe1"),
        ("example-server", "a.b"): ("mcp__example_server_8d5022e9c6b4", "a_b_d4370163c73e"),
        ("example_server", "x"): ("mcp__example_server_e0d48ec7b00c", "x"),
        ("q", "with space"): ("mcp__q", "with_space"),
        ("q", "ünïcode"): ("mcp__q", "_n_code"),
        ("q", ""): ("mcp__q", "_"),
        ("s", long): ("mcp__s", "z" * 107 + "_7b6dc878f2ad"),
    }


def test_a_namespace_that_leaves_no_room_is_cut() -> None:
    ((namespace, name),) = visible(("n" * 200, "tool")).values()
    assert (len(namespace), name[0], len(name)) == (113, "_", 13)


raw_names = st.tuples(st.text(max_size=130), st.text(max_size=130))


@given(st.lists(raw_names | st.tuples(st.sampled_from("ab"), st.sampled_from(["-", "_", "."]))))
def test_names_are_unique_fit_and_do_not_depend_on_the_order(tools: list[tuple[str, str]]) -> None:
    names = assign_names(RawName(*tool) for tool in tools)
    assert set(names) == {RawName(*tool) for tool in tools}
    assert len(set(names.values())) == len(names)
    for name in names.values():
        assert len(name.namespace) + len(name.name) + 2 <= MAX_LENGTH
        assert name.namespace.replace("_", "a").isalnum()
        assert name.name.replace("_", "a").isalnum()
    assert assign_names(RawName(*tool) for tool in reversed(tools)) == names


def test_a_name_that_is_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hashes of twelve digits never meet in practice, so they are made to."""
    seeds: list[str] = []

    def few_hashes(identity: str) -> str:
        seeds.append(identity)
        return f"_{len(identity.split(chr(0))) % 7:012}"

    monkeypatch.setattr("app_server.mcp.tools.naming._hash", few_hashes)
    names = visible(("s", "a-b"), ("s", "a_b"), ("s", "a.b"))
    assert len(set(names.values())) == 3
    assert any(seed.endswith("\0" + "1") for seed in seeds)
