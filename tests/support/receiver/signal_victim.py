"""A server that kills itself at one step of its work with signals; for tests of crashes.

Its words are HOME WHERE NUMBER WHEN: WHERE is `ledger` or `log`, or of wakes `armed` or `moved`,
NUMBER counts its writes, those of the log from the first signal on, WHEN is `before` or `after` the
write. Prints its URL.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.server.app import AppServer
from app_server.server.settings import Settings
from app_server.threads.files.ledger import Ledger
from app_server.threads.files.wakes import FileWakes
from app_server.threads.files.writers import LogWriter
from app_server.transport.address import TcpAddress
from tests.support.harness import REQUIREMENTS


def main() -> None:
    """Serve until the step is reached."""
    home, where, number, when = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    counts = {"ledger": 0, "log": 0, "armed": 0, "moved": 0}

    def watch(kind: str, write: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if kind != "log" or counts["ledger"]:
                counts[kind] += 1
            due = kind == where and counts[kind] == number
            if due and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = write(*args, **kwargs)
            if due and when == "after":
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted

    Ledger.put = watch("ledger", Ledger.put)  # type: ignore[method-assign]
    LogWriter.append = watch("log", LogWriter.append)  # type: ignore[method-assign]
    FileWakes.add = watch("armed", FileWakes.add)  # type: ignore[method-assign]
    FileWakes.move = watch("moved", FileWakes.move)  # type: ignore[method-assign]
    settings = Settings(
        home=home,
        requirements=home / REQUIREMENTS,
        listen=(TcpAddress("127.0.0.1", 0),),
        cwd=home,
    )
    asyncio.run(AppServer(settings, extensions=ExtensionRegistry()).run(_ready))


def _ready(urls: Sequence[str]) -> None:
    print(urls[0], flush=True)
