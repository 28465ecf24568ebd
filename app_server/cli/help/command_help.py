"""The texts of `app-server --help`, and the help of `app-server demo` and `app-server mcp-server`.

These two commands take options of the server's own command line; most of those do not concern them.
"""

import argparse
from collections.abc import Callable, Mapping

from app_server.clients.command_line import command_parser
from app_server.config.home import default_home
from app_server.config.requirements import SYSTEM_REQUIREMENTS

SERVER = """\
An app-server for agent threads: JSON-RPC over a loopback WebSocket, a Unix socket or stdio.

first steps:
  app-server demo                                 see it work, without an account
  app-server doctor                               check the home folder and this machine
  app-server --listen ws://127.0.0.1:4500         serve editors and terminals
  app-server inspect                              look into that server from a browser

commands (help COMMAND, or COMMAND --help, says more of each):
  serve            serve clients, as without a command; also named app-server, for launchers
  demo             start a server with the offline model and a real MCP server, and check every
                   step of a conversation
  doctor           check the home folder and this machine, and say what to do
  config           check config.toml, and print its JSON Schema for editors
  inspect          look into a running server from a browser
  status           list the servers that run with a home folder
  usage            print tokens, requests, seconds and cost, by day, model, thread or folder
  store            make, check and copy the database that threads are kept in
  mcp              list, add, remove and sign in to MCP servers
  acp              serve an editor on stdio by the Agent Client Protocol
  mcp-server       serve an MCP client on stdio: the tools codex and codex-reply run turns
  signal           put messages into threads of a running server
  receiver         put messages of other agents into threads
  exec             run one turn of an agent and end with it, for scripts and SDKs
  exec-server      run processes here for a server elsewhere
  bench            measure running servers side by side
  completion       print a script with which bash, zsh or fish completes all of this
  generate-json-schema, generate-ts
                   write the wire's types for authors of clients"""

SERVER_END = """\
examples:
  app-server -c model='"gpt-5"' --listen stdio://
                                                  serve the program that started this one
  app-server --listen ws://127.0.0.1:0 --listen unix://
                                                  any free port, and a socket in the home folder
  app-server --listen ws://127.0.0.1:4500 --token-file ~/.app-server-token
                                                  let in only who can read that file
  app-server generate-json-schema --out DIR       a file for each type of the wire

The bound addresses are printed to stderr, a line each. Settings come from config.toml in the home
folder: --home, else APP_SERVER_HOME, else CODEX_HOME, else
{home}.
Without a model provider in config.toml and without OPENAI_API_KEY the built-in offline model
answers. What the administrator of this machine demands is in {requirements}.
SIGTERM lets running turns end, a second one stops them; either way their end is in the log."""

MCP_SERVER = """\
Serve an MCP client on stdin and stdout. It gets two tools: codex starts a thread and runs its first
turn, codex-reply runs another turn of a thread. The threads are ordinary ones in the home folder,
and other clients can go on with them.
"""

MCP_SERVER_END = """\
An MCP client starts it. In the configuration of most of them:
  {"mcpServers": {"codex": {"command": "app-server", "args": ["mcp-server"]}}}

examples:
  app-server mcp-server --home DIR                  threads and settings of another home folder
  app-server mcp-server -c model_provider=offline   without an account: the built-in offline model

What needs an approval is put to the user by the MCP client, if it can ask (elicitation). All other
options of app-server --help count too, but --listen is refused."""

DEMO = """\
Start a server with the built-in offline model in a folder of its own, talk to it as a client, and
check every step. This needs no account, changes nothing of yours and takes some seconds.
"""

DEMO_END = """\
examples:
  app-server demo                turns, an MCP tool, a signal, and a restart that loses nothing
  app-server demo --tools        what commands and patches can do, and what the sandbox stops
  app-server demo --fleet        two nodes on one PostgreSQL; one dies, and its thread goes on

The exit status is 0 if every check holds, else 1. What comes next:
  app-server --listen ws://127.0.0.1:4500     serve editors and terminals
  app-server inspect                          look into that server from a browser"""


def server_end() -> str:
    """Return the end of the server's help, with the default home."""
    return SERVER_END.format(home=default_home(), requirements=SYSTEM_REQUIREMENTS)


def mcp_server_parser() -> argparse.ArgumentParser:
    """Describe the options that matter to an MCP server."""
    parser = command_parser(
        "app-server", MCP_SERVER, MCP_SERVER_END, usage="app-server mcp-server [options]"
    )
    parser.add_argument(
        "--home", metavar="DIR", help="where settings and threads are kept (default: the server's)"
    )
    parser.add_argument(
        "-c", "--config", metavar="KEY=VALUE", help="override one setting of config.toml"
    )
    parser.add_argument(
        "-p", "--profile", metavar="NAME", help="put NAME.config.toml over config.toml"
    )
    parser.add_argument(
        "--log-level", metavar="LEVELS", help="what goes to stderr (default: warning)"
    )
    return parser


def demo_parser() -> argparse.ArgumentParser:
    """Make the parser of `demo`."""
    parser = command_parser(
        "app-server",
        DEMO,
        DEMO_END,
        usage="app-server demo [--apps | --fleet | --signals | --tools | --unattended]",
    )
    for name, text in (
        ("--apps", "apps of a hosted endpoint that this package ships"),
        ("--fleet", "two nodes on one database, and the death of one; needs PostgreSQL"),
        ("--signals", "two agents, one asks and the other is woken; then a crash in between"),
        ("--tools", "commands and patches in a scratch repository, questions, the sandbox"),
        (
            "--unattended",
            "a thread that nobody watches: woken, asking by webhook, held by a budget",
        ),
    ):
        parser.add_argument(name, action="store_true", help=text)
    return parser


PARSERS: Mapping[str, Callable[[], argparse.ArgumentParser]] = {
    "demo": demo_parser,
    "mcp-server": mcp_server_parser,
}
