"""The contract: types against the reference, generated files, the gate over every member."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_core import from_json

from app_server.cli import serve as cli
from protocol.contract.gate import is_experimental_variant, used_experimental
from protocol.contract.methods import METHODS, NOTIFICATIONS, SERVER_REQUESTS
from protocol.contract.specs import MethodSpec, Takes, type_adapter
from protocol.contract.unserved import UNSERVED
from protocol.export.contract import Contract, load_contract
from protocol.export.definitions import REF, load_definitions, references
from protocol.export.json_schema import BUNDLE, V2_BUNDLE, render_json_schema
from protocol.export.tree import differences, render_bundles
from protocol.export.typescript import render_typescript
from protocol.jsonrpc.envelope import render_result
from protocol.model import EXPERIMENTAL, EXTENSION
from protocol.threads.thread import ThreadStatus
from protocol.turns.items import ItemStartedNotification
from tests.support.harness import claim
from tests.support.paths import RECORDINGS
from tests.support.wire.schema_check import SCHEMA, check_value, load_bundle
from tests.support.wire.wire_shapes import shape
from tests.support.wire.wire_values import Values

REFERENCE = RECORDINGS / "reference_wire.txt"

DELIBERATE = {
    "AppsConfig": "keeps the settings of single apps, which the reference has beside `_default`",
}
"""Shared types that differ, each with its reason."""

VARIANTS = {"stable": False, "experimental": True}

TABLES: Mapping[str, Mapping[str, MethodSpec]] = {"request": METHODS, "question": SERVER_REQUESTS}

few = settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))


@dataclass
class Reference:
    """What the recording says."""

    messages: dict[tuple[str, str], str] = field(default_factory=dict)
    """Kind and method to mark and types."""
    types: dict[str, str] = field(default_factory=dict)
    """Name to shape."""
    files: dict[str, str] = field(default_factory=dict)
    """Name to the path of its JSON Schema file."""


@pytest.fixture(scope="module", autouse=True)
def _caches() -> Iterator[None]:
    """Free 16 MB behind these tests: each process of a run has some of them."""
    yield
    for function in (reference, values, contract, load_definitions):
        function.cache_clear()


@cache
def reference() -> Reference:
    recorded = Reference()
    for line in REFERENCE.read_text().splitlines():
        head, _, rest = line.partition(" ")
        if match := re.fullmatch(r"(request|question|notification)(!?)", head):
            method, _, types = rest.partition(" ")
            recorded.messages[match[1], method] = match[2] + types
        elif head not in ("", "#"):
            folder, _, name = head.rpartition("/")
            recorded.types[name] = rest
            if folder:
                recorded.files[name] = f"{head}.json".removeprefix("./")
    return recorded


@cache
def values() -> Values:
    return Values(contract("experimental").definitions)


@cache
def contract(variant: str) -> Contract:
    return load_contract(experimental=VARIANTS[variant])


# Against the reference.


def test_every_shared_type_has_the_shape_that_the_reference_gives_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours = contract("experimental").definitions
    shared = reference().types.keys() & ours.keys()
    different = {name for name in shared if shape(ours[name]) != reference().types[name]}
    assert different == DELIBERATE.keys()
    assert reference().types.keys() <= ours.keys()
    with capsys.disabled():
        counts = (
            f"{len(shared) - len(different)} types equal, {len(different)} different on purpose"
        )
        print(f" [{counts}]", end="")  # noqa: T201


@pytest.mark.parametrize("kind", ["request", "question", "notification"])
def test_every_shared_message_has_the_types_and_the_mark_of_the_reference(kind: str) -> None:
    ours = dict(_our_messages(kind))
    recorded = {method: said for (k, method), said in reference().messages.items() if k == kind}
    assert {m: said for m, said in ours.items() if m in recorded} == {
        m: said for m, said in recorded.items() if m in ours
    }
    own = {method for method, spec in _table(kind).items() if spec.extension}
    assert ours.keys() - recorded.keys() == own
    if kind == "request":
        assert recorded.keys() - ours.keys() == UNSERVED.keys()
    if kind == "question":
        assert recorded.keys() == ours.keys()


def _table(kind: str) -> Mapping[str, Any]:
    return NOTIFICATIONS if kind == "notification" else TABLES[kind]


def _our_messages(kind: str) -> Iterator[tuple[str, str]]:
    for method, spec in _table(kind).items():
        mark = "!" if spec.experimental else ""
        if kind == "notification":
            yield method, mark + spec.params_name
            continue
        params = spec.params_name or "null"
        if spec.takes is Takes.OBJECT_OR_NULL:
            params += "|null"
        yield method, f"{mark}{params} -> {spec.result_name}"


def test_files_lie_where_the_reference_puts_them() -> None:
    files = render_json_schema(contract("experimental"))
    roots = contract("experimental").roots
    assert {path for name, path in reference().files.items() if name in roots} <= files.keys()
    assert {name for name in reference().files if name not in roots} == set()
    assert {BUNDLE, V2_BUNDLE, "v2/TurnStartParams.json"} <= files.keys()


# What is generated.


def test_the_committed_schema_is_what_the_types_say() -> None:
    assert list(differences(SCHEMA, render_bundles())) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_bundles_are_json_schema_and_refer_to_nothing_outside(variant: str) -> None:
    for path, text in render_json_schema(contract(variant)).items():
        document = from_json(text)
        jsonschema_rs.meta.validate(document)
        defined = document.get("definitions", {})
        names = {*defined, *(f"v2/{name}" for name in defined.get("v2", {}))}
        assert references(document) <= names, path
        assert not _marks(document, "x-absent"), path


def _marks(value: Any, mark: str) -> bool:
    if isinstance(value, list):
        return any(_marks(part, mark) for part in value)
    if not isinstance(value, dict):
        return False
    return value.get(mark) is True or any(_marks(part, mark) for part in value.values())


@claim("schema:stable")
def test_the_stable_files_hold_no_experimental_member() -> None:
    for text in render_json_schema(contract("stable")).values():
        assert EXPERIMENTAL not in text
    everything = contract("experimental").definitions
    trials = {name for name, definition in everything.items() if _marks(definition, EXPERIMENTAL)}
    assert len(trials) > 10
    for text in render_typescript(contract("stable")).values():
        assert not re.search("mcpMetaByServer|signal/|granular|thread/search", text)
    assert EXTENSION not in everything["TurnStartParams"]["properties"]["input"]
    assert everything["TurnStartParams"]["properties"]["mcpMetaByServer"][EXTENSION] is True


def test_prose_of_types_members_and_aliases_becomes_descriptions() -> None:
    definitions = contract("stable").definitions
    params = definitions["TurnSteerParams"]
    assert params["description"] == "Give the running turn more to think about."
    assert params["properties"]["expectedTurnId"] == {
        "description": "The turn that the caller believes is running.",
        "type": "string",
    }
    assert all(definition.get("description") for definition in definitions.values())


def test_commands_write_the_files_and_check_finds_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "json"
    assert cli.main(["-c", "a=1", "app-server", "generate-json-schema", "--out", str(out)]) == 0
    stable = render_json_schema(contract("stable"))
    assert {p.relative_to(out).as_posix() for p in out.rglob("*.json")} == stable.keys()
    assert cli.main(["generate-ts", "--experimental", "-o", str(tmp_path / "ts")]) == 0
    text = (tmp_path / "ts/v2/TurnSteerParams.ts").read_text()
    assert "mcpMetaByServer?: { [key: string]: { [key: string]: JsonValue } } | null;" in text

    schema = tmp_path / "schema"
    assert cli.main(["schema", "--out", str(schema)]) == 0
    assert cli.main(["schema", "--check", "--out", str(schema)]) == 0
    (schema / "stable" / BUNDLE).write_text("{}")
    (schema / "stable" / "old.ts").write_text("")
    (schema / "experimental" / V2_BUNDLE).unlink()
    capsys.readouterr()
    assert cli.main(["schema", "--check", "--out", str(schema)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{schema}: missing: experimental/{V2_BUNDLE}",
        f"{schema}: differs: stable/{BUNDLE}",
        f"{schema}: not generated: stable/old.ts",
        f"{schema} is not what the types say; run: app-server schema",
    ]
    assert cli.main(["schema", "--out", str(schema)]) == 0
    assert cli.main(["schema", "--check", "--out", str(schema)]) == 0
    (tmp_path / "file").write_text("")
    assert cli.main(["generate-ts", "--out", str(tmp_path / "file" / "x")]) == 1


# Types and schema say the same.


def _params() -> list[Any]:
    return [
        pytest.param(method, spec, id=method)
        for method, spec in METHODS.items()
        if spec.params_name is not None
    ]


@pytest.mark.parametrize(("method", "spec"), _params())
@few
@given(data=st.data())
def test_params_survive_parsing_and_rendering(
    method: str, spec: MethodSpec, data: st.DataObject
) -> None:
    assert spec.params_name is not None
    value = _without_name(spec, data.draw(values().of(spec.params_name)))
    adapter = type_adapter(spec.params)
    rendered = adapter.dump_json(adapter.validate_python(value), exclude_unset=True)
    assert from_json(rendered) == value
    again = adapter.dump_json(adapter.validate_json(rendered), exclude_unset=True)
    assert again == rendered


@claim("experimental:every-member")
@pytest.mark.parametrize(("method", "spec"), _params())
@few
@given(data=st.data())
def test_the_gate_refuses_exactly_what_the_stable_schema_does_not_have(
    method: str, spec: MethodSpec, data: st.DataObject
) -> None:
    assert spec.params_name is not None
    definitions = contract("experimental").definitions
    value = _without_name(spec, data.draw(values().of(spec.params_name)))
    used = used_experimental(method, type_adapter(spec.params).validate_python(value))
    marked = set(_experimental_members(value, definitions[spec.params_name], definitions))
    if used is None:
        assert marked == set()
    else:
        assert used.rpartition(".")[2] in marked


def _without_name(spec: MethodSpec, value: Any) -> Any:
    """Take out what the dispatcher takes before the params get their type."""
    is_named = spec.takes_operation and spec.stem != "McpServerToolCall"
    return {k: v for k, v in value.items() if k != "_meta"} if is_named else value


def _experimental_members(value: Any, schema: Any, definitions: Mapping[str, Any]) -> Iterator[str]:
    """Name the marked members and alternatives that a value uses."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix(REF)]
    for part in [*schema.get("allOf", ()), *schema.get("oneOf", ()), *schema.get("anyOf", ())]:
        if _fits(value, part):
            if part.get(EXPERIMENTAL):
                yield from part["required"]
            yield from _experimental_members(value, part, definitions)
    if isinstance(value, list) and "items" in schema:
        for element in value:
            yield from _experimental_members(element, schema["items"], definitions)
    if isinstance(value, dict):
        for name, element in value.items():
            part = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if not isinstance(part, dict):
                continue
            if part.get(EXPERIMENTAL):
                if element is not None and element is not False:
                    yield name
            else:
                yield from _experimental_members(element, part, definitions)


