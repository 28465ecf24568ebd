"""Declaration of a function and its arguments to a model.

Source: the public Responses API reference, "Function calling".
"""

from collections.abc import Mapping, Sequence

from protocol.model import JsonObject


def function_declaration(
    name: str,
    description: str,
    properties: Mapping[str, JsonObject],
    required: Sequence[str] | None = None,
) -> JsonObject:
    """Declare a function that takes these arguments; see `object_of`."""
    return {
        "type": "function",
        "name": name,
        "description": description,
        "strict": False,
        "parameters": object_of(properties, required),
    }


def object_of(
    properties: Mapping[str, JsonObject], required: Sequence[str] | None = None
) -> JsonObject:
    """Describe an object with these members and no others.

    Without `required` none of them may be left out. An empty one is not written: JSON Schema has
    none up to draft 4, which some providers check by.
    """
    shape: JsonObject = {
        "type": "object",
        "properties": dict(properties),
        "additionalProperties": False,
    }
    names = properties if required is None else required
    return {**shape, "required": list(names)} if names or required is None else shape


def text(description: str) -> JsonObject:
    """Describe a member that is a text."""
    return {"type": "string", "description": description}
