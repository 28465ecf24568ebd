"""The two streams to a server, as it is configured: over the pipes of its process, or over HTTP.

Source: docs/mcp.md, "Connections", "Headers from a command".
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import httpx2

from app_server.mcp.catalog.config import (
    LOCAL,
    HttpTransport,
    ServerConfig,
    ServerUnavailable,
    StdioTransport,
)
from app_server.mcp.header_command import HeaderCommand, run_command
from app_server.mcp.oauth.credentials import CredentialStore
from app_server.mcp.oauth.target import SignInTarget
from app_server.mcp.oauth.tokens import TokenSource
from app_server.mcp.processes import Processes
from app_server.mcp.stdio import ServerProcess, run_server
from app_server.mcp.tunnel import open_dial
from app_server.mcp_wire.http.authorized import Tokens
from app_server.mcp_wire.http.transport import Streams, open_http


def tokens_of(config: ServerConfig, processes: Processes) -> TokenSource | None:
    """Return the source of a server's OAuth tokens; None for a server without sign-in."""
    http = config.transport
    if not isinstance(http, HttpTransport) or http.oauth.home is None or not http.signs_in:
        return None
    target = SignInTarget.of(config, http, processes)
    return TokenSource(target, CredentialStore(http.oauth.home, http.oauth.store))


@asynccontextmanager
async def open_streams(
    config: ServerConfig, cwd: str, tokens: TokenSource | None, processes: Processes
) -> AsyncIterator[tuple[Streams, ServerProcess | None]]:
    """Open the streams, beside the process if it is one; leaving closes them, and ends it.

    Raises:
        OSError: its process cannot be run; a ConnectionError: its environment is out of reach.
        ServerUnavailable: the variable of its token is not set, or its URL makes no sense.
        HeaderCommandFailed: its command for headers failed.
    """
    where, http = config.environment_id, config.transport
    if isinstance(http, StdioTransport):
        async with run_server(processes, where, http.launch(where, cwd)) as process:
            yield (process, process), process
        return
    if where != LOCAL:
        await _check_reach(where, httpx2.URL(http.url), processes)
    headers = http.headers(config.name)
    credentials: list[Tokens] = [] if tokens is None else [tokens]
    if http.header_command is not None:
        folder = cwd if where == LOCAL else None
        run = partial(run_command, processes, where, http.header_command, folder)
        command = HeaderCommand(run, headers)
        await command.current()
        credentials.append(command)
    async with AsyncExitStack() as stack:
        dial = None
        if where != LOCAL:
            dial = await stack.enter_async_context(open_dial(processes, where))
        opening = open_http(http.url, headers, *credentials, dial=dial)
        yield await stack.enter_async_context(opening), None


async def _check_reach(environment_id: str, url: httpx2.URL, processes: Processes) -> None:
    if url.scheme not in ("http", "https") or not url.host:
        raise ServerUnavailable("its URL is neither http nor https")
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        async with processes.open_connection(environment_id, url.host, port):
            pass
    except OSError as exc:
        # With a number it is that machine that refuses: the handshake says so.
        if exc.errno is None:
            raise
