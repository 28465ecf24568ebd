"""Run one hook, JSON on its stdin, time and output bounded, and read the outcome from its output.

Source: docs/hooks.md, "How a hook runs", "What a hook answers".
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread
from pydantic_core import from_json, to_json

from app_server.extensions.hooks.definition import Event, Hook, Origin
from app_server.extensions.hooks.fingerprint import NoFingerprint, fingerprint
from app_server.host.commands.local_commands import (
    CommandLaunch,
    InputClosed,
    LocalCommand,
    LocalCommands,
)
from app_server.host.commands.output import Stream
from app_server.permissions.sandbox.policy import UNRESTRICTED
from protocol.integrations.skills import HookOutputEntry

Status: TypeAlias = Literal["completed", "failed", "blocked", "stopped"]

BLOCKS = 2
"""The exit status with which a hook says no; stderr says why."""

MAX_TEXT_CHARS = 16 * 1024
"""Of one text for the model or the user; a longer one is cut."""

TAKES_PLAIN_TEXT = frozenset({"SessionStart", "UserPromptSubmit"})
"""Events whose hooks may print words for the model as they are."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one hook, or of all hooks of one event together."""

    status: Status
    entries: Sequence[HookOutputEntry] = ()
    """Entries for clients to show."""
    blocked: str | None = None
    """Why what was about to happen must not; or, after the event, what the model reads instead."""
    stops: bool = False
    """The turn is over."""
    context: Sequence[str] = ()
    """Words for the model."""
    changed_input: Mapping[str, Any] | None = None
    """Arguments in the place of a tool's own."""
    allows: bool = False
    """The user need not be asked."""


def failed(text: str) -> Outcome:
    """Make the outcome of a failed hook; its subject goes on."""
    return Outcome("failed", [HookOutputEntry(kind="error", text=_cut(text))])


def read_outcome(event: Event, code: int, stdout: str, stderr: str) -> Outcome:
    """Parse the output of a hook that has ended."""
    if code == BLOCKS:
        return _blocked(stderr.strip() or "a hook refused, without a reason")
    if code != 0:
        return failed(f"hook exited with code {code}")
    text = stdout.strip()
    if not text.startswith("{"):
        if text and event in TAKES_PLAIN_TEXT:
            return _with_context(Outcome("completed"), text)
        return Outcome("completed")
    try:
        answer = from_json(text)
    except ValueError:
        return failed("hook printed what looks like JSON, and is none")
    return _read_answer(event, answer)


def _read_answer(event: Event, answer: Mapping[str, Any]) -> Outcome:
    entries: list[HookOutputEntry] = []
    if (message := _text(answer, "systemMessage")) is not None:
        entries.append(HookOutputEntry(kind="warning", text=message))
    if answer.get("continue") is False:
        reason = _text(answer, "stopReason") or "a hook stopped the turn"
        stopped = HookOutputEntry(kind="stop", text=reason)
        return Outcome("stopped", [*entries, stopped], blocked=reason, stops=True)
    specific = answer.get("hookSpecificOutput")
    members: Mapping[str, Any] = specific if isinstance(specific, dict) else {}
    refusal = _refusal(event, answer, members)
    if isinstance(refusal, Outcome):
        return refusal
    if refusal is not None:
        return _blocked(refusal, entries)
    changed = members.get("updatedInput")
    outcome = Outcome(
        "completed",
        entries,
        changed_input=changed if isinstance(changed, dict) and event == "PreToolUse" else None,
        allows=event == "PermissionRequest" and _behavior(members) == "allow",
    )
    context = _text(members, "additionalContext")
    return outcome if context is None else _with_context(outcome, context)


def _refusal(
    event: Event, answer: Mapping[str, Any], members: Mapping[str, Any]
) -> str | Outcome | None:
    """Return the reason of a refusal; an outcome if the output is not valid."""
    match event:
        case "PreToolUse":
            decision = members.get("permissionDecision")
            if decision == "deny":
                return _text(members, "permissionDecisionReason") or "a hook refused the call"
            if decision is not None and not (decision == "allow" and "updatedInput" in members):
                # Asking for more rights than the user's settings give has no effect.
                return failed(f"PreToolUse hook returned unsupported permissionDecision:{decision}")
        case "PermissionRequest":
            if _behavior(members) == "deny":
                chosen = members["decision"]
                return _text(chosen, "message") or "a hook refused the request"
        case _:
            if answer.get("decision") == "block":
                return _text(answer, "reason") or "a hook refused, without a reason"
    return None


