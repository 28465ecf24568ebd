"""`coder install`: from a command line to what was found, written or could not be."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from app_server.clients.coder.install import Installation, check, homes, install
from app_server.clients.coder.options import AGENTS, spelled
from app_server.clients.command_line import command_parser
from app_server.clients.receiver.router.wire import KEY_VARIABLE, check_router_url
from app_server.config.home import resolve_home
from app_server.runtime.user_paths import expand_user

DESCRIPTION = """\
Make the receiver known to an agent, so that messages of other agents reach it: its entry
[mcp_servers.prism] in the config.toml of Codex, and in that of the app-server where that is another
file; and put the launcher where the shell finds it. What is as it should be is left alone, comments
too. No server is started, no port is bound."""

EPILOG = """\
example:
  coder install -router-url wss://router.example.com -session Texi -key-file ~/.router-key

The key itself is never written. Without a router the receiver carries only what waits already; a
router can be added by another run, or by the variables of `app-server receiver --help`."""


def main(words: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 1 if something is not as it should be."""
    parser = make_parser()
    options = parser.parse_args(words)
    try:
        receiver = _receiver_options(options)
    except ValueError as exc:
        parser.error(str(exc))
    wanted = Installation(
        homes=homes(resolve_home(None), os.environ),
        options=receiver,
        folder=expand_user(options.bin).absolute(),
    )
    is_good = True
    for is_there, sentence in check(options.agent):
        is_good = _report("ok" if is_there else "FAIL", sentence) and is_good
    if not is_good and not options.check:
        print("coder: nothing was written", file=sys.stderr)
        return 1

    async def go_through() -> bool:
        verdicts = install(wanted, write=not options.check)
        return all([_report(*verdict) async for verdict in verdicts])

    return 0 if asyncio.run(go_through()) and is_good else 1


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line of `coder install`."""
    usage = "coder install [OPTION...]"
    parser = command_parser("coder install", DESCRIPTION, EPILOG, usage=usage, allow_abbrev=False)
    parser.add_argument(
        *spelled("check"),
        action="store_true",
        help="say what is there and what would be written; write nothing",
    )
    parser.add_argument(
        *spelled("agent"), choices=AGENTS, default=AGENTS[0], help="which agent (%(default)s)"
    )
    parser.add_argument(*spelled("router-url"), metavar="URL", help="the router, wss://HOST/PATH")
    parser.add_argument(*spelled("session"), metavar="NAME", help="the agent's name there")
    parser.add_argument(
        *spelled("key-file"),
        type=Path,
        metavar="FILE",
        help=f"a file with the key to the router (default: the variable {KEY_VARIABLE})",
    )
    parser.add_argument(
        *spelled("bin"),
        type=Path,
        default=Path("~/.local/bin"),
        metavar="DIR",
        help="where the launcher is put if it is not on PATH (default: %(default)s)",
    )
    return parser


def _receiver_options(options: argparse.Namespace) -> dict[str, str]:
    given: dict[str, str] = {}
    if options.router_url is not None:
        given["--router-url"] = check_router_url(options.router_url)
    if options.session is not None:
        if not options.session:
            raise ValueError("-session must be a name")
        given["--session"] = options.session
    if options.key_file is not None:
        given["--key-file"] = str(expand_user(options.key_file).absolute())
    return given


def _report(verdict: str, sentence: str) -> bool:
    print(f"{verdict:<4} {sentence}")
    return verdict != "FAIL"
