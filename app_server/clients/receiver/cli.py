"""`app-server receiver`: from a command line to a running bridge, or to the demo router."""

import argparse
import asyncio
import importlib
import logging
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from app_server import VERSION
from app_server.clients.command_line import (
    MAX_PORT,
    add_folder,
    command_parser,
    whole_number,
    working_folder,
)
from app_server.clients.receiver.agent.environment import MODE_VARIABLE, THREAD_VARIABLE
from app_server.clients.receiver.agent.environment import URL_VARIABLE as APP_SERVER_VARIABLE
from app_server.clients.receiver.ledger import LedgerBroken, open_ledger
from app_server.clients.receiver.router.envelope import Mode
from app_server.clients.receiver.router.wire import (
    KEY_VARIABLE,
    SESSION_VARIABLE,
    URL_VARIABLE,
    RouterAddress,
    check_router_url,
)
from app_server.clients.receiver.run import ReceiverSettings, serve
from app_server.config.home import resolve_home
from app_server.observability.log import add_log_options, read_log_settings, set_up_logs
from app_server.peer.token_file import (
    MAX_TOKEN_BYTES,
    TOKEN_FILE_HELP,
    TOKEN_FILE_VARIABLE,
    take_token,
)
from app_server.runtime.files.secret import StoreFailed, lock_file, read_private, write_private
from app_server.runtime.standard_streams import lacks_working_directory, print_to_stderr

DEFAULT_SESSION = "agent"

ELSEWHERE = "Take away what is there in its place, or name another folder with --home."

DESCRIPTION = """\
Carry messages of other agents ("signals") from a router into the thread of the agent that started
this. An MCP server on stdio for the agent; a client of the router and of an app-server. What
cannot be put into the thread waits on disk, and comes with the next result of one of the receiver's
tools; prism_signals_pending is the one to ask."""

EPILOG = f"""\
An agent starts it. `coder install` writes what is needed into the agent's config.toml:
  [mcp_servers.prism]
  command = "app-server"
  args = ["receiver", "--router-url", "wss://router.example.com", "--session", "Texi"]
  env_vars = ["{KEY_VARIABLE}", "{MODE_VARIABLE}", "{APP_SERVER_VARIABLE}"]

To try it on one machine:
  app-server receiver --demo-router --port 4700
  app-server receiver --router-url ws://127.0.0.1:4700 --session Texi --key-file KEY_FILE
where KEY_FILE is what the first command prints.

variables:
  {KEY_VARIABLE}               the key to the router, unless --key-file is given; it is sent as a
                              bearer token in a header, and written nowhere
  {URL_VARIABLE}, {SESSION_VARIABLE}
                              the same as --router-url and --session
  {MODE_VARIABLE}
                              off: never use an app-server; auto (the default), local: use one if
                              it is there
  {APP_SERVER_VARIABLE}  where it is: ws://127.0.0.1:PORT or unix://PATH; without it the
                              socket app-server.sock in the home folder is tried
  {TOKEN_FILE_VARIABLE}       the same as --token-file
  {THREAD_VARIABLE}       the thread, unless it is the newest loaded one of this folder"""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 1 for a failure, 2 for a wrong call."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        set_up_logs(read_log_settings(os.environ, options.log_level, options.log_format))
    except ValueError as exc:
        parser.error(str(exc))
    for name in ("mcp", "websockets"):
        # Below that they write headers and whole URLs.
        logging.getLogger(name).setLevel(logging.WARNING)
    home = resolve_home(options.home)
    try:
        if options.demo_router:
            return _route(home, options)
        if options.port:
            parser.error("--port is for --demo-router")
        return _bridge(home, working_folder(parser, options.cd), options)
    except ValueError as exc:
        parser.error(str(exc))
    except OSError as exc:
        if lacks_working_directory(exc):
            raise
        print(f"app-server: {exc}", file=sys.stderr)
        return 1
    except (StoreFailed, LedgerBroken) as exc:
        print(f"app-server: {exc}\n{ELSEWHERE}", file=sys.stderr)
        return 1


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = command_parser("app-server receiver", DESCRIPTION, EPILOG)
    parser.add_argument(
        "--router-url",
        metavar="URL",
        help="wss://HOST/PATH, or ws:// on this machine; without a router only what waits already "
        "is carried",
    )
    parser.add_argument(
        "--session",
        metavar="NAME",
        help=f"the agent's name at the router (default: {SESSION_VARIABLE}, else "
        f"{DEFAULT_SESSION})",
    )
    parser.add_argument(
        "--key-file", type=Path, metavar="FILE", help="a file with the key to the router"
    )
    parser.add_argument("--thread", metavar="ID", help="the thread that signals go to")
    add_folder(parser, "--cd")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help=TOKEN_FILE_HELP)
    for name, what in (("wake", "wake an idle thread"), ("passive", "wait for the next turn")):
        parser.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar="TYPE",
            help=f"signals of this type {what}, whatever they say; may be given several times",
        )
    parser.add_argument("--home", metavar="DIR", help="where the ledger is kept")
    parser.add_argument(
        "--demo-router", action="store_true", help="run a router on this machine instead"
    )
    parser.add_argument(
        "--port",
        type=whole_number(0, MAX_PORT),
        default=0,
        metavar="N",
        help="of the demo router (default: a free one)",
    )
    add_log_options(parser)
    return parser


def _bridge(home: Path, folder: Path, options: argparse.Namespace) -> int:
    environ = dict(os.environ)
    if options.thread:
        environ[THREAD_VARIABLE] = options.thread
    if options.token_file:
        environ[TOKEN_FILE_VARIABLE] = str(options.token_file)
    modes: dict[str, Mode] = dict.fromkeys(options.passive, "passive")
    modes.update(dict.fromkeys(options.wake, "wake"))
    session = options.session or environ.get(SESSION_VARIABLE) or DEFAULT_SESSION
    url = options.router_url or environ.get(URL_VARIABLE)
    router = None
    if url:
        router = RouterAddress(check_router_url(url), session, _key(options.key_file))
    settings = ReceiverSettings(
        session=session,
        home=home,
        cwd=folder,
        environ=environ,
        router=router,
        modes=modes,
    )
    if sys.stdin is not None and sys.stdin.isatty():
        print_to_stderr(
            "app-server receiver: an agent is expected on stdin, which speaks MCP; without one "
            "signals are injected all the same. Ctrl-D ends it."
        )
    with open_ledger(settings.ledger_path) as ledger, lock_file(settings.lock_path) as lock:
        asyncio.run(serve(settings, ledger, lock, VERSION))
    return 0


def _key(file: Path | None) -> str:
    key = take_token("key", KEY_VARIABLE, file)
    if key is None:
        raise ValueError(f"there is no key to the router: set {KEY_VARIABLE}, or use --key-file")
    return key


def _route(home: Path, options: argparse.Namespace) -> int:
    folder = home / "receiver"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key_file = options.key_file
    if key_file is None and not os.environ.get(KEY_VARIABLE):
        key_file = folder / "demo-router.key"
        if read_private(key_file, MAX_TOKEN_BYTES) is None:
            write_private(key_file, secrets.token_urlsafe(32).encode())
    key = _key(key_file)

    def ready(url: str) -> None:
        if key_file is not None:
            print_to_stderr(f"key file: {key_file}")
        print_to_stderr(f"listening on: {url}")

    # Imported late: a bridge has no use for it.
    router = importlib.import_module("app_server.clients.receiver.demo_router.server")
    asyncio.run(router.run(folder / "demo-router.sqlite3", key, options.port, ready))
    return 0
