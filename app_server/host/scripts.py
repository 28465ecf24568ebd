"""Start and end the scripts of this package that the server runs beside itself.

Source: docs/environments.md, "Children"; docs/tools.md, "Commands".
"""

import asyncio
import subprocess
import sys
from asyncio.subprocess import Process
from pathlib import Path

import anyio


async def start_script(script: Path, *arguments: str, stdin: int) -> Process:
    """Start a script in a session of its own; `stdin` is a descriptor, or `subprocess.PIPE`.

    A cancellation waits for the start: cut off in the middle it would leave a process without a
    parent that waits for it.

    Raises:
        OSError: it cannot be started.
    """
    with anyio.CancelScope(shield=True):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", str(script)),
            *arguments,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    return process  # noqa: RET504 (mypy: a scope may swallow what is raised in it)


async def end_script(process: Process, bound_s: float) -> None:
    """Wait for a script whose input was closed; one that takes longer than the bound is killed."""
    with anyio.move_on_after(bound_s, shield=True):
        await process.wait()
    if process.returncode is None:
        process.kill()
        with anyio.CancelScope(shield=True):
            await process.wait()
