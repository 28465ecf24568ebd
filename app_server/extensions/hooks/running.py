"""Runs one hook: JSON on its stdin, a bound for its time and its output.

Source: docs/hooks.md, "How a hook runs".
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio
import anyio.to_thread
from pydantic_core import to_json

from app_server.extensions.hooks.definition import Hook, Origin
from app_server.extensions.hooks.fingerprint import NoFingerprint, fingerprint
from app_server.extensions.hooks.outcome import Outcome, failed, read_outcome
from app_server.host.commands.local_command import CommandLaunch, InputClosed, LocalCommand
from app_server.host.commands.local_commands import LocalCommands
from app_server.host.commands.reading import Stream
from app_server.permissions.confinement.confinement import UNCONFINED

MAX_OUTPUT_BYTES = 256 * 1024
"""Of stdout, and of stderr; a hook that prints more fails."""

MAX_AT_ONCE = 16
"""Hooks of one server that run at a time; others wait, and their time runs from their start."""


class HookRunner:
    """Runs hooks as the user's own programs: what the user trusted is not confined."""

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
        command = await self._commands.start(launch, UNCONFINED, keep)
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
