"""The server of one session: found or started, and stopped with the session if it was started.

Source: docs/receiver.md, "The launcher", "Ports".
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from enum import Enum
from pathlib import Path

import anyio
import anyio.to_thread

from app_server.clients.coder.plan import Plan, url_of
from app_server.clients.connection import NoAppServer, identify
from app_server.host.reaper import Reaper
from app_server.runtime.files.secret import StoreFailed, lock_held
from app_server.runtime.standard_streams import print_to_stderr

PROBE_S = 5.0
"""For somebody at a port to introduce themselves; a server that has just started loads first."""

CLIENT_NAME = "coder"


class Occupant(Enum):
    """Occupant of a port."""

    NOBODY = "nobody"
    OURS = "ours"
    """An app-server of this package with the same home."""
    STRANGER = "stranger"


async def who_is_at(url: str, home: Path, token_file: Path | None = None) -> Occupant:
    """Ask who is at a port of this machine, with a token if there is one in the file."""
    # A server that is going to be started has not written it yet.
    has_token = token_file is not None and await anyio.to_thread.run_sync(token_file.exists)
    shown = token_file if has_token else None
    try:
        server = await identify(url, CLIENT_NAME, timeout_s=PROBE_S, token_file=shown)
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


logger = logging.getLogger(__name__)

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
    """Find a server or start one; gives its URL. Leaving stops what was started here.

    Raises:
        NoServer
    """
    if plan.url is not None:
        if not await is_app_server(plan.url, plan.token_file):
            raise NoServer(f"no app-server answers at {plan.url}")
        if await who_is_at(plan.url, plan.home, plan.token_file) is not Occupant.OURS:
            print_to_stderr(f"coder: {plan.what_to_set}")
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
            match await who_is_at(url, plan.home, plan.token_file):
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
