"""The tools of one turn: how they are declared, and from a call in a response to its output.

Whatever happens to a call, the model gets an output and the turn goes on; only cancelling and a
disk that refuses come through.
Source: docs/tools.md; docs/mcp.md, "Calls"; the public Responses API reference, "Function calling":
`function_call`, `custom_tool_call`, `tool_search_call`, `local_shell_call`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from app_server.extensions.hooks.definition import Event
from app_server.extensions.hooks.running import Outcome
from app_server.models.catalogue.models import ModelFeatures
from app_server.models.prompt.request import call_output, custom_output, message, search_output
from app_server.observability.telemetry.spans import span
from app_server.runtime.loader import LoadFailed
from app_server.turns.hooks import ThreadHooks
from app_server.turns.recorder import TurnRecorder
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


SHELL = "Bash"
"""Name of `exec_command` for hooks."""

PATCH = "apply_patch"

OUTPUT = "\nOutput:\n"
"""Separator before a command's output in the text for the model."""


@dataclass(frozen=True, slots=True)
class HookedCall:
    """A call of a tool, as hooks are given it."""

    name: str
    input: Mapping[str, Any]

    @classmethod
    def of(cls, call: RequestedCall) -> "HookedCall":
        """Return a call as hooks are given it; arguments that are no JSON count as none."""
        if call.kind == "custom":
            return cls(call.full_name, {"command": call.input})
        try:
            arguments = call.arguments()
        except BadCall:
            arguments = None
        given = arguments if isinstance(arguments, dict) else {}
        if call.is_function("exec_command"):
            return cls(SHELL, {"command": given.get("cmd")})
        if call.is_function(PATCH):
            return cls(PATCH, {"command": given.get("input")})
        name = call.name if call.namespace is None else f"{call.namespace}__{call.name}"
        return cls(name, given)

    def changed(self, call: RequestedCall, wanted: Mapping[str, Any]) -> RequestedCall:
        """Return the call with what a hook wants in the place of its arguments."""
        if call.kind == "custom":
            return replace(call, input=wanted.get("command"))
        if self.name in (SHELL, PATCH):
            arguments = call.arguments()
            name = "cmd" if self.name == SHELL else "input"
            given = arguments if isinstance(arguments, dict) else {}
            return replace(call, input=json.dumps({**given, name: wanted.get("command")}))
        return replace(call, input=json.dumps(dict(wanted)))

    def refusal(self, reason: str) -> str:
        """Return what the model reads of a call that a hook refused."""
        if self.name == SHELL:
            return f"Command blocked by PreToolUse hook: {reason}. Command: {self.input['command']}"
        return f"Tool call blocked by PreToolUse hook: {reason}. Tool: {self.name}"

    def response(self, output: Json) -> Json:
        """Return what came of the call as hooks are given it: of a command what it printed."""
        if self.name == SHELL and isinstance(output, str) and OUTPUT in output:
            return output.split(OUTPUT, 1)[1]
        return output


class TurnTool(ABC):
    """One tool, or a family of tools that are called alike, in one turn."""

    functions: ClassVar[Collection[str]] = ()
    """Names of its functions that are in no namespace."""
    declared: ClassVar[Sequence[JsonObject]] = ()
    """Declarations that are the same in every request."""

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare what can be called now, as the Responses API takes tools; perhaps nothing.

        To follow from the model and from what `ThreadContext.tool_basis` has, as notes do: a tool
        is asked again when these have changed.
        """
        return self.declared

    def notes(self) -> Sequence[str]:
        """Return what the model is to know of its tools; it is sent before the history."""
        return ()

    def offers(self, call: RequestedCall) -> bool:
        """Whether a call is for this tool; asked of calls of tools that are not declared too."""
        is_function = call.kind == "function" and call.namespace is None
        return is_function and call.name in self.functions

    def may_overlap(self, call: RequestedCall) -> bool:
        """Whether a call that it offers may run beside others."""
        return False

    @abstractmethod
    async def run(self, call: RequestedCall) -> Json:
        """Make a call that it offers.

        Returns what the model reads: text or content items; of a search the tools that were found.

        Raises:
            BadCall: it cannot be made as the model wrote it.
            OSError: the thread's log cannot be written.
        """


class ToolOffer(NamedTuple):
    """What a request to a model says of the tools that it may call."""

    declarations: Sequence[JsonObject] = ()
    notes: Sequence[str] = ()


@dataclass(slots=True)
class KeptOffer:
    """The last offer of a thread's tools, and what it followed from."""

    basis: object = None
    offer: ToolOffer = field(default_factory=ToolOffer)


