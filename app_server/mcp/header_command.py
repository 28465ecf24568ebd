"""Headers that a command of the user's prints: `http_headers_helper` of a server behind a URL.

The command runs before the first request of a connection, and again after a 401. What it prints is
secret, and so may be what it writes to stderr: neither gets into a text of ours.
Source: docs/mcp.md, "Headers from a command"; docs/environments.md, "Servers in an environment".
"""

import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import anyio
from pydantic_core import from_json

from app_server.mcp.catalog.config import INHERITED_VARIABLES
from app_server.mcp.errors import HeaderCommandFailed
from app_server.mcp.processes import Processes
from app_server.runtime.launch import Launch

logger = logging.getLogger(__name__)

MAX_OUTPUT_BYTES = 64 * 1024
RUN_S = 10.0
"""For one run, until the command has ended and its output is closed."""

CHUNK_BYTES = 16 * 1024

PIPES = "exec </dev/null 2>/dev/null\n"
"""The first line of a script: it empties stdin, whose pipe stays open, and discards stderr."""

RESERVED = frozenset(
    (
        *("accept", "accept-encoding", "connection", "content-length", "content-type", "host"),
        *("keep-alive", "last-event-id", "mcp-protocol-version", "mcp-session-id", "origin"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    )
)
"""Header names that the transport sets by itself."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")

Run: TypeAlias = Callable[[], Awaitable[bytes]]
"""Runs a command and gives what it printed; raises HeaderCommandFailed or ConnectionError."""


class HeaderCommand:
    """A command and what it printed last, for one connection; its credential is that text."""

    def __init__(
        self, run: Run, configured: Mapping[str, str], values: deque[Collection[str]]
    ) -> None:
        """`run` is the command; an Authorization among `configured` headers is not replaced.

        The values of the headers of each run are added to `values`.
        """
        self._values = values
        self._run_command = run
        self._authorized = any(name.lower() == "authorization" for name in configured)
        self._printed: str | None = None
        self._running = anyio.Lock()

    async def current(self) -> str:
        """Return what the command printed; the first call runs it.

        Raises:
            HeaderCommandFailed: it failed, or printed something else than headers.
            ConnectionError: the machine that it runs on is out of reach.
        """
        async with self._running:
            if self._printed is None:
                self._printed = await self._run()
            return self._printed

    async def replace(self, refused: str | None) -> str | None:
        """Run the command again, unless that was done since; None when it fails."""
        async with self._running:
            if self._printed == refused:
                try:
                    self._printed = await self._run()
                except (HeaderCommandFailed, ConnectionError) as exc:
                    logger.info("after a 401: %s", exc)
                    return None
            return self._printed

    async def widen(self, refused: str | None, scopes: Sequence[str]) -> str | None:
        """Return None: a command is not asked for scopes."""
        return None

    def stored(self) -> str | None:
        """Return what was printed last, without running the command."""
        return self._printed

    def headers(self, credential: str) -> Mapping[str, str]:
        """Read the headers out of what was printed."""
        found = parse_headers(credential.encode())
        if self._authorized:
            found.pop("authorization", None)
        return found

    async def _run(self) -> str:
        printed = await self._run_command()
        self._values.append(parse_headers(printed).values())
        return printed.decode()


def parse_headers(printed: bytes) -> dict[str, str]:
    """Read a JSON object of headers; the names come back in lower case.

    Raises:
        HeaderCommandFailed: it is none, or has a header that cannot be sent; the text does not
            repeat it.
    """
    try:
        value = from_json(printed.decode())
    except UnicodeDecodeError:
        raise HeaderCommandFailed("wrote non-UTF-8 data") from None
    except ValueError:
        value = None
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise HeaderCommandFailed("must output a JSON object of strings")
    headers = {name.lower(): text.strip(" \t") for name, text in value.items()}
    if len(headers) < len(value):
        raise HeaderCommandFailed("returned duplicate header names")
    if not all(_NAME.fullmatch(name) for name in headers):
        raise HeaderCommandFailed("returned an invalid header name")
    if not RESERVED.isdisjoint(headers):
        raise HeaderCommandFailed("returned a reserved header")
    if not all(_VALUE.fullmatch(text) for text in headers.values()):
        raise HeaderCommandFailed("returned an invalid header value")
    return headers


async def run_command(
    processes: Processes,
    environment_id: str,
    command: str,
    cwd: str | None,
    *,
    limit_s: float = RUN_S,
) -> bytes:
    """Run a command in a shell and return its output; nothing of its process group is left behind.

    Without `cwd` it works where its exec server does.

    Raises:
        ConnectionError: its machine is out of reach.
        HeaderCommandFailed: it cannot be run, failed, took longer than `limit_s`, or printed more
            than MAX_OUTPUT_BYTES.
    """
    printed = bytearray()
    launch = Launch("sh", ["-c", PIPES + command], inherited=INHERITED_VARIABLES, cwd=cwd)
    try:
        with anyio.fail_after(limit_s):
            async with processes.run(environment_id, launch) as process:
                while len(printed) <= MAX_OUTPUT_BYTES:
                    if not (piece := await process.stdout.read(CHUNK_BYTES)):
                        await process.ended.wait()
                        break
                    printed += piece
                code = process.returncode
    except TimeoutError:
        raise HeaderCommandFailed(f"timed out after {limit_s:g} seconds") from None
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
