"""app-server mcp: list, add and remove MCP servers, and sign in to them, with no server running."""

import argparse
import asyncio
import json
import re
import sys
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio.to_thread

from app_server.clients.command_line import command_parser
from app_server.config.editing.errors import NotRecorded
from app_server.config.editing.file import ConfigFile
from app_server.config.effective import ConfigSources, Configuration
from app_server.config.home import default_home, resolve_home
from app_server.config.values import Config, ConfigError, parse_override
from app_server.extension.registry import ExtensionRegistry
from app_server.mcp.catalog.catalog import ServerCatalog
from app_server.mcp.catalog.config import (
    LOCAL,
    VALID_NAME,
    HttpTransport,
    ServerConfig,
    ServerUnavailable,
    StdioTransport,
    read_mcp_settings,
)
from app_server.mcp.errors import OAuthFailed
from app_server.mcp.oauth.credentials import CredentialStore
from app_server.plugins.contributor import Plugins
from app_server.plugins.store import PluginStore
from app_server.runtime.loader import LoadFailed, load

if TYPE_CHECKING:
    from app_server.mcp.oauth.login import Login

TABLE = "mcp_servers"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

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


class Failed(Exception):
    """What was asked for cannot be done; the text is for the user."""


FAILURES = (Failed, ConfigError, LoadFailed, NotRecorded, OAuthFailed, ServerUnavailable)