@dataclass(frozen=True, slots=True)
class ToolTable:
    """The tools of one turn; of two that offer the same call the first makes it."""

    tools: Sequence[TurnTool]
    hooks: ThreadHooks
    recorder: TurnRecorder
    kept: KeptOffer = field(default_factory=KeptOffer)
    """Of tables with the same tools, those of a thread's turns."""

    def offer(self, model: ModelFeatures, basis: object) -> ToolOffer:
        """Declare what can be called now; the tools are asked when model or basis have changed.

        `basis` is what they go by besides the model; see `ThreadContext.tool_basis`.
        """
        kept = self.kept
        if kept.basis != (model, basis):
            kept.offer = ToolOffer(
                [declared for tool in self.tools for declared in tool.declarations(model)],
                [note for tool in self.tools for note in tool.notes()],
            )
            kept.basis = model, basis
        return kept.offer

    def may_overlap(self, call: RequestedCall) -> bool:
        """Whether the call may run beside others; one that no tool offers does nothing."""
        tool = self._find(call)
        return tool is None or tool.may_overlap(call)

    async def make_call(self, call: RequestedCall) -> JsonObject:
        """Make one call and return the item of the history with its output.

        Raises:
            OSError: the thread's log cannot be written.
        """
        output: Json
        tool = self._find(call)
        if tool is None:
            output = f"unsupported call: {call.full_name}"
        else:
            try:
                with span(
                    "tool",
                    f"execute_tool {call.full_name}",
                    gen_ai__operation__name="execute_tool",
                    gen_ai__tool__name=call.full_name,
                    gen_ai__tool__call__id=call.call_id,
                ):
                    output = await self._run(tool, call)
            except BadCall as exc:
                output = str(exc)
            except LoadFailed as exc:
                output = f"{call.full_name} failed: {exc}"
        match call.kind:
            case "function" | "shell":
                return call_output(call.call_id, output)
            case "custom":
                return custom_output(call.call_id, output)
            case "search":
                return search_output(call.call_id, output if isinstance(output, list) else [])

    async def _run(self, tool: TurnTool, call: RequestedCall) -> Json:
        """Run a tool between the user's hooks, which may refuse the call, or change it."""
        if call.kind == "search":
            return await tool.run(call)
        shown = HookedCall.of(call)
        before = await self._fire("PreToolUse", shown, call.call_id)
        if before.blocked is not None:
            return shown.refusal(before.blocked)
        if before.changed_input is not None:
            call = shown.changed(call, before.changed_input)
            shown = HookedCall.of(call)
        # What the model wants is in the log: a server that was replaced begins none of it.
        await self.recorder.log.require_owned()
        output = await tool.run(call)
        response = shown.response(output)
        after = await self._fire("PostToolUse", shown, call.call_id, tool_response=response)
        return output if after.blocked is None else after.blocked

    async def _fire(
        self, event: Event, shown: HookedCall, call_id: str, **members: Json
    ) -> Outcome:
        """Run the hooks of an event, and write what they say for the model."""
        outcome = await self.hooks.fire(
            event,
            self.recorder.turn_id,
            shown.name,
            call_id,
            tool_name=shown.name,
            tool_input=shown.input,
            **members,
            tool_use_id=call_id,
        )
        if outcome.context:
            texts = (message("developer", text) for text in outcome.context)
            await self.recorder.remember(*texts)
        return outcome

    def _find(self, call: RequestedCall) -> TurnTool | None:
        for tool in self.tools:
            if tool.offers(call):
                return tool
        return None
