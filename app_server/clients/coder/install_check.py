"""`coder install --check`: whether everything is there. It starts no server and binds no port.

Source: docs/receiver.md, "The launcher".
"""

import shutil
import subprocess
from collections.abc import Iterator

from app_server.clients.coder.plan import SERVER

HELP_S = 30.0


def check(agent: str) -> Iterator[tuple[bool, str]]:
    """Give a verdict and a sentence for each thing that a session needs."""
    path = shutil.which(agent)
    yield path is not None, f"{agent}: {path or 'not found on PATH'}"
    problem = _problem_of_server()
    yield problem is None, f"app-server: {problem or 'listens on WebSockets'}"


def _problem_of_server() -> str | None:
    try:
        shown = subprocess.run(
            [*SERVER, "--help"],
            capture_output=True,
            text=True,
            timeout=HELP_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"cannot be asked ({type(exc).__name__})"
    if shown.returncode != 0:
        return f"--help ended with exit status {shown.returncode}"
    return None if "--listen" in shown.stdout else "--help does not name --listen"