def _behavior(members: Mapping[str, Any]) -> Any:
    decision = members.get("decision")
    return decision.get("behavior") if isinstance(decision, dict) else None


def _blocked(reason: str, before: Sequence[HookOutputEntry] = ()) -> Outcome:
    reason = _cut(reason)
    feedback = HookOutputEntry(kind="feedback", text=reason)
    return Outcome("blocked", [*before, feedback], blocked=reason)


def _with_context(outcome: Outcome, text: str) -> Outcome:
    text = _cut(text)
    entry = HookOutputEntry(kind="context", text=text)
    return replace(outcome, entries=[*outcome.entries, entry], context=[text])


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """Join the outcomes of the hooks of one event: one refusal is enough, all context counts."""
    blocking = [one for one in outcomes if one.blocked is not None]
    changed = [one.changed_input for one in outcomes if one.changed_input is not None]
    return Outcome(
        "completed",
        blocked=blocking[0].blocked if blocking else None,
        stops=any(one.stops for one in outcomes),
        context=[text for one in outcomes for text in one.context],
        changed_input=changed[-1] if changed else None,
        allows=not blocking and any(one.allows for one in outcomes),
    )


def _text(members: Mapping[str, Any], name: str) -> str | None:
    value = members.get(name)
    return _cut(value) if isinstance(value, str) and value.strip() else None


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]} […]"


MAX_OUTPUT_BYTES = 256 * 1024
"""Of stdout, and of stderr; a hook that prints more fails."""

MAX_AT_ONCE = 16
"""Hooks of one server that run at a time; others wait, and their time runs from their start."""


class HookRunner:
    """Run hooks as the user's own programs: without a sandbox, once trusted."""

    def __init__(
        self, commands: LocalCommands, environment: Callable[[], Mapping[str, str]]
    ) -> None:
        """`environment` gives the variables of a hook, without credentials of the server."""
        self._commands = commands
        self._environment = environment
        self._slots = anyio.CapacityLimiter(MAX_AT_ONCE)

    async def run(self, hook: Hook, payload: Mapping[str, Any], cwd: str) -> Outcome:
        """Run a hook and read its answer; cancelling ends it."""
        async with self._slots:
            try:
                return await self._run(hook, payload, cwd)
            except OSError as exc:
                return failed(f"hook cannot be started: {exc.strerror or exc}")

    async def _run(self, hook: Hook, payload: Mapping[str, Any], cwd: str) -> Outcome:
        output: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        too_much = asyncio.Event()

        def keep(stream: Stream, data: bytes) -> None:
            kept = output[stream]
            kept += data[: MAX_OUTPUT_BYTES + 1 - len(kept)]
            if len(kept) > MAX_OUTPUT_BYTES:
                too_much.set()
                if command is not None:
                    command.terminate()

        text, variables = hook.command, self._environment()
        if hook.origin is not None:
            if not await anyio.to_thread.run_sync(_is_unchanged, hook.origin):
                return failed("the plugin was changed since its hook was trusted")
            text, variables = hook.origin.filled_in(text), {**variables, **hook.origin.variables}
        command: LocalCommand | None = None
        launch = CommandLaunch(
            argv=["/bin/sh", "-c", text],
            env=variables,
            cwd=cwd,
            has_stdin=True,
            merges_stderr=False,
        )
        command = await self._commands.start(launch, UNRESTRICTED, keep)
        if too_much.is_set():
            command.terminate()
        try:
            with anyio.move_on_after(hook.timeout_s) as limit:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_give, command, to_json(payload))
                    await command.finished.wait()
                    tasks.cancel_scope.cancel()
        finally:
            await command.stop()
        if limit.cancelled_caught:
            return failed(f"hook timed out after {hook.timeout_s}s")
        if too_much.is_set():
            return failed(f"hook printed more than {MAX_OUTPUT_BYTES} bytes")
        code = command.returncode
        assert code is not None
        stdout, stderr = (bytes(kept).decode(errors="replace") for kept in output.values())
        return read_outcome(hook.event, code, stdout, stderr)


def _is_unchanged(origin: Origin) -> bool:
    try:
        return fingerprint(origin.root) == origin.fingerprint
    except NoFingerprint:
        return False


async def _give(command: LocalCommand, payload: bytes) -> None:
    # A hook need not read its input.
    with suppress(InputClosed):
        await command.write(payload)
    command.close_input()
