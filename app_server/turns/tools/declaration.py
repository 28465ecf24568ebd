"""How a function is declared to a model.

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
    """Declare a function that takes these arguments and no others.

    Without `required` none of them may be left out.
    """
    return {
        "type": "function",
        "name": name,
        "description": description,
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": dict(properties),
            "required": list(properties if required is None else required),
            "additionalProperties": False,
        },
    }
