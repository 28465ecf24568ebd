"""The tools of one turn: what the model is offered, and from a call it makes to what it reads.

Whatever happens to a call, the model gets an output and the turn goes on; only cancelling and a
disk that refuses come through.
Source: docs/tools.md; docs/mcp.md, "Calls".
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from app_server.extensions.hooks.definition import Event
from app_server.extensions.hooks.running import Outcome
from app_server.models.catalogue.models import ModelFeatures
from app_server.models.prompt.request import call_output, custom_output, message, search_output
from app_server.observability.telemetry.spans import span
from app_server.runtime.loader import LoadFailed
from app_server.turns.calls import BadCall, RequestedCall
from app_server.turns.hooks import HookedCall, ThreadHooks
from app_server.turns.recorder import TurnRecorder
from protocol.model import Json, JsonObject


class TurnTool(ABC):
    """One tool, or a family of tools that are called alike, in one turn."""

    functions: ClassVar[Collection[str]] = ()
    """Names of its functions that are in no namespace."""
    declared: ClassVar[Sequence[JsonObject]] = ()
    """Declarations that are the same in every request."""

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare what can be called now, as the Responses API takes tools; perhaps nothing."""
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


@dataclass(frozen=True, slots=True)
class ToolTable:
    """The tools of one turn; of two that offer the same call the first makes it."""

    tools: Sequence[TurnTool]
    hooks: ThreadHooks
    recorder: TurnRecorder

    def declarations(self, model: ModelFeatures) -> list[JsonObject]:
        """Declare what can be called now."""
        return [declared for tool in self.tools for declared in tool.declarations(model)]

    def notes(self) -> list[str]:
        """Return what the model is to know of the tools."""
        return [note for tool in self.tools for note in tool.notes()]

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
