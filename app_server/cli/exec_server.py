"""`app-server exec-server`: from a command line to a running exec server."""

import argparse
import asyncio
import ipaddress
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import anyio

from app_server.clients.command_line import command_parser
from app_server.host.exec.server.server import ExecServer, ExecSettings
from app_server.observability.log import add_log_options, read_log_settings, set_up_logs
from app_server.peer.token_file import NoToken, take_token
from app_server.runtime.http.loopback_address import is_loopback_address
from app_server.runtime.standard_streams import lacks_working_directory, print_to_stderr

DEFAULT_LISTEN = "ws://127.0.0.1:0"
TOKEN_VARIABLE = "APP_SERVER_EXEC_TOKEN"

DESCRIPTION = """\
Run processes on this machine for an app-server elsewhere: its MCP servers with
environment_id = "NAME" start here once a client of it has called environment/add."""

EPILOG = f"""\
examples:
  app-server exec-server --listen ws://127.0.0.1:4600
                                        for an app-server on this machine, or behind a tunnel
  app-server exec-server --listen ws://10.0.0.5:4600 --token-file ~/.exec-token
                                        for one elsewhere; put TLS in front of it (wss://)

Then, on a connection to the app-server:
  environment/add {{"environmentId": "NAME", "execServerUrl": "ws://127.0.0.1:4600"}}

Whoever can connect can run programs as this user. Without a token only loopback addresses are
listened on. The token is read from --token-file, else from {TOKEN_VARIABLE}; clients send it as
a bearer token (authBearerToken). Web pages are refused. The bound address is printed to stderr.
Processes end with the connection they were started on, and all of them at SIGTERM."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 1 for a failure, 2 for a wrong call."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        set_up_logs(read_log_settings(os.environ, options.log_level, options.log_format))
    except ValueError as exc:
        parser.error(str(exc))
    try:
        host, port = parse_listen(options.listen)
        token = take_token("token", TOKEN_VARIABLE, options.token_file)
        require_token(host, token)
    except (ValueError, NoToken) as exc:
        if isinstance(exc, NoToken) and lacks_working_directory(exc):
            raise
        parser.error(str(exc))
    try:
        asyncio.run(_serve(ExecSettings(host, port, token)))
    except OSError as exc:
        print(f"app-server: {exc}", file=sys.stderr)
        return 1
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = command_parser("app-server exec-server", DESCRIPTION, EPILOG)
    parser.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="URL",
        help="ws://IP:PORT; port 0 picks a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="a file with the bearer token that clients must send; white space around it is left "
        f"out (default: the variable {TOKEN_VARIABLE}, if it is set)",
    )
    add_log_options(parser)
    return parser


def parse_listen(text: str) -> tuple[str, int]:
    """Read an address to listen on.

    Raises:
        ValueError: with a sentence that says what would be accepted.
    """
    wrong = f"cannot listen on {text!r}: use ws://IP:PORT"
    parts = urlsplit(text)
    if parts.scheme != "ws" or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(wrong)
    try:
        address, port = ipaddress.ip_address(parts.hostname or ""), parts.port
    except ValueError as exc:
        raise ValueError(f"{wrong}: {exc}") from exc
    if port is None:
        raise ValueError(f"{wrong}: the port is missing; 0 picks a free one")
    return str(address), port


def require_token(host: str, token: str | None) -> None:
    """Refuse to let everybody on the network run programs here.

    Raises:
        ValueError: no token, and not a loopback address.
    """
    if token is None and not is_loopback_address(host):
        raise ValueError(
            f"refusing to listen on {host} without a token: everybody on the network could run "
            f"programs here; use --token-file or {TOKEN_VARIABLE}, or 127.0.0.1"
        )


async def _serve(settings: ExecSettings) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with ExecServer(settings).listen() as url:
            print_to_stderr(f"listening on: {url}")
            async for _ in signals:
                break
