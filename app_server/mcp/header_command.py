"""Headers that a command of the user's prints: `http_headers_helper` of a server behind a URL.

The command runs before the first request of a connection, and again after a 401. What it prints is
secret, and so may be what it writes to stderr: neither gets into a text of ours.
Source: docs/mcp.md, "Headers from a command".
"""

import asyncio
import logging
import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

import anyio
from pydantic_core import from_json

from app_server.mcp.catalog.config import INHERITED_VARIABLES
from app_server.mcp.errors import HeaderCommandFailed

logger = logging.getLogger(__name__)

MAX_OUTPUT_BYTES = 64 * 1024
RUN_S = 10.0
"""For one run, until the command has ended and its output is closed."""

REAP_S = 2.0
"""For the end of a command that was killed."""

RESERVED = frozenset(
    (
        *("accept", "accept-encoding", "connection", "content-length", "content-type", "host"),
        *("keep-alive", "last-event-id", "mcp-protocol-version", "mcp-session-id", "origin"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    )
)
"""What the transport itself says of a request."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")


class HeaderCommand:
    """A command and what it printed last, for one connection; its credential is that text."""

    def __init__(self, command: str, cwd: str, configured: Mapping[str, str]) -> None:
        """Run in `cwd`; an Authorization among the `configured` headers is not replaced."""
        self._command = command
        self._cwd = cwd
        self._authorized = any(name.lower() == "authorization" for name in configured)
        self._printed: str | None = None
        self._running = anyio.Lock()

    async def current(self) -> str:
        """Return what the command printed; the first call runs it.

        Raises:
            HeaderCommandFailed: it failed, or printed something else than headers.
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
                except HeaderCommandFailed as exc:
                    logger.info("after a 401: %s", exc)
                    return None
            return self._printed

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
        printed = await run_command(self._command, self._cwd)
        parse_headers(printed)
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


async def run_command(command: str, cwd: str) -> bytes:
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
    if len(output.printed) > MAX_OUTPUT_BYTES:
        raise HeaderCommandFailed(f"output exceeds {MAX_OUTPUT_BYTES // 1024} KiB")
    if code := cast(int, transport.get_returncode()):
        raise HeaderCommandFailed(
            f"exited with status {code}" if code > 0 else f"was ended by signal {-code}"
        )
    return bytes(output.printed)


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
