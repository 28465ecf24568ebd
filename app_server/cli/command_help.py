"""`app-server demo --help` and `app-server mcp-server --help`.

The two commands take options of the server's own command line; most of those do not concern them.
"""

import argparse
from collections.abc import Callable, Mapping

from app_server.clients.command_line import command_parser

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

The exit status is 0 if every check holds, else 1. What comes next:
  app-server --listen ws://127.0.0.1:4500     serve editors and terminals
  app-server inspect                          look into that server from a browser"""


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
    """Describe what a demo can show."""
    parser = command_parser(
        "app-server", DEMO, DEMO_END, usage="app-server demo [--apps | --signals | --tools]"
    )
    for name, text in (
        ("--apps", "apps of a hosted endpoint that this package ships"),
        ("--signals", "two agents, one asks and the other is woken; then a crash in between"),
        ("--tools", "commands and patches in a scratch repository, questions, the sandbox"),
    ):
        parser.add_argument(name, action="store_true", help=text)
    return parser


PARSERS: Mapping[str, Callable[[], argparse.ArgumentParser]] = {
    "demo": demo_parser,
    "mcp-server": mcp_server_parser,
}
