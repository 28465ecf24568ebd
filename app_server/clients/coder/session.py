"""One session: a server, if there can be one, and the agent; both end together.

Source: docs/receiver.md, "The launcher".
"""

import asyncio
import logging
import logging.handlers
import os
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.to_thread

from app_server.clients.coder.agent import CannotStart, run_agent
from app_server.clients.coder.plan import TOKEN_VARIABLE, Plan
from app_server.clients.coder.session_server import NoServer, session_server
from app_server.clients.token_file import read_token
from app_server.observability.log_context import add_ids
from app_server.observability.log_lines import LineFormatter

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
