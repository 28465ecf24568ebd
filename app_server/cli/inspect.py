"""`app-server inspect`: from a command line to a page in a browser."""

import argparse
import asyncio
import signal
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from app_server.clients.chosen_server import URL_VARIABLE, NoOneServer, server_address
from app_server.clients.command_line import MAX_PORT, add_home, command_parser, whole_number
from app_server.clients.inspector.run import serve_inspector
from app_server.clients.inspector.upstream import parse_upstream
from app_server.config.effective import ConfigSources, lets_others_in
from app_server.config.home import resolve_home
from app_server.peer.address import ServerAddress
from app_server.peer.token_file import TOKEN_FILE_HELP
from app_server.runtime.http.peer_user import others_are_let_in
from app_server.runtime.standard_streams import (
    lacks_working_directory,
    print_now,
    print_to_stderr,
)

DESCRIPTION = """\
Look into a running app-server from a browser: its threads with every message as it comes, what it
asks its clients, MCP servers and their tools, apps, signals, memory and latency. The page can start
threads, run and interrupt turns, answer questions, and call tools by forms."""

EPILOG = """\
examples:
  app-server --listen ws://127.0.0.1:4500 &     start a server; without a model of your own the
                                                built-in offline model answers
  app-server inspect                            inspect the one server that runs: open the
                                                address that is printed
  app-server inspect --open                     the same, and open the browser
  app-server inspect unix://$HOME/run/app.sock  a server on a Unix socket
  app-server inspect ws://127.0.0.1:4501        one of several servers
  app-server inspect --home DIR                 the server of another home folder
  app-server inspect --port 6274                always at the same port
  app-server inspect --token-file ~/.app-token  a server that was started with this token file

first steps on the page:
  Threads: "New thread", type a message, Ctrl+Enter. Select a message to see it whole.
  Type `/exec uname` or `/tool SERVER.TOOL {"key": "value"}` to make the offline model call tools.
  Press ? for the keys.

who can open it: whoever has the address, which has a token that is made anew for each run. Pages of
other sites and other hosts than this one are refused. The page loads nothing from elsewhere.
It is a client like others: what it starts goes on without it, and it may be closed at any time.

The server is URL, else the one that runs with --home, else APP_SERVER_URL, else the one that runs
with the usual home folder; of several the addresses are listed. A server that is named by URL need
not run yet: the page waits for it, also over restarts. Ctrl+C ends the inspector; the exit status
is 0, 1 for a failure (also if no server runs) and 2 for a wrong call (also if several run)."""


WAITING = "To wait for a server that does not run yet, name its address: app-server inspect URL"


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 1 for a failure, 2 for a wrong call."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        server = server_address(options.url, options.home, options.token_file, "app-server inspect")
        upstream = parse_upstream(server.url, server.token_file)
    except ValueError as exc:
        parser.error(str(exc))
    except NoOneServer as exc:
        print(f"app-server inspect: {exc}", file=sys.stderr)
        if not exc.are_several:
            print(WAITING, file=sys.stderr)
        return exc.exit_status
    except OSError as exc:
        if lacks_working_directory(exc):
            raise
        print(f"app-server inspect: {exc.filename}: {exc.strerror}", file=sys.stderr)
        return 1
    try:
        sources = ConfigSources(home := resolve_home(options.home), home)
        asyncio.run(_run(upstream, options.port, sources, opens=options.open))
    except OSError as exc:
        print(f"app-server inspect: cannot listen on port {options.port}: {exc}", file=sys.stderr)
        return 1
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = command_parser("app-server inspect", DESCRIPTION, EPILOG)
    parser.add_argument(
        "url",
        nargs="?",
        metavar="URL",
        help="the server, on this machine: ws://127.0.0.1:PORT or unix://PATH (default: the one "
        f"that runs with the home folder; without --home {URL_VARIABLE} may name another one)",
    )
    add_home(parser)
    parser.add_argument(
        "--port",
        type=whole_number(0, MAX_PORT),
        default=0,
        metavar="N",
        help="where the page is served on 127.0.0.1 (default: any free port)",
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help=TOKEN_FILE_HELP)
    parser.add_argument("--open", action="store_true", help="open the page in the default browser")
    return parser


async def _run(upstream: ServerAddress, port: int, sources: ConfigSources, *, opens: bool) -> None:
    others_are_let_in.set(await lets_others_in(sources))
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with AsyncExitStack() as stack:
            inspector = await stack.enter_async_context(serve_inspector(upstream, port))
            print_to_stderr(f"inspecting {upstream.url}")
            # On stdout, so that scripts can read it; it has the token.
            if not print_now(inspector.url):
                return
            if opens:
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                await anyio.to_thread.run_sync(_open, inspector.url, Path(folder))
            async for _ in signals:
                break


def _open(url: str, folder: Path) -> None:
    """Open the page in the user's browser.

    By way of a file, whose folder is for the user alone: every user of a machine can read the
    arguments that a browser is started with, and the address has the token.
    """
    file = folder / "inspector.html"
    file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={url}">\n')
    webbrowser.open(file.as_uri())
