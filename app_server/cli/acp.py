"""`app-server acp`: the Agent Client Protocol on stdin and stdout, for the editor that starts it.

Source: docs/acp.md, "Start and end".
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

import anyio

from app_server.clients.chosen_server import NoOneServer, server_address, server_parser
from app_server.clients.command_line import command_parser
from app_server.config.home import HOME_VARIABLE, resolve_home
from app_server.config.values import ConfigError
from app_server.observability.log import add_log_options, read_log_settings, set_up_logs
from app_server.peer.address import ServerAddress
from app_server.peer.relay import relay
from app_server.runtime.exception_groups import only_member
from app_server.runtime.loader import LoadFailed
from app_server.transport.stdio import open_stdio

ACP_PATH = "/acp"
"""Of a server's address."""
SWITCH_S = 0.001
"""After which a worker thread hands the interpreter to the event loop, which waits for it."""

DESCRIPTION = """\
Speak the Agent Client Protocol on stdin and stdout, for an editor such as Zed, Neovim or Emacs.
Its sessions are ordinary threads: other clients of the server see them, and can go on with them."""

EPILOG = """\
An editor starts it. In the settings of Zed:
  {"agent_servers": {"app-server": {"command": "app-server", "args": ["acp"]}}}

examples:
  app-server acp                                a server that runs with the usual home folder, or
                                                one of its own
  app-server acp --url ws://127.0.0.1:4500      that server
  app-server acp --home DIR                     the server of another home folder
  app-server acp -c model_provider=offline      always a server of its own, with this setting

The server is that of --url, else the one that runs with --home, else APP_SERVER_URL, else the one
that runs with the usual home folder. Where none runs, or with -c or --profile, it is one in this
process, which ends with the editor. Over a WebSocket a server is asked for /acp at its address. The
exit status is 0, 1 for a failure and 2 for a wrong call (also if several servers run)."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 1 for a failure, 2 for a wrong call."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        set_up_logs(read_log_settings(os.environ, options.log_level, options.log_format))
        server = None if options.config or options.profile else _running_server(options)
        if server is not None:
            return asyncio.run(_relay(server))
        return _serve_here(options)
    except ValueError as exc:
        parser.error(str(exc))
    except NoOneServer as exc:
        print(f"app-server acp: {exc}", file=sys.stderr)
        return exc.exit_status
    except KeyboardInterrupt:
        return 130
    except (ConfigError, LoadFailed, OSError) as exc:
        print(f"app-server acp: {exc}", file=sys.stderr)
        return 1


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = command_parser("app-server acp", DESCRIPTION, EPILOG, parents=[server_parser()])
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one setting of config.toml, for a server of its own; may be given several "
        "times",
    )
    parser.add_argument(
        "-p",
        "--profile",
        metavar="NAME",
        help="put the settings of NAME.config.toml in the home folder over those of config.toml, "
        "for a server of its own",
    )
    add_log_options(parser)
    return parser


def _running_server(options: argparse.Namespace) -> ServerAddress | None:
    """Return the server that is meant; None where none runs, and none is named."""
    try:
        return server_address(
            options.url, options.home, options.token_file, "app-server acp", "--url", wait_s=0
        )
    except NoOneServer as exc:
        if exc.are_several:
            raise
        return None


async def _relay(server: ServerAddress) -> int:
    """Pass messages between the editor and a server; returns the exit status."""
    if await relay(replace(server, path=ACP_PATH), await open_stdio()):
        return 0
    print(f"app-server acp: the server at {server.url} has gone", file=sys.stderr)
    return 1


def _serve_here(options: argparse.Namespace) -> int:
    """Serve the editor with a server in this process; returns the exit status."""
    # The program that only passes messages on has no use for them.
    from app_server.config.config_toml import parse_override
    from app_server.config.store_url import chosen_store
    from app_server.runtime.open_files import raise_limit
    from app_server.server.app import AppServer, serve_until_signalled
    from app_server.server.settings import Settings

    home = resolve_home(options.home)
    overrides = dict(parse_override(text) for text in options.config)
    settings = Settings(
        home=home,
        listen=[],
        overrides=overrides,
        profile=options.profile,
        store=chosen_store(None, overrides, os.environ),
    )
    if options.home is not None:
        # For those of its MCP servers that name the variable: they look for the server there.
        os.environ[HOME_VARIABLE] = str(home)
    raise_limit()
    sys.setswitchinterval(SWITCH_S)

    async def serve() -> None:
        server = AppServer(settings)

        async def converse() -> None:
            await server.serve_acp(await open_stdio())
            # The only client there will ever be has gone: nobody waits for its turns.
            server.stop()
            server.stop()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(converse)
            await serve_until_signalled(server, lambda urls: None)
            tasks.cancel_scope.cancel()

    try:
        asyncio.run(serve())
    except BaseExceptionGroup as group:
        raise only_member(group) from None
    return 0
