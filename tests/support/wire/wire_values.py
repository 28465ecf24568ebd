"""Values that a schema allows, for hypothesis: an account of the wire that is not pydantic's."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from protocol.export.definitions import REF

RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "uint": (0, 2**64 - 1),
}
TEXT = st.text(max_size=3)
ANYTHING = st.none() | st.booleans() | st.integers(-9, 9) | TEXT | st.just({"k": [1, None]})


class Values:
    """Strategies for the types of one variant of the contract."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._known: dict[str, st.SearchStrategy[Any]] = {}

    def of(self, name: str) -> st.SearchStrategy[Any]:
        """Values of a type."""
        if name not in self._known:
            self._known[name] = self._schema(self._definitions[name])
        return self._known[name]

    def _schema(self, schema: Any) -> st.SearchStrategy[Any]:
        if "$ref" in schema:
            return self.of(schema["$ref"].removeprefix(REF))
        if "allOf" in schema:
            return self._schema(schema["allOf"][0])
        parts = schema.get("oneOf") or schema.get("anyOf")
        if parts:
            inner = st.one_of(*map(self._schema, parts))
            if "properties" not in schema:
                return inner
            return st.tuples(self._object(schema), inner).map(lambda pair: pair[0] | pair[1])
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        kinds = schema.get("type", [])
        if isinstance(kinds, list) and kinds:
            return st.one_of(*(self._schema({**schema, "type": kind}) for kind in kinds))
        return self._single(kinds, schema)

    def _single(self, kind: Any, schema: Any) -> st.SearchStrategy[Any]:
        match kind:
            case "null":
                return st.none()
            case "boolean":
                return st.booleans()
            case "string":
                return st.text(min_size=schema.get("minLength", 0), max_size=3)
            case "integer":
                low, high = RANGES[schema["format"]]
                return st.integers(max(low, schema.get("minimum", low)), high)
            case "number":
                return st.floats(allow_nan=False, allow_infinity=False)
            case "array":
                return st.lists(self._schema(schema["items"]), max_size=2)
            case "object":
                return self._object(schema)
        return ANYTHING

    def _object(self, schema: Any) -> st.SearchStrategy[Any]:
        members = schema.get("properties", {})
        extra = schema.get("additionalProperties", "properties" not in schema)
        if not members and extra is not False:
            return st.dictionaries(TEXT, self._schema({} if extra is True else extra), max_size=2)
        required = set(schema.get("required", ()))
        return st.fixed_dictionaries(
            {name: self._schema(part) for name, part in members.items() if name in required},
            optional={
                name: self._schema(part) for name, part in members.items() if name not in required
            },
        )