ADD_EPILOG = """\
examples:
  app-server mcp add files -- npx -y some-mcp-server /data
                              a program, which this server runs
  app-server mcp add docs --url https://mcp.example.com/mcp --bearer-token-env-var DOCS_TOKEN
                              a server elsewhere; the token stays in the variable DOCS_TOKEN

What comes next: `app-server mcp login NAME` if it wants a sign-in; `app-server doctor --only mcp`
starts it and lists its tools."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status: 0, 1 for a failure, 2 for a wrong call."""
    parser = make_parser()
    # What follows is a command of somebody else's, with options of its own.
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    options.words = list(arguments[end + 1 :])
    if options.words and options.command != "add":
        parser.error("only add takes a command")
    if options.command == "add" and bool(options.url) == bool(options.words):
        parser.error("add takes either --url URL, or -- and a command")
    try:
        return asyncio.run(_run(options))
    except FAILURES as exc:
        print(f"app-server mcp: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


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
    listing = commands.add_parser(
        "list",
        parents=[common],
        help="show all servers",
        description="Show the MCP servers of config.toml and of plugins. None is started.",
    )
    listing.add_argument("--json", action="store_true", help="for programs, as JSON on stdout")
    getting = commands.add_parser(
        "get",
        parents=[named],
        help="show one server",
        description="Show how one MCP server is configured. Secrets are left out.",
    )
    getting.add_argument("--json", action="store_true", help="for programs, as JSON on stdout")
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
        "--env", action="append", metavar="KEY=VALUE", help="a variable for the process"
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
    login.add_argument("--scopes", metavar="SCOPE,SCOPE", help="what to ask for")
    login.add_argument("--no-browser", action="store_true", help="print the address only")
    commands.add_parser(
        "logout",
        parents=[named],
        help="delete the stored token",
        description="Delete the token of a sign-in. The server stays configured.",
    )
    return parser


async def _run(options: argparse.Namespace) -> int:
    home = resolve_home(options.home)
    overrides = dict(parse_override(text) for text in options.config or [])
    configuration = Configuration(
        ConfigSources(home, Path.cwd(), overrides=overrides, profile=options.profile)
    )
    config = await configuration.read()
    match options.command:
        case "list":
            servers = await _servers(config, home)
            _print_list([_shown(server) for server in servers.values()], as_json=options.json)
        case "get":
            _print_one(_shown(await _server(config, home, options.name)), as_json=options.json)
        case "add":
            await _add(options, config, ConfigFile(home))
        case "remove":
            await _remove(options.name, config, ConfigFile(home))
        case "login":
            await _login(options, await _server(config, home, options.name))
        case "logout":
            await _logout(await _server(config, home, options.name))
    return 0


async def _servers(config: Config, home: Path) -> Mapping[str, ServerConfig]:
    plugins = Plugins(PluginStore(home), lambda environment_id: True)
    await plugins.load()
    catalog = ServerCatalog(ExtensionRegistry([plugins]))
    return catalog.resolve(read_mcp_settings(config), config, "current").servers


async def _server(config: Config, home: Path, name: str) -> ServerConfig:
    servers = await _servers(config, home)
    if name not in servers:
        known = ", ".join(servers) or "none"
        raise Failed(f"no MCP server named `{name}`; there are: {known}")
    return servers[name]


async def _add(options: argparse.Namespace, config: Config, file: ConfigFile) -> None:
    name = options.name
    if VALID_NAME.fullmatch(name) is None:
        raise Failed(f"`{name}` is no name of a server: use letters, digits and _ : @ / . -")
    table: dict[str, Any] = {}
    if options.url is not None:
        if options.env:
            raise Failed("--env is for servers that are started, not for those behind a URL")
        if not _is_web(options.url):
            raise Failed(
                f"`{options.url}` is no URL of a server: it begins with https:// or http://"
            )
        table["url"] = options.url
        if options.bearer_token_env_var is not None:
            table["bearer_token_env_var"] = options.bearer_token_env_var
    else:
        if options.bearer_token_env_var is not None:
            raise Failed("--bearer-token-env-var is for servers behind a URL")
        table["command"], *table["args"] = options.words
        if variables := dict(_variable(text) for text in options.env or []):
            table["env"] = variables
    # Whatever does not fit is named before anything is written.
    read_mcp_settings(Config({TABLE: {name: table}}))

    def changed(edit: Any, found: Config) -> str:
        return str(edit.set_value(found.text, (TABLE, name), table))

    await file.change(changed)
    print(f"Added MCP server `{name}` to {file.path}.")


def _is_web(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return False


def _variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or _VARIABLE.fullmatch(name) is None:
        raise Failed(f"cannot read --env {name}: use KEY=VALUE")
    return name, value


async def _remove(name: str, config: Config, file: ConfigFile) -> None:
    def changed(edit: Any, found: Config) -> str:
        table = found.document.get(TABLE)
        if not isinstance(table, dict) or name not in table:
            raise Failed(f"{file.path} has no MCP server named `{name}`")
        return str(edit.remove(found.text, (TABLE, name)))

    await file.change(changed)
    print(f"Removed MCP server `{name}` from {file.path}.")


async def _login(options: argparse.Namespace, server: ServerConfig) -> None:
    transport, store = _signs_in(server)
    if server.environment_id != LOCAL:
        raise Failed(
            f"MCP server `{server.name}` is in the environment `{server.environment_id}`, which a "
            "running app-server knows: sign in there with mcpServer/oauth/login"
        )
    scopes = options.scopes.split(",") if options.scopes else None

    def show(url: str) -> None:
        print(f"Sign in to `{server.name}` in a browser:\n\n{url}\n", flush=True)
        if not options.no_browser:
            webbrowser.open(url)

    login = await load(_login_of)
    await login(server.name, transport, store, scopes).run(show)
    print(f"Signed in to MCP server `{server.name}`.")


def _login_of() -> "Callable[..., Login]":
    # It takes the MCP SDK, two thirds of what a command would import that only reads settings.
    from app_server.mcp.oauth.login import Login, LoginWishes
    from app_server.mcp.oauth.target import SignInTarget

    def make(
        name: str, transport: HttpTransport, store: CredentialStore, scopes: list[str] | None
    ) -> Login:
        return Login(SignInTarget(name, transport), store, LoginWishes(scopes=scopes))

    return make


async def _logout(server: ServerConfig) -> None:
    transport, store = _signs_in(server)
    remove = partial(store.remove, server.name, transport.url, server.environment_id)
    was_there = await anyio.to_thread.run_sync(remove)
    text = "The token of" if was_there else "There was no token of"
    print(f"{text} MCP server `{server.name}`{' is deleted' if was_there else ''}.")


def _signs_in(server: ServerConfig) -> tuple[HttpTransport, CredentialStore]:
    transport = server.transport
    if not isinstance(transport, HttpTransport) or transport.auth != "oauth":
        raise Failed(f"MCP server `{server.name}` does not sign in with OAuth")
    if transport.oauth.home is None:
        raise Failed(f"MCP server `{server.name}` has no place for a token")
    return transport, CredentialStore(transport.oauth.home, transport.oauth.store)


def _shown(server: ServerConfig) -> dict[str, Any]:
    """Show a server without what may be a secret: values of variables and headers."""
    transport = server.transport
    shown: dict[str, Any] = {"name": server.name, "enabled": server.enabled}
    if isinstance(transport, StdioTransport):
        shown["transport"] = {
            "type": "stdio",
            "command": transport.command,
            "args": list(transport.args),
            "env": sorted(transport.env),
            "env_vars": list(transport.env_vars),
            "cwd": transport.cwd,
        }
    else:
        shown["transport"] = {
            "type": "streamable_http",
            "url": transport.url,
            "bearer_token_env_var": transport.bearer_token_env_var,
            "http_headers": sorted(transport.http_headers),
            "env_http_headers": dict(transport.env_http_headers),
        }
    shown["environment_id"] = server.environment_id
    shown["startup_timeout_sec"] = server.startup_timeout_s
    shown["tool_timeout_sec"] = server.tool_timeout_s
    shown["enabled_tools"] = None if server.enabled_tools is None else list(server.enabled_tools)
    shown["disabled_tools"] = list(server.disabled_tools)
    shown["plugin_id"] = server.metadata.plugin_id
    if not server.allowed:
        shown["disabled_reason"] = "the administrator of this machine does not allow it"
    return shown


def _print_list(servers: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(list(servers), indent=2))
        return
    if not servers:
        print("No MCP servers are configured. Add one: app-server mcp add NAME -- COMMAND")
        return
    rows = [("NAME", "STATE", "WHERE")]
    for server in servers:
        transport = server["transport"]
        where = transport.get("url") or " ".join([transport["command"], *transport["args"]])
        rows.append((server["name"], "enabled" if server["enabled"] else "disabled", where))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, state, where in rows:
        print(f"{name:<{widths[0]}}  {state:<{widths[1]}}  {where}")


def _print_one(server: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(server, indent=2))
        return
    members = {**{key: value for key, value in server.items() if key != "transport"}}
    for key, value in ({"name": members.pop("name")} | server["transport"] | members).items():
        if value not in (None, [], {}):
            shown = " ".join(value) if isinstance(value, list) else value
            print(f"{key}: {shown}")
