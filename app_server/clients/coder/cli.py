"""`coder`: from a command line to an agent with an app-server beside it."""

import argparse
import importlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from app_server.clients.coder.plan import AGENTS, FIRST_PORT, LAST_PORT, Plan, spelled
from app_server.clients.command_line import (
    MAX_PORT,
    add_folder,
    command_parser,
    whole_number,
    working_folder,
)
from app_server.clients.receiver.agent.environment import MODES, check_url
from app_server.config.home import resolve_home
from app_server.peer.token_file import TOKEN_FILE_VARIABLE, chosen_token_file
from app_server.runtime.standard_streams import standard_streams

INSTALL = "install"

DESCRIPTION = """\
Start an agent with an app-server of its own beside it, so that messages of other agents come into
its conversation. The server ends with the agent; the exit status is the agent's."""

EPILOG = f"""\
examples:
  coder -agent codex                          a server if there can be one, and codex --remote
  coder -agent codex -dry-run                 say what would be started, and start nothing
  coder -agent codex -codex-app-server off    codex alone
  coder -agent codex -cd ~/project -sandbox workspace-write -- --model gpt-5
                                              what follows -- is for the agent
  coder install                               make the receiver known to the agent (--help)
  coder install --check                       whether everything is there

Ports {FIRST_PORT} to {LAST_PORT} are tried in order. The server and the agent are given
PRISM_AGENT_SURFACE, PRISM_CODEX_APP_SERVER_MODE and PRISM_CODEX_APP_SERVER_URL, where
`app-server receiver` finds them. What happens is logged to coder/coder.log in the home folder
(APP_SERVER_HOME, else CODEX_HOME, else the platform's)."""


def main() -> int:
    """Run the command line; returns the agent's exit status, or 2 if it was not started."""
    with standard_streams("coder") as end:
        end.status = _run(sys.argv[1:])
    return end.status


def _run(words: list[str]) -> int:
    own, rest = words, []
    if "--" in words:
        cut = words.index("--")
        own, rest = words[:cut], words[cut + 1 :]
    if own[:1] == [INSTALL]:
        # Imported late: a session has no use for what writes config.toml.
        status: int = importlib.import_module("app_server.clients.coder.install_cli").main(own[1:])
        return status
    parser = make_parser()
    options, unknown = parser.parse_known_args(own)
    if unknown:
        words_of = " ".join(unknown)
        parser.error(f"unrecognized arguments: {words_of}; what is for the agent follows --")
    try:
        plan = make_plan(options, working_folder(parser, options.cd), rest)
    except ValueError as exc:
        parser.error(str(exc))
    if options.dry_run:
        print(plan.describe())
        return 0
    if shutil.which(plan.agent) is None:
        print(f"coder: {plan.agent} was not found on PATH", file=sys.stderr)
        return 2
    # Imported late: neither a plan nor the help has a use for it.
    session = importlib.import_module("app_server.clients.coder.session")
    try:
        ended: int = session.run(plan)
    except KeyboardInterrupt:
        return 130
    except session.FAILURES as exc:
        print(f"coder: {exc}", file=sys.stderr)
        return 2
    return ended


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    usage = "coder [OPTION...] [-- WORDS FOR THE AGENT]\n       coder install [OPTION...]"
    parser = command_parser("coder", DESCRIPTION, EPILOG, usage=usage, allow_abbrev=False)
    parser.add_argument(
        *spelled("agent"), choices=AGENTS, default=AGENTS[0], help="which agent (%(default)s)"
    )
    parser.add_argument(
        *spelled("codex-app-server"),
        choices=list(MODES),
        default="auto",
        help="off: none; local: exit with 2 if there can be none; auto: go on without one "
        "(default: %(default)s)",
    )
    parser.add_argument(
        *spelled("codex-app-server-url"),
        metavar="URL",
        help="use the app-server that is there: ws://127.0.0.1:PORT",
    )
    parser.add_argument(
        *spelled("codex-app-server-port"),
        type=whole_number(1, MAX_PORT),
        default=FIRST_PORT,
        metavar="PORT",
        help="the first port to try (default: %(default)d)",
    )
    parser.add_argument(
        *spelled("codex-app-server-token-file"),
        type=Path,
        metavar="FILE",
        help="where the server writes its token, or the one that is there has it; the agent and "
        f"the receiver are told (default, with a URL: {TOKEN_FILE_VARIABLE})",
    )
    add_folder(parser, *spelled("cd"))
    parser.add_argument(
        *spelled("sandbox"),
        metavar="MODE",
        help="passed on: read-only, workspace-write or danger-full-access",
    )
    parser.add_argument(
        *spelled("ask-for-approval"), metavar="POLICY", help="passed on: on-request or never"
    )
    parser.add_argument(
        *spelled("full-auto"),
        action="store_true",
        help="work in the folder without being asked for each command: -sandbox workspace-write "
        "-ask-for-approval on-request, unless they are given",
    )
    parser.add_argument(
        *spelled("dry-run"),
        action="store_true",
        help="print the plan, the command lines and the variables; start nothing",
    )
    return parser


def make_plan(options: argparse.Namespace, folder: Path, rest: Sequence[str]) -> Plan:
    """Read the options.

    Raises:
        ValueError: with a sentence that says what would be accepted.
    """
    words: list[str] = []
    sandbox, approval = options.sandbox, options.ask_for_approval
    if options.full_auto:
        # Codex has no option of this name any more; these two are what it meant.
        sandbox, approval = sandbox or "workspace-write", approval or "on-request"
    if sandbox is not None:
        words += ["--sandbox", sandbox]
    if approval is not None:
        words += ["--ask-for-approval", approval]
    url = options.codex_app_server_url
    if url is not None and (not url.startswith("ws://") or check_url(url) != url):
        raise ValueError("-codex-app-server-url must be ws://127.0.0.1:PORT")
    return Plan(
        agent=options.agent,
        mode=MODES[options.codex_app_server],
        home=resolve_home(None),
        folder=folder,
        agent_words=[*words, *rest],
        url=url,
        first_port=options.codex_app_server_port,
        token_file=chosen_token_file(
            options.codex_app_server_token_file, {} if url is None else os.environ
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
