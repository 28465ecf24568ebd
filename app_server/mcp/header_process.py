"""The process of a command that prints headers, on this machine or on another.

Source: docs/mcp.md, "Headers from a command"; docs/environments.md, "Servers in an environment".
"""

import asyncio
import os
import signal
from contextlib import suppress
from typing import cast

import anyio

from app_server.mcp.catalog.config import INHERITED_VARIABLES
from app_server.mcp.errors import HeaderCommandFailed
from app_server.mcp.processes import Processes
from app_server.runtime.launch import Launch

MAX_OUTPUT_BYTES = 64 * 1024
RUN_S = 10.0
"""For one run, until the command has ended and its output is closed."""

REAP_S = 2.0
"""For the end of a command that was killed."""

CHUNK_BYTES = 16 * 1024

PIPES = "exec </dev/null 2>/dev/null\n"
"""What a script on another machine begins with: it reads no input, though its pipe stays open, and
what it complains of waits for nobody."""


async def run_here(command: str, cwd: str) -> bytes:
    """Run a command in a shell and return its output; nothing of its process group is left behind.

    Raises:
        HeaderCommandFailed: it cannot be run, failed, took longer than RUN_S, or printed more
            than MAX_OUTPUT_BYTES.
    """
    output = _Output()
    try:
        transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: output,
            *("sh", "-c", command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ},
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as exc:
        raise HeaderCommandFailed(f"failed to start: {exc.strerror}") from None
    try:
        with anyio.fail_after(RUN_S):
            await output.decided.wait()
    except TimeoutError:
        raise HeaderCommandFailed(f"timed out after {RUN_S:g} seconds") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(transport.get_pid(), signal.SIGKILL)
        with anyio.CancelScope(shield=True), anyio.move_on_after(REAP_S):
            await output.exited.wait()
        transport.close()
    return _judged(bytes(output.printed), cast(int, transport.get_returncode()))


async def run_elsewhere(processes: Processes, environment_id: str, command: str) -> bytes:
    """Run a command in a shell of another machine and return its output.

    It works in the folder of the exec server. Nothing of its process group is left behind.

    Raises:
        ConnectionError: the machine is out of reach.
        HeaderCommandFailed: see `run_here`.
    """
    printed = bytearray()
    launch = Launch("sh", ["-c", PIPES + command], inherited=INHERITED_VARIABLES)
    try:
        with anyio.fail_after(RUN_S):
            async with processes.run(environment_id, launch) as process:
                while len(printed) <= MAX_OUTPUT_BYTES:
                    if not (piece := await process.stdout.read(CHUNK_BYTES)):
                        await process.ended.wait()
                        break
                    printed += piece
                code = process.returncode
    except TimeoutError:
        raise HeaderCommandFailed(f"timed out after {RUN_S:g} seconds") from None
    except ConnectionError:
        raise
    except OSError as exc:
        raise HeaderCommandFailed(f"failed to start: {exc.strerror}") from None
    if code is None and len(printed) <= MAX_OUTPUT_BYTES:
        raise ConnectionError("the connection to the exec server was lost")
    return _judged(bytes(printed), code or 0)


def _judged(printed: bytes, code: int) -> bytes:
    if len(printed) > MAX_OUTPUT_BYTES:
        raise HeaderCommandFailed(f"output exceeds {MAX_OUTPUT_BYTES // 1024} KiB")
    if code:
        raise HeaderCommandFailed(
            f"exited with status {code}" if code > 0 else f"was ended by signal {-code}"
        )
    return printed


class _Output(asyncio.SubprocessProtocol):
    """What a command prints, up to a little above the bound."""

    def __init__(self) -> None:
        self.printed = bytearray()
        self.exited = anyio.Event()
        self.decided = anyio.Event()
        """Set when the command has ended and nobody can print any more, or printed too much."""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if len(self.printed) <= MAX_OUTPUT_BYTES:
            self.printed += data
        if len(self.printed) > MAX_OUTPUT_BYTES:
            self.decided.set()

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.decided.set()
