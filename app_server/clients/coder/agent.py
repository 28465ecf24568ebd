"""The agent in the foreground: its terminal is ours, its end is ours, and so are our signals.

Source: docs/receiver.md, "The launcher".
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

import anyio

END_S = 10.0
"""For the agent to end after SIGTERM or SIGHUP; then it is killed."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CannotStart(Exception):
    """The agent cannot be started; the text says why."""


async def run_agent(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the agent to its end and return its exit status, 128 + N after signal N.

    SIGINT, SIGTERM and SIGHUP are passed on to it; after the last two it has 10 s.

    Raises:
        CannotStart
    """
    with anyio.open_signal_receiver(*SIGNALS) as signals:
        try:
            agent = await asyncio.create_subprocess_exec(*command, env=dict(environment))
        except OSError as exc:
            raise CannotStart(f"{command[0]}: {exc.strerror}") from exc
        try:
            async with anyio.create_task_group() as tasks:

                async def pass_on() -> None:
                    async for number in signals:
                        _pass_on(agent, number)
                        if number != signal.SIGINT:
                            await anyio.sleep(END_S)
                            _send(agent, signal.SIGKILL)

                tasks.start_soon(pass_on)
                status = await agent.wait()
                tasks.cancel_scope.cancel()
        finally:
            # Also when this is cancelled: the agent is in nobody's care then.
            _send(agent, signal.SIGKILL)
    return status if status >= 0 else 128 - status


def _pass_on(agent: asyncio.subprocess.Process, number: signal.Signals) -> None:
    # Ctrl-C goes to everybody in front of the terminal: the agent has had it.
    if number != signal.SIGINT or not _is_in_front():
        _send(agent, number)


def _send(agent: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if agent.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(agent.pid, number)


def _is_in_front() -> bool:
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False
