"""One session: a server, if there can be one, and the agent; both end together.

Source: docs/receiver.md, "The launcher".
"""

import asyncio
import logging
import logging.handlers
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from enum import Enum
from pathlib import Path

import anyio
import anyio.to_thread

from app_server.clients.coder.plan import PROBE_S, TOKEN_VARIABLE, Plan, url_of
from app_server.host.reaper import Reaper
from app_server.observability.log_context import add_ids
from app_server.observability.log_lines import LineFormatter
from app_server.peer.connection import NoAppServer, identify
from app_server.peer.token_file import read_token
from app_server.runtime.files.secret import StoreFailed, lock_held
from app_server.runtime.standard_streams import print_to_stderr

logger = logging.getLogger(__name__)

CLIENT_NAME = "coder"


class Occupant(Enum):
    """Occupant of a port."""

    NOBODY = "nobody"
    OURS = "ours"
    """An app-server of this package with the same home."""
    STRANGER = "stranger"


async def identify_at(
    url: str, home: Path, token_file: Path | None = None, *, probe_s: float = PROBE_S
) -> Occupant:
    """Identify the server at a port of this machine, with the token of the file, if any.

    Whoever says nothing for `probe_s` is a stranger.
    """
    # A server that is going to be started has not written it yet.
    has_token = token_file is not None and await anyio.to_thread.run_sync(token_file.exists)
    shown = token_file if has_token else None
    try:
        server = await identify(url, CLIENT_NAME, timeout_s=probe_s, token_file=shown)
    except ConnectionRefusedError:
        return Occupant.NOBODY
    except NoAppServer:
        return Occupant.STRANGER
    is_ours = " app-server/" in str(server["userAgent"]) and server.get("codexHome") == str(home)
    return Occupant.OURS if is_ours else Occupant.STRANGER


async def is_app_server(url: str, token_file: Path | None = None) -> bool:
    """Whether any app-server answers at the URL."""
    try:
        await identify(url, CLIENT_NAME, timeout_s=PROBE_S, token_file=token_file)
    except (ConnectionRefusedError, NoAppServer):
        return False
    return True


SEARCH_S = 20.0
"""For the search among ports; strangers may take their time to say nothing."""

START_S = 20.0
"""For a server to say where it listens."""

DRAIN_S = 1.0
"""Between the first SIGTERM, which lets turns end, and the second, which interrupts them."""

STOP_S = 10.0
"""For the server to end after that; then its process group is killed."""

MAX_LOGGED_LINES = 1000
"""Of a server's stderr; what comes after them is dropped."""


class NoServer(Exception):
    """There is no server for this session; the text says why."""


@asynccontextmanager
async def session_server(plan: Plan, parent: Mapping[str, str]) -> AsyncIterator[str]:
    """Find a server or start one, and yield its URL; a started one is stopped at the end.

    Raises:
        NoServer
    """
    if plan.url is not None:
        if not await is_app_server(plan.url, plan.token_file):
            raise NoServer(f"no app-server answers at {plan.url}")
        who = await identify_at(plan.url, plan.home, plan.token_file, probe_s=plan.probe_s)
        if who is not Occupant.OURS:
            print_to_stderr(f"coder: {plan.variables_to_set}")
        yield plan.url
        return
    async with AsyncExitStack() as session:
        yield await _find_or_start(plan, parent, session)


async def _find_or_start(plan: Plan, parent: Mapping[str, str], session: AsyncExitStack) -> str:
    give_up = anyio.current_time() + SEARCH_S
    for port in plan.ports:
        if anyio.current_time() > give_up:
            raise NoServer(f"no port was found within {SEARCH_S:g} s")
        url = url_of(port)
        with ExitStack() as claim:
            # A server that another launcher has started ends with that one's session.
            lock = lock_held(plan.home / "coder" / f"{port}.lock", 0)
            try:
                await anyio.to_thread.run_sync(claim.enter_context, lock)
            except StoreFailed as exc:
                logger.info("port %d: %s", port, exc)
                continue
            match await identify_at(url, plan.home, plan.token_file, probe_s=plan.probe_s):
                case Occupant.OURS:
                    return url
                case Occupant.STRANGER:
                    logger.info("port %d is somebody else's", port)
                    continue
            environment = plan.environment(parent, url)
            server = _running(plan.server_command(url), environment, str(plan.folder))
            try:
                await session.enter_async_context(server)
            except _Ended:
                # Somebody else may have been quicker to the port.
                logger.warning("the server on port %d ended before it was ready", port)
                continue
            session.push(claim.pop_all().__exit__)
            return url
    raise NoServer(f"no port from {plan.ports[0]} to {plan.ports[-1]} can be used")


class _Ended(Exception):
    """A server ended before it was ready."""


@asynccontextmanager
async def _running(
    command: list[str], environment: Mapping[str, str], folder: str
) -> AsyncIterator[None]:
    reaper = Reaper()
    # So that it ends with this process, however that ends.
    await reaper.ready()
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=dict(environment),
                cwd=folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                # The keys of the terminal are for the agent.
                start_new_session=True,
            )
        except OSError as exc:
            raise NoServer(f"the server cannot be started: {exc.strerror}") from exc
        reaper.add(process.pid)
        assert process.stderr is not None
        try:
            try:
                with anyio.fail_after(START_S):
                    await _until_ready(process.stderr)
            except TimeoutError as exc:
                raise NoServer(f"the server was not ready within {START_S:g} s") from exc
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_log, process.stderr)
                yield
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(process)
            reaper.discard(process.pid)
    finally:
        with anyio.CancelScope(shield=True):
            await reaper.aclose()


async def _until_ready(log: asyncio.StreamReader) -> None:
    async for line in _lines(log):
        logger.info("server: %s", line)
        if line.startswith("listening on: "):
            return
    raise _Ended


async def _log(log: asyncio.StreamReader) -> None:
    lines = 0
    async for line in _lines(log):
        lines += 1
        if lines <= MAX_LOGGED_LINES:
            logger.info("server: %s", line)
    logger.warning("the server has closed its log")


async def _lines(log: asyncio.StreamReader) -> AsyncIterator[str]:
    """Give each line; of one that is too long only that there was one."""
    while True:
        try:
            line = await log.readline()
        except ValueError:
            line = b"(a line that is too long)\n"
        if not line:
            return
        yield line.decode(errors="replace").rstrip()


async def _stop(process: asyncio.subprocess.Process) -> None:
    for patience_s in (DRAIN_S, STOP_S):
        _signal(process, signal.SIGTERM)
        with anyio.move_on_after(patience_s):
            await process.wait()
            return
    logger.warning("the server does not end, and is killed")
    _signal(process, signal.SIGKILL)
    await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


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
