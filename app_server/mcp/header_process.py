"""The process of a command that prints headers, on this machine or on another.

Source: docs/mcp.md, "Headers from a command"; docs/environments.md, "Servers in an environment".
"""

import anyio

from app_server.mcp.catalog.config import INHERITED_VARIABLES
from app_server.mcp.errors import HeaderCommandFailed
from app_server.mcp.processes import Processes
from app_server.runtime.launch import Launch

MAX_OUTPUT_BYTES = 64 * 1024
RUN_S = 10.0
"""For one run, until the command has ended and its output is closed."""

CHUNK_BYTES = 16 * 1024

PIPES = "exec </dev/null 2>/dev/null\n"
"""What a script begins with: it reads no input, though its pipe stays open, and what it complains
of waits for nobody."""


async def run_command(
    processes: Processes, environment_id: str, command: str, cwd: str | None
) -> bytes:
    """Run a command in a shell and return its output; nothing of its process group is left behind.

    Without `cwd` it works where its exec server does.

    Raises:
        ConnectionError: its machine is out of reach.
        HeaderCommandFailed: it cannot be run, failed, took longer than RUN_S, or printed more
            than MAX_OUTPUT_BYTES.
    """
    printed = bytearray()
    launch = Launch("sh", ["-c", PIPES + command], inherited=INHERITED_VARIABLES, cwd=cwd)
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
    if len(printed) > MAX_OUTPUT_BYTES:
        raise HeaderCommandFailed(f"output exceeds {MAX_OUTPUT_BYTES // 1024} KiB")
    if code is None:
        raise ConnectionError("the connection to the exec server was lost")
    if code:
        raise HeaderCommandFailed(
            f"exited with status {code}" if code > 0 else f"was ended by signal {-code}"
        )
    return bytes(printed)