def _fits(value: Any, schema: Any) -> bool:
    """Whether an alternative is meant, as far as members and tags tell."""
    if "properties" not in schema:
        return True
    tags = {name: part["enum"] for name, part in schema["properties"].items() if "enum" in part}
    return isinstance(value, dict) and all(
        name in value and value[name] in tags.get(name, [value[name]])
        for name in schema.get("required", ())
    )


def _sent() -> list[Any]:
    results = [(m, spec.result_name, spec.result) for m, spec in METHODS.items()]
    news = [(m, spec.params_name, spec.params) for m, spec in NOTIFICATIONS.items()]
    asked = [(m, spec.params_name, spec.params) for m, spec in SERVER_REQUESTS.items()]
    # The committed bundle, which is read in no time: this runs wherever tests are collected.
    definitions = load_bundle("stable")["definitions"]
    return [
        pytest.param(name, wire_type, id=method)
        for method, name, wire_type in (*results, *news, *asked)
        if name in definitions or name in definitions["v2"]
    ]


@claim("experimental:shown")
@pytest.mark.parametrize(("name", "wire_type"), _sent())
@few
@given(data=st.data())
def test_what_is_shown_without_the_opt_in_is_what_the_stable_schema_says(
    name: str, wire_type: Any, data: st.DataObject
) -> None:
    value = data.draw(values().of(name))
    message = type_adapter(wire_type).validate_python(value)
    # The hub does not put such a question to this client at all.
    assume(not is_experimental_variant(message))
    shown = from_json(render_result(1, message, experimental=False))["result"]
    check_value("stable", name, shown)


