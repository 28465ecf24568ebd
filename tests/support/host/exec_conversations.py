"""Processes, and an exec server to talk to."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from app_server.host.exec.server.server import ExecLimits, ExecServer, ExecSettings
from app_server.host.processes import LocalProcesses
from app_server.runtime.launch import Launch

PYTHON = sys.executable


def python(code: str, *arguments: str, **more: Any) -> Launch:
    return Launch(PYTHON, ["-c", code, *arguments], inherited=["PATH"], **more)


@asynccontextmanager
async def processes() -> AsyncIterator[LocalProcesses]:
    local = LocalProcesses()
    try:
        yield local
    finally:
        await local.aclose()


@asynccontextmanager
async def listening(token: str | None = None, **limits: Any) -> AsyncIterator[str]:
    settings = ExecSettings("127.0.0.1", 0, token, ExecLimits(**limits))
    async with ExecServer(settings).listen() as url:
        yield url
