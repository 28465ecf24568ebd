"""From wire types to JSON Schema definitions, in the form that the reference gives them.

Draft 7; nullable types as `["string", "null"]`; unions as `oneOf` without a discriminator; variants
inside their union, titled. `x-experimental` and `x-extension` mark members; `x-absent` is for the
TypeScript generator and goes no further.
"""

import importlib
import inspect
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from types import ModuleType
from typing import Any, TypeAlias

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import TypeAliasType

from protocol.contract.gate import models_of
from protocol.contract.methods import METHODS, NOTIFICATIONS, SERVER_REQUESTS
from protocol.contract.specs import module_of
from protocol.export.docs import Docs, read_docs
from protocol.model import EXPERIMENTAL, JsonObject, UnknownVariant, Variant, WireModel

REF = "#/definitions/"
FRAMES = "jsonrpc.frames"
"""The area of the types that belong to no method."""

Definitions: TypeAlias = Mapping[str, JsonObject]
"""Name to schema; references are `#/definitions/<name>`."""


class _Generator(GenerateJsonSchema):
    """pydantic's generator with the reference's habits."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        kind = inner.get("type")
        if isinstance(kind, str) and "enum" not in inner:
            return {**inner, "type": [kind, "null"]}
        return {"anyOf": [inner, {"type": "null"}]}

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        return {"type": "string", "enum": list(schema["expected"])}

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        return {"oneOf": [self.generate_inner(choice) for choice in schema["choices"].values()]}

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        generated = super().default_schema(schema)
        return {k: v for k, v in generated.items() if k != "default" or v is not None}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return {**super().float_schema(schema), "format": "double"}


@cache
def load_definitions() -> Definitions:
    """Describe every wire type by its name, with all its experimental members.

    Raises:
        ValueError: two types share a name.
    """
    types = load_types()
    _, generated = TypeAdapter.json_schemas(
        [(name, "validation", TypeAdapter(wire_type)) for name, wire_type in types.items()],
        ref_template=REF + "{model}",
        schema_generator=_Generator,
    )
    raw: dict[str, JsonObject] = generated["$defs"]
    if foreign := raw.keys() - types.keys() - {UnknownVariant.__name__}:
        raise ValueError(f"types without a name of their own: {sorted(foreign)}")
    docs = {module.__name__: read_docs(module) for module in _modules()}
    described = {name: _describe(raw[name], types[name], docs) for name in sorted(types)}
    variants = {name for name, wire_type in types.items() if is_variant(wire_type)}
    return {
        name: _put_in(definition, described, variants)
        for name, definition in described.items()
        if name not in variants
    }


def load_types() -> Mapping[str, Any]:
    """Import every area and name its wire types: models and named aliases.

    Raises:
        ValueError: two types share a name.
    """
    types: dict[str, Any] = {}
    for module in _modules():
        for name, value in vars(module).items():
            if not _is_wire_type(value) or value.__module__ != module.__name__:
                continue
            if types.setdefault(value.__name__, value) is not value or name != value.__name__:
                raise ValueError(f"{module.__name__}.{name}: the name is taken")
    return types


def is_variant(wire_type: Any) -> bool:
    """Whether a type's schema stands inside those that use it."""
    return isinstance(wire_type, type) and issubclass(wire_type, Variant)


def _modules() -> list[ModuleType]:
    areas = {spec.area for table in (METHODS, SERVER_REQUESTS) for spec in table.values()}
    areas |= {spec.area for spec in NOTIFICATIONS.values()} | {FRAMES}
    # What the areas share lives in areas of their own.
    areas |= {"threads.thread", "turns.policy", "turns.response_items", "turns.turn", "values"}
    return [importlib.import_module(module_of(area)) for area in sorted(areas)]


def _is_wire_type(value: Any) -> bool:
    if isinstance(value, TypeAliasType):
        return True
    return isinstance(value, type) and issubclass(value, WireModel)


