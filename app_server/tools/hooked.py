"""Hooks around calls of tools: before one runs, and after it.

Source: docs/hooks.md, "Events".
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from app_server.extensions.hooks.definition import Event
from app_server.extensions.hooks.outcome import Outcome
from app_server.models.prompt.request import message
from app_server.turns.hooks import ThreadHooks
from app_server.turns.tools.call import BadCall, RequestedCall
from app_server.turns.tools.turn import TurnContext
from protocol.model import Json

RunCall: TypeAlias = Callable[[RequestedCall], Awaitable[Json]]

SHELL = "Bash"
"""What hooks know `exec_command` as."""

PATCH = "apply_patch"

OUTPUT = "\nOutput:\n"
"""What stands before the output of a command in what the model reads."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """A call, as hooks are given it."""

    tool: str
    input: Mapping[str, Any]


class HookedCalls:
    """Runs the hooks of a thread around the calls of one of its turns."""

    def __init__(self, hooks: ThreadHooks, turn: TurnContext) -> None:
        self._hooks = hooks
        self._turn = turn

    async def run(self, call: RequestedCall, run: RunCall) -> Json:
        """Make a call with `run`, unless a hook refuses it; a hook may change what comes of it.

        Raises:
            BadCall, OSError: as `run` does; OSError also if the log cannot be written.
        """
        if call.kind == "search":
            return await run(call)
        facts = _facts_of(call)
        before = await self._fire("PreToolUse", call, facts)
        if before.blocked is not None:
            return _refusal(facts, before.blocked)
        if before.changed_input is not None:
            call = _changed(call, facts, before.changed_input)
            facts = _facts_of(call)
        output = await run(call)
        after = await self._fire("PostToolUse", call, facts, tool_response=_response(facts, output))
        return output if after.blocked is None else after.blocked

    async def _fire(
        self, event: Event, call: RequestedCall, facts: _Facts, **more: Json
    ) -> Outcome:
        """Run the hooks of an event, and tell the model what they say."""
        outcome = await self._hooks.fire(
            event,
            self._turn.turn_id,
            facts.tool,
            call.call_id,
            tool_name=facts.tool,
            tool_input=facts.input,
            **more,
            tool_use_id=call.call_id,
        )
        if outcome.context:
            texts = (message("developer", text) for text in outcome.context)
            await self._turn.recorder.remember(*texts)
        return outcome


def _facts_of(call: RequestedCall) -> _Facts:
    if call.kind == "custom":
        return _Facts(call.full_name, {"command": call.input})
    try:
        arguments = call.arguments()
    except BadCall:
        arguments = None
    given = arguments if isinstance(arguments, dict) else {}
    if call.is_function("exec_command"):
        return _Facts(SHELL, {"command": given.get("cmd")})
    if call.is_function(PATCH):
        return _Facts(PATCH, {"command": given.get("input")})
    name = call.name if call.namespace is None else f"{call.namespace}__{call.name}"
    return _Facts(name, given)


def _changed(call: RequestedCall, facts: _Facts, wanted: Mapping[str, Any]) -> RequestedCall:
    """Return the call with what a hook wants in the place of its arguments."""
    if call.kind == "custom":
        return replace(call, input=wanted.get("command"))
    if facts.tool in (SHELL, PATCH):
        arguments = call.arguments()
        name = "cmd" if facts.tool == SHELL else "input"
        given = arguments if isinstance(arguments, dict) else {}
        return replace(call, input=json.dumps({**given, name: wanted.get("command")}))
    return replace(call, input=json.dumps(dict(wanted)))


def _refusal(facts: _Facts, reason: str) -> str:
    if facts.tool == SHELL:
        return f"Command blocked by PreToolUse hook: {reason}. Command: {facts.input['command']}"
    return f"Tool call blocked by PreToolUse hook: {reason}. Tool: {facts.tool}"


def _response(facts: _Facts, output: Json) -> Json:
    if facts.tool == SHELL and isinstance(output, str) and OUTPUT in output:
        return output.split(OUTPUT, 1)[1]
    return output
