"""`app-server exec`: from a command line to one turn of a thread, and its exit status.

Source: docs/exec.md.
"""

import argparse
import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from app_server.cli.exec.command_line import (
    PROGRAM,
    is_in_repository,
    make_parser,
    make_request,
    parse,
    read_call,
    read_overrides,
)
from app_server.clients.chosen_server import URL_VARIABLE, NoOneServer, server_address
from app_server.clients.command_line import working_folder
from app_server.clients.exec.events import JsonLines
from app_server.clients.exec.progress import Progress
from app_server.clients.exec.run import (
    ANSWER_S,
    CAPABILITIES,
    ExecRequest,
    NoThread,
    Outcome,
    Run,
    own_server,
)
from app_server.config.home import HOME_VARIABLE, resolve_home
from app_server.config.store_url import chosen_store
from app_server.config.values import ConfigError
from app_server.observability.log import read_log_settings, set_up_logs
from app_server.peer.address import HandshakeRefused, ServerAddress
from app_server.peer.connection import Client, open_client
from app_server.peer.token_file import NoToken, TokenWanted
from app_server.runtime.loader import LoadFailed
from app_server.runtime.open_files import raise_limit
from app_server.runtime.standard_streams import (
    lacks_working_directory,
    print_now,
    print_to_stderr,
)
from app_server.server.settings import Settings
from protocol.jsonrpc.errors import RpcError

NAME_VARIABLE = "CODEX_INTERNAL_ORIGINATOR_OVERRIDE"
"""Name of the program that starts this one; the SDK for TypeScript sets it."""
KEY_VARIABLE = "CODEX_API_KEY"
"""API key of OpenAI for this run; stronger than an account that is signed in."""
OPENAI_KEY = "OPENAI_API_KEY"

UNTRUSTED = (
    "Not inside a trusted directory: {folder} is in no Git repository, where changes could be "
    "taken back; --skip-git-repo-check goes on all the same"
)


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    parser = make_parser()
    options = parse(parser, arguments)
    try:
        call = read_call(options)
        set_up_logs(read_log_settings(os.environ, options.log_level, options.log_format))
        overrides = read_overrides(options)
    except (ValueError, ConfigError) as exc:
        parser.error(str(exc))
    folder = working_folder(parser, options.cd)
    if not (options.skip_git_repo_check or options.bypass or is_in_repository(folder)):
        return _failed(UNTRUSTED.format(folder=folder))
    try:
        request = make_request(options, call, overrides, folder)
        server = _chosen_server(options)
    except NoOneServer as exc:
        print_to_stderr(f"{PROGRAM}: {exc}")
        return exc.exit_status
    except ValueError as exc:
        return _failed(str(exc))
    except OSError as exc:
        if lacks_working_directory(exc):
            raise
        return _failed(f"{exc.filename}: {exc.strerror}")
    try:
        return _run(options, request, server, overrides)
    except KeyboardInterrupt:
        return 130


def _chosen_server(options: argparse.Namespace) -> ServerAddress | None:
    """Return the server that runs, if one is to be used; raises as `server_address`."""
    is_named = options.home is None and os.environ.get(URL_VARIABLE)
    if not (options.url or options.attach or is_named):
        return None
    if options.strict_config:
        raise ValueError("--strict-config is for a server of its own")
    if os.environ.get(KEY_VARIABLE):
        print_to_stderr(f"{KEY_VARIABLE} is not used: a server that runs has its own credentials")
    home = options.home
    if options.attach and options.url is None and home is None:
        # Stronger than the variable.
        home = str(resolve_home(None))
    return server_address(options.url, home, options.token_file, PROGRAM, "--url")


def _run(
    options: argparse.Namespace,
    request: ExecRequest,
    server: ServerAddress | None,
    overrides: Mapping[str, Any],
) -> int:
    try:
        outcome = asyncio.run(_converse(options, request, server, overrides))
    except RpcError as exc:
        return _failed(exc.message)
    except (NoThread, NoToken, TokenWanted, HandshakeRefused, ConfigError, LoadFailed) as exc:
        return _failed(str(exc))
    except (OSError, anyio.EndOfStream) as exc:
        if isinstance(exc, OSError) and lacks_working_directory(exc):
            raise
        where = "" if server is None else f"no server answers at {server.url}: "
        return _failed(f"{where}{str(exc) or 'the connection ended'}")
    if options.output_last_message is not None:
        try:
            options.output_last_message.write_text(outcome.message, encoding="utf-8")
        except OSError as exc:
            return _failed(f"{options.output_last_message}: {exc.strerror}")
        if not outcome.message:
            print_to_stderr(
                f"{PROGRAM}: there is no last message; {options.output_last_message} is empty"
            )
    if not options.json and outcome.status == "completed" and not print_now(outcome.message):
        return 1
    return outcome.exit_status


async def _converse(
    options: argparse.Namespace,
    request: ExecRequest,
    server: ServerAddress | None,
    overrides: Mapping[str, Any],
) -> Outcome:
    presenter = JsonLines() if options.json else Progress()
    write = print_now if options.json else _told
    async with _connected(options, server, overrides) as client:
        return await Run(client, request, presenter, write).carry_out()


@asynccontextmanager
async def _connected(
    options: argparse.Namespace, server: ServerAddress | None, overrides: Mapping[str, Any]
) -> AsyncIterator[Client]:
    name = os.environ.get(NAME_VARIABLE) or "app-server-exec"
    if server is None:
        async with own_server(_settings(options, overrides), name) as client:
            yield client
        return
    async with open_client(
        server.url, name, wait_s=ANSWER_S, token_file=server.token_file, **CAPABILITIES
    ) as client:
        yield client


def _settings(options: argparse.Namespace, overrides: Mapping[str, Any]) -> Settings:
    """Return the settings of a server of its own; changes the environment, which it reads.

    Raises:
        ConfigError
    """
    home = resolve_home(options.home)
    if options.home is not None:
        # For those of its MCP servers that name the variable.
        os.environ[HOME_VARIABLE] = str(home)
    chosen = dict(overrides)
    if key := os.environ.get(KEY_VARIABLE):
        # An account that is signed in is used before the variable, but not before a named one.
        os.environ[OPENAI_KEY] = key
        chosen.setdefault("model_providers.openai.env_key", KEY_VARIABLE)
        chosen.setdefault("model_providers.openai.name", "OpenAI")
    raise_limit()
    return Settings(
        home=home,
        listen=(),
        overrides=chosen,
        profile=options.profile,
        is_strict=options.strict_config,
        store=chosen_store(None, chosen, os.environ),
        drain_s=0.0,
    )


def _told(line: str) -> bool:
    """Print a line of progress; that nobody reads it ends no run."""
    print_to_stderr(line)
    return True


def _failed(text: str) -> int:
    print_to_stderr(f"{PROGRAM}: {text}")
    return 1
