"""The command line of `app-server mcp`."""

import argparse

from app_server.clients.command_line import command_parser
from app_server.config.home import default_home

EPILOG = """\
examples:
  app-server mcp list                                  what is configured, and what plugins bring
  app-server mcp add files -- npx -y some-mcp-server /data
  app-server mcp add docs --url https://mcp.example.com/mcp --bearer-token-env-var DOCS_TOKEN
  app-server mcp get docs --json
  app-server mcp login docs                            in the browser; the token goes into the home
  app-server mcp remove files

`add` and `remove` write config.toml in the home folder: --home, else APP_SERVER_HOME, else
CODEX_HOME, else {home}. Comments stay. A running server takes changes over with
`config/mcpServer/reload`, or when it starts the next time. Secrets are not written: name the
variable that has one. The exit status is 0, 1 for a failure, 2 for a wrong call."""


ADD_EPILOG = """\
examples:
  app-server mcp add files -- npx -y some-mcp-server /data
                              a program, which this server runs
  app-server mcp add docs --url https://mcp.example.com/mcp --bearer-token-env-var DOCS_TOKEN
                              a server elsewhere; the token stays in the variable DOCS_TOKEN

What comes next: `app-server mcp login NAME` if it wants a sign-in; `app-server doctor --only mcp`
starts it and lists its tools."""


def make_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--home", metavar="DIR", help="where settings and credentials are kept")
    common.add_argument(
        "-p",
        "--profile",
        metavar="NAME",
        help="put NAME.config.toml over config.toml; add and remove change config.toml",
    )
    common.add_argument(
        "-c", "--config", action="append", metavar="KEY=VALUE", help="override one setting"
    )
    parser = command_parser(
        "app-server mcp",
        "List, add and remove MCP servers, and sign in to them.",
        EPILOG.format(home=default_home()),
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    named = argparse.ArgumentParser(add_help=False, parents=[common])
    named.add_argument("name", metavar="NAME", help="the server, as `app-server mcp list` has it")
    shown = argparse.ArgumentParser(add_help=False)
    shown.add_argument("--json", action="store_true", help="for programs, as JSON on stdout")
    commands.add_parser(
        "list",
        parents=[common, shown],
        help="show all servers",
        description="Show the MCP servers of config.toml and of plugins. None is started.",
    )
    commands.add_parser(
        "get",
        parents=[named, shown],
        help="show one server",
        description="Show how one MCP server is configured. Secrets are left out.",
    )
    adding = commands.add_parser(
        "add",
        parents=[common],
        help="configure a server",
        usage="app-server mcp add NAME [options] (--url URL | -- COMMAND [ARGUMENT ...])",
        description="Write an MCP server into config.toml. One of this name is replaced.",
        epilog=ADD_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    adding.add_argument("name", metavar="NAME", help="letters, digits and _ : @ / . -")
    adding.add_argument("--url", metavar="URL", help="a server behind a URL (Streamable HTTP)")
    adding.add_argument(
        "--bearer-token-env-var", metavar="VARIABLE", help="the variable that has its token"
    )
    adding.add_argument(
        "--env",
        action="append",
        metavar="KEY=VALUE",
        help="a variable for the process; may be given several times",
    )
    commands.add_parser(
        "remove",
        parents=[named],
        help="take a server out",
        description="Take an MCP server out of config.toml.",
    )
    login = commands.add_parser(
        "login",
        parents=[named],
        help="sign in with OAuth",
        description="Sign in to an MCP server with a URL, in the browser (OAuth). The token is "
        "kept in the home folder, or in the keyring, and renewed.",
    )
    login.add_argument("--scopes", metavar="SCOPE,SCOPE", help="the scopes to ask for")
    login.add_argument(
        "--no-browser", action="store_true", help="print the address, and open no browser"
    )
    commands.add_parser(
        "logout",
        parents=[named],
        help="delete the stored token",
        description="Delete the token of a sign-in. The server stays configured.",
    )
    return parser
