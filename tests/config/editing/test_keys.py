"""Key paths as clients write them, and what an edit does to a document. No I/O."""

import tomllib
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from app_server.config.editing.keys import (
    MAX_DEPTH,
    BadEdit,
    Step,
    split_key_path,
    steps_of,
    take,
)
from app_server.config.editing.toml_edit import remove, set_value
from protocol.server.config import ConfigEdit


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("model", ("model",)),
        ("a.b-c.d e", ("a", "b-c", "d e")),
        ('projects."/a.b/c".trust_level', ("projects", "/a.b/c", "trust_level")),
        (r'projects."/a\"b\\c"', ("projects", '/a"b\\c')),
        ("'a.b'", ("'a", "b'")),
        (r"\a", ("\\a",)),
        ('"a"b', ("ab",)),
    ],
)
def test_a_key_path_is_split_as_codex_splits_it(text: str, path: tuple[str, ...]) -> None:
    assert split_key_path(text) == path


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "keyPath must not be empty"),
        (" ", "keyPath must not be empty"),
        ("a..b", "keyPath segments must not be empty"),
        (".a", "keyPath segments must not be empty"),
        ("a.", "keyPath segments must not be empty"),
        ('a.""', "keyPath segments must not be empty"),
        ('a."b', "unterminated quoted keyPath segment"),
        ('a."b\\', "unterminated quoted keyPath segment"),
        ('a"b.c', "invalid quoted keyPath segment"),
        (".".join("a" * (MAX_DEPTH + 1)), "keyPath has more than 32 segments"),
    ],
)
def test_a_key_path_that_makes_no_sense_is_named(text: str, problem: str) -> None:
    with pytest.raises(BadEdit) as caught:
        split_key_path(text)
    assert str(caught.value) == problem


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": [None]}, "invalid value: invalid type: null, expected any valid TOML value"),
        (1 << 63, "invalid value: an integer of TOML has 64 bits"),
        (-(1 << 63) - 1, "invalid value: an integer of TOML has 64 bits"),
        (float("inf"), "invalid value: a number must be finite"),
        (nested(MAX_DEPTH), "invalid value: nested deeper than 32"),
    ],
)
def test_a_value_that_toml_has_no_form_for_is_named(value: Any, problem: str) -> None:
    edit = ConfigEdit(key_path="a", value=value, merge_strategy="replace")
    with pytest.raises(BadEdit) as caught:
        list(steps_of({}, edit))
    assert str(caught.value) == problem


def steps(document: dict[str, Any], value: Any, strategy: Any) -> list[Step]:
    edit = ConfigEdit(key_path="t", value=value, merge_strategy=strategy)
    return list(steps_of(document, edit))


def test_an_upsert_leaves_what_it_does_not_name() -> None:
    present = {"t": {"a": {"b": 1, "c": 2}, "d": [1]}}
    assert steps(present, {"a": {"c": 3}, "d": [2], "e": {"f": 4}}, "upsert") == [
        Step(("t", "a", "c"), 3),
        Step(("t", "d"), [2]),
        Step(("t", "e"), {"f": 4}),
    ]
    assert steps(present, {"a": {"c": 3}}, "replace") == [Step(("t",), {"a": {"c": 3}})]
    assert steps(present, 5, "upsert") == [Step(("t",), 5)]
    assert steps({}, {"a": 1}, "upsert") == [Step(("t",), {"a": 1})]


SCATTERED = "[m.a]\nx = 1\n[z]\nq = 1 # q\n[m.a.env]\nY = 1\n[m.b]\nk = 1\n"
DOTTED = "[a]\nb.c.d = 1 # d\n[a.e]\nf = 1\n"


@pytest.mark.parametrize(
    ("text", "path", "value", "kept"),
    [
        (SCATTERED, ("m", "a"), {"n": 1}, "[z]\nq = 1 # q\n"),
        (SCATTERED, ("m", "a"), 5, "[z]\nq = 1 # q\n"),
        (SCATTERED, ("m", "a"), None, "[z]\nq = 1 # q\n"),
        (DOTTED, ("a", "b", "g"), {"n": {"m": [1]}}, "b.c.d = 1 # d\n"),
        (DOTTED, ("a", "b", "c", "d"), None, "[a.e]\nf = 1\n"),
        ("[t]\na.b = 1\nz = 2 # z\n", ("t", "a", "b"), None, "z = 2 # z\n"),
    ],
)
def test_forms_that_people_write_are_changed_too(
    text: str, path: tuple[str, ...], value: Any, kept: str
) -> None:
    wanted = tomllib.loads(text)
    take(wanted, Step(path, value))
    edited = remove(text, path) if value is None else set_value(text, path, value)
    assert without_empty(tomllib.loads(edited)) == without_empty(wanted)
    assert kept in edited


KEYS = st.sampled_from(["a", "b", "x.y", "ü", '"q"'])
VALUES = st.recursive(
    st.sampled_from([1, -7, "text", "two\nlines", 2.5, True, "2020-01-02"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4)


def without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: kept for key, each in value.items() if (kept := without_empty(each)) != {}}


@given(DOCUMENTS, st.lists(KEYS, min_size=1, max_size=3), st.none() | VALUES, st.booleans())
def test_any_step_on_any_text_does_what_it_does_to_the_document(
    document: dict[str, Any], path: list[str], value: Any, crlf: bool
) -> None:
    text = "# top\n" + tomlkit.dumps(document)
    if crlf and '"""' not in text:
        text = text.replace("\n", "\r\n")
    wanted = tomllib.loads(text)
    try:
        take(wanted, Step(tuple(path), value))
    except BadEdit:
        return
    edited = remove(text, path) if value is None else set_value(text, path, value)
    found = tomllib.loads(edited)
    if value is None:
        assert without_empty(found) == without_empty(wanted)
    else:
        assert found == wanted
    assert edited.startswith("# top")
