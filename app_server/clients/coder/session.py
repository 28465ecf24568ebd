"""One session: a server, if there can be one, and the agent; both end together.

Source: docs/receiver.md, "The launcher".
"""

import asyncio
import logging
import logging.handlers
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import anyio
import anyio.to_thread

from app_server.clients.coder.plan import TOKEN_VARIABLE, Plan
from app_server.clients.coder.session_server import NoServer, session_server
from app_server.clients.token_file import read_token
from app_server.observability.log_context import add_ids
from app_server.observability.log_lines import LineFormatter

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


logger = logging.getLogger(__name__)

MAX_LOG_BYTES = 1024 * 1024
"""Of coder.log; one older file of the same size is kept."""

FAILURES = (CannotStart, NoServer, OSError)
"""Why there is no session; the text is for the user."""


def run(plan: Plan) -> int:
    """Run a session to its end; returns the agent's exit status.

    Raises:
        CannotStart: the agent cannot be started.
        NoServer: there can be none, and the plan wants one.
        OSError: the log cannot be written, or the token cannot be read.
    """
    _log_to(plan.home / "coder" / "coder.log")
    return asyncio.run(run_session(plan))


async def run_session(plan: Plan) -> int:
    """Do as `run`, without a log."""
    async with AsyncExitStack() as session:
        url = None
        if plan.mode != "off":
            try:
                url = await session.enter_async_context(session_server(plan, os.environ))
            except NoServer as exc:
                if plan.mode == "local":
                    raise
                logger.warning("no server, so signals wait for tool results: %s", exc)
        environment = plan.environment(os.environ, url)
        if url is not None and plan.token_file is not None:
            token = await anyio.to_thread.run_sync(read_token, plan.token_file)
            environment[TOKEN_VARIABLE] = token
        return await run_agent(plan.agent_command(url), environment)


def _log_to(path: Path) -> None:
    """Log to a file: the terminal is the agent's."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=MAX_LOG_BYTES, backupCount=1)
    handler.setFormatter(LineFormatter("text", os.environ))
    handler.addFilter(add_ids)
    logging.getLogger("app_server").addHandler(handler)
    logging.getLogger("app_server").setLevel(logging.INFO)