def _describe(definition: JsonObject, wire_type: Any, docs: Mapping[str, Docs]) -> JsonObject:
    """Add what only the source says, and that tags are always there."""
    if isinstance(wire_type, TypeAliasType):
        return {
            "description": _alias_doc(wire_type, docs),
            **_describe_alias(definition, wire_type, docs),
        }
    described = {**definition, "description": inspect.cleandoc(wire_type.__doc__ or "")}
    if not is_variant(wire_type):
        del described["title"]
    elif wire_type.experimental_as is not None:
        described[EXPERIMENTAL] = True
    properties = described.get("properties")
    if properties:
        described["properties"] = {
            member: _describe_member(shape, _field_doc(wire_type, member, docs))
            for member, shape in properties.items()
        }
        tags = {member for member, shape in properties.items() if _is_tag(shape)}
        required = tags.union(definition.get("required", ()))
        described["required"] = [member for member in properties if member in required]
    return described


def _describe_alias(
    definition: JsonObject, alias: TypeAliasType, docs: Mapping[str, Docs]
) -> JsonObject:
    if "properties" not in definition:
        return definition
    # A union of one, which pydantic puts in place of its name.
    (variant,) = set(models_of(alias)) - {UnknownVariant}
    described = _describe(definition, variant, docs)
    del described["title"], described["description"]
    return described


def _alias_doc(alias: TypeAliasType, docs: Mapping[str, Docs]) -> str:
    text = docs[str(alias.__module__)].aliases.get(alias.__name__)
    if text is None:
        raise ValueError(f"{alias.__name__} has no docstring")
    return text


def _describe_member(shape: JsonObject, text: str | None) -> JsonObject:
    described = {**({"description": text} if text else {}), **shape}
    if _is_tag(shape):
        del described["default"]
    if "$ref" in described and len(described) > 1:
        # In draft 7 whatever stands beside a $ref is ignored.
        described["allOf"] = [{"$ref": described.pop("$ref")}]
    return described


def _field_doc(wire_type: type[WireModel], member: str, docs: Mapping[str, Docs]) -> str | None:
    """Find the prose under a member, here or where it was inherited from."""
    names = {field.alias or name: name for name, field in wire_type.model_fields.items()}
    for owner in wire_type.__mro__:
        module = docs.get(owner.__module__)
        if module is not None and (owner.__name__, names[member]) in module.fields:
            return module.fields[owner.__name__, names[member]]
    return None


def _is_tag(shape: JsonObject) -> bool:
    return len(shape.get("enum", ())) == 1 and shape.get("default") == shape["enum"][0]


def _put_in(value: Any, described: Definitions, variants: Collection[str]) -> Any:
    """Replace references to variants by what they stand for."""
    if isinstance(value, list):
        return [_put_in(element, described, variants) for element in value]
    if not isinstance(value, dict):
        return value
    target = str(value.get("$ref", "")).removeprefix(REF)
    if target in variants:
        return _put_in(described[target], described, variants)
    return {key: _put_in(element, described, variants) for key, element in value.items()}


def stable_part(definitions: Definitions) -> Definitions:
    """Leave out every member and alternative that needs the experimental opt-in."""
    return {name: _stable(definition) for name, definition in definitions.items()}


def _stable(value: Any) -> Any:
    if isinstance(value, list):
        return [_stable(element) for element in value if not _is_experimental(element)]
    if not isinstance(value, dict):
        return value
    kept = {key: _stable(part) for key, part in value.items() if not _is_experimental(part)}
    gone = value.get("properties", {}).keys() - kept.get("properties", {}).keys()
    if gone and "required" in kept:
        kept["required"] = [member for member in kept["required"] if member not in gone]
    return kept


def _is_experimental(value: Any) -> bool:
    return isinstance(value, dict) and value.get(EXPERIMENTAL) is True


def references(value: Any) -> set[str]:
    """Name the definitions that a schema refers to directly."""
    if isinstance(value, list):
        return set().union(*map(references, value))
    if not isinstance(value, dict):
        return set()
    found = set().union(*map(references, value.values()))
    if isinstance(value.get("$ref"), str):
        found.add(value["$ref"].removeprefix(REF))
    return found


def reachable(definitions: Definitions, roots: Iterable[str]) -> set[str]:
    """Name the roots and everything that they refer to, directly or not."""
    found: set[str] = set()
    left = list(roots)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += references(definitions[name])
    return found
