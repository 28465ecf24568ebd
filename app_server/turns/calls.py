"""Functions as they are declared to a model, and a call as it stands in a response.

Source: the public Responses API reference, "Function calling"; `function_call`, `custom_tool_call`,
`tool_search_call`, `local_shell_call`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from protocol.model import Json, JsonObject


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


CallKind: TypeAlias = Literal["function", "custom", "search", "shell"]
"""`shell`, the local shell of the Responses API, is not offered: its calls get an error."""

_KINDS: dict[str, CallKind] = {
    "function_call": "function",
    "custom_tool_call": "custom",
    "tool_search_call": "search",
    "local_shell_call": "shell",
}
"""Items of a response that are calls, by their `type`."""


class BadCall(Exception):
    """A call that cannot be made as the model wrote it. The text is what the model reads."""


class ToolArguments(BaseModel):
    """Arguments of a function; unknown ones are refused, so that the model learns of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Arguments = TypeVar("Arguments", bound=ToolArguments)


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """One call item of a response."""

    kind: CallKind
    call_id: str
    item_id: str | None
    namespace: str | None
    name: str
    input: Json
    """Of a function its arguments, text as the model wrote it, of a search perhaps an object; of a
    custom tool its text."""

    @classmethod
    def of(cls, item: JsonObject, spare_id: str) -> "RequestedCall":
        """Read an item; members that make no sense count as absent.

        `spare_id` is the id of a call that has none.
        """

        def text(key: str) -> str | None:
            value = item.get(key)
            return value if isinstance(value, str) else None

        kind = _KINDS.get(text("type") or "", "function")
        return cls(
            kind=kind,
            call_id=text("call_id") or spare_id,
            item_id=text("id"),
            namespace=text("namespace"),
            name="local_shell" if kind == "shell" else text("name") or "",
            input=item.get("input" if kind == "custom" else "arguments"),
        )

    @property
    def full_name(self) -> str:
        """The namespace and the name, as one word."""
        return f"{self.namespace or ''}{self.name}"

    def is_function(self, name: str) -> bool:
        """Whether this calls the function `name`, which is in no namespace."""
        return self.kind == "function" and self.namespace is None and self.name == name

    def arguments(self) -> Json:
        """Return the arguments of a function or a search; empty text is None.

        Raises:
            BadCall: they are no JSON.
        """
        if not isinstance(self.input, str):
            return self.input
        try:
            return from_json(self.input) if self.input.strip() else None
        except ValueError as exc:
            raise BadCall(f"err: {exc}") from exc

    def read(self, into: type[Arguments]) -> Arguments:
        """Return the arguments of a function as its type.

        Raises:
            BadCall: they do not fit; the text names the first argument that does not, and the rule.
        """
        try:
            arguments = self.arguments()
        except BadCall as exc:
            raise BadCall(f"failed to parse function arguments: {exc}") from exc
        if not isinstance(arguments, dict | None):
            # Pydantic would name the class of the arguments, which a model cannot know.
            raise BadCall("failed to parse function arguments: they must be a JSON object")
        try:
            return into.model_validate({} if arguments is None else arguments)
        except ValidationError as exc:
            problem = exc.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in problem["loc"])
            text = f"{place}: {problem['msg']}" if place else problem["msg"]
            raise BadCall(f"failed to parse function arguments: {text}") from exc