def test_a_variant_that_needs_one_of_several_members_says_which() -> None:
    with pytest.raises(ValidationError, match="needs one of url, fileId"):
        METHODS["turn/start"].parse_params({"threadId": "t", "input": [{"type": "image"}]})


# Newer peers, and who else imports the types.


@claim("values:open")
def test_words_and_alternatives_of_newer_servers_are_kept() -> None:
    item = {"type": "dream", "id": "i", "depth": {"levels": 3}}
    news = {"item": item, "threadId": "t", "turnId": "u", "startedAtMs": 1}
    parsed = ItemStartedNotification.model_validate(news)
    assert from_json(parsed.model_dump_json()) == news
    status = {"type": "active", "activeFlags": ["waitingOnTheMoon"]}
    adapter = type_adapter(ThreadStatus)
    assert from_json(adapter.dump_json(adapter.validate_python(status))) == status


def test_the_types_need_pydantic_and_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "from protocol.export.definitions import load_types; load_types()\n"
        "from protocol.jsonrpc.envelope import parse_message\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, cwd=SCHEMA.parent
    )
    pydantic = {"pydantic", "pydantic_core", "annotated_types", "typing_extensions"}
    pydantic |= {"typing_inspection", "typing_inspect"}
    foreign = set(ran.stdout.split()) - pydantic - sys.stdlib_module_names - {"protocol"}
    assert {name for name in foreign if not name.startswith("_sysconfigdata")} == set()
