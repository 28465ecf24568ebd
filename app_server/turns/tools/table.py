"""The tools of one turn: what the model is offered, and from a call it makes to what it reads.

Whatever happens to a call, the model gets an output and the turn goes on; only cancelling and a
disk that refuses come through.
Source: docs/tools.md; docs/mcp.md, "Calls".
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from app_server.models.catalogue.features import ModelFeatures
from app_server.models.prompt.request import call_output, custom_output, search_output
from app_server.observability.telemetry.spans import span
from app_server.runtime.loader import LoadFailed
from app_server.turns.tools.call import BadCall, RequestedCall
from protocol.model import Json, JsonObject


class TurnTool(Protocol):
    """One tool, or a family of tools that are called alike, in one turn."""

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare what can be called now, as the Responses API takes tools; perhaps nothing."""

    def offers(self, call: RequestedCall) -> bool:
        """Whether a call is for this tool; asked of calls of tools that are not declared too."""

    def may_overlap(self, call: RequestedCall) -> bool:
        """Whether a call that it offers may run beside others."""

    async def run(self, call: RequestedCall) -> Json:
        """Make a call that it offers.

        Returns what the model reads: text or content items; of a search the tools that were found.

        Raises:
            BadCall: it cannot be made as the model wrote it.
            OSError: the thread's log cannot be written.
        """


Around: TypeAlias = Callable[
    [RequestedCall, Callable[[RequestedCall], Awaitable[Json]]], Awaitable[Json]
]


@dataclass(frozen=True, slots=True)
class ToolTable:
    """The tools of one turn; of two that offer the same call the first makes it."""

    tools: Sequence[TurnTool]
    features: Callable[[], ModelFeatures]
    """Those of the model in force."""
    notes: Callable[[], list[str]]
    """Are sent before the history."""
    around: Around | None = None
    """Makes each call of a tool, with what it is given."""

    def declarations(self) -> list[JsonObject]:
        """Declare what can be called now."""
        model = self.features()
        return [declared for tool in self.tools for declared in tool.declarations(model)]

    def may_overlap(self, call: RequestedCall) -> bool:
        """Whether the call may run beside others; one that no tool offers does nothing."""
        tool = self._find(call)
        return tool is None or tool.may_overlap(call)

    async def answer(self, call: RequestedCall) -> JsonObject:
        """Make one call and return the item that answers it in the history.

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
                    around = self.around
                    output = await (tool.run(call) if around is None else around(call, tool.run))
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

    def _find(self, call: RequestedCall) -> TurnTool | None:
        return next((tool for tool in self.tools if tool.offers(call)), None)
