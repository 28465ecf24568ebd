"""Sending: one attempt to give a receiver an entry of the outbox.

Source: docs/notifications.md, "Programs", "Webhooks".
"""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any

import anyio
from pydantic_core import from_json

from app_server.host.commands.local_commands import (
    CommandLaunch,
    InputClosed,
    LocalCommand,
    LocalCommands,
)
from app_server.host.commands.output import Stream
from app_server.notifications.attempt import Attempt
from app_server.notifications.settings import Target
from app_server.permissions.sandbox.policy import UNRESTRICTED
from app_server.runtime.clock import Clock
from app_server.runtime.loader import Lazy, LoadFailed, load
from app_server.threads.outbox import OutboxEntry

if TYPE_CHECKING:
    from app_server.notifications.webhooks import Webhooks

logger = logging.getLogger(__name__)

ANSWER_S = 15.0
"""Seconds for a whole attempt of a webhook."""
PROGRAM_S = 20.0
"""Seconds that a program may take; then it and all that it has started is killed."""
MAX_OUTPUT_BYTES = 64 * 1024
"""Of what a program may print, which nobody reads; one that prints more is ended."""
MAX_SHOWN_CHARS = 200
"""Of the text of a notification on a desktop."""

_WORDS: Mapping[str, str] = {
    "approvalRequested": "An approval is needed",
    "inputRequested": "An answer is needed",
    "turnCompleted": "The turn has completed",
    "turnFailed": "The turn has failed",
    "wakeLost": "A wake is lost",
    "budgetReached": "A budget is used up",
    "signalDead": "A signal was not delivered",
    "resolved": "The question is settled",
}
_SCRIPT = (
    "on run argv",
    "display notification (item 3 of argv) with title (item 2 of argv)",
    "end run",
)


class Senders:
    """The ways to all kinds of receivers."""

    def __init__(
        self,
        commands: LocalCommands,
        clock: Clock,
        cwd: str,
        environment: Callable[[], Mapping[str, str]],
        *,
        program_s: float = PROGRAM_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        """Run programs in the folder `cwd` with the variables of `environment`.

        A program may take `program_s`, a webhook's attempt `answer_s`.
        """
        self._commands = commands
        self._cwd = cwd
        self._environment = environment
        self._program_s = program_s
        self._answer_s = answer_s
        self._clock = clock
        self._webhooks = Lazy("webhooks", self._load_webhooks)

    async def send(self, entry: OutboxEntry, target: Target) -> Attempt:
        """Try once; any failure is an outcome. Takes at most some 20 s."""
        try:
            match target.kind:
                case "webhook":
                    return await (await self._webhooks.get()).send(entry, target)
                case "notify":
                    return await self._run(entry, [*target.command, entry.body], None)
                case "command":
                    return await self._run(entry, target.command, entry.body.encode())
                case "desktop":
                    return await self._run(entry, desktop_command(entry, target), None)
        except (OSError, LoadFailed) as exc:
            return Attempt(f"cannot be started: {getattr(exc, 'strerror', None) or exc}")
        except Exception:
            logger.exception("notification %s for %s failed", entry.id, entry.label)
            return Attempt("internal error")

    async def aclose(self) -> None:
        """Close connections."""
        webhooks = await self._webhooks.close()
        if webhooks is not None:
            await webhooks.aclose()

    async def _load_webhooks(self) -> "Webhooks":
        return await (await load(_webhooks)).open(self._clock, self._answer_s)

    async def _run(self, entry: OutboxEntry, argv: Sequence[str], given: bytes | None) -> Attempt:
        """Run a program that is given the body; whatever it answers, it has had it.

        Raises:
            OSError: it cannot be started.
        """
        printed = 0
        command: LocalCommand | None = None

        def count(_: Stream, data: bytes) -> None:
            nonlocal printed
            printed += len(data)
            if printed > MAX_OUTPUT_BYTES and command is not None:
                command.terminate()

        launch = CommandLaunch(
            argv=argv, env=self._environment(), cwd=self._cwd, has_stdin=given is not None
        )
        command = await self._commands.start(launch, UNRESTRICTED, count)
        try:
            with anyio.move_on_after(self._program_s) as limit:
                if given is not None:
                    with suppress(InputClosed):
                        await command.write(given)
                    command.close_input()
                await command.finished.wait()
        finally:
            await command.stop()
        problem = None
        if limit.cancelled_caught:
            problem = f"did not end within {self._program_s:g} s"
        elif printed > MAX_OUTPUT_BYTES:
            problem = f"printed more than {MAX_OUTPUT_BYTES} bytes"
        elif command.returncode != 0:
            problem = f"exited with code {command.returncode}"
        if problem is not None:
            logger.warning("%s: the program %s", entry.label, problem)
        return Attempt()


def desktop_command(entry: OutboxEntry, target: Target) -> Sequence[str]:
    """Return the program that shows a notification on this desktop, and its arguments."""
    body: dict[str, Any] = from_json(entry.body)
    data = body["data"]
    title = data["threadName"] or data["cwd"] or data["threadId"]
    text = f"{_WORDS[entry.event]}. {data.get('text', '')}".strip()[:MAX_SHOWN_CHARS]
    # No argument of a program may have one.
    title, text = title.replace("\0", ""), text.replace("\0", "")
    if sys.platform == "darwin":
        lines = [word for line in _SCRIPT for word in ("-e", line)]
        # Behind the first argument that is no option none is taken for one, whatever a thread is
        # called.
        return ["osascript", *lines, "app-server", title, text]
    # The text may have markup.
    return ["notify-send", "--app-name=app-server", "--", title, escape(text, quote=False)]


def _webhooks() -> "type[Webhooks]":
    from app_server.notifications.webhooks import Webhooks

    return Webhooks
