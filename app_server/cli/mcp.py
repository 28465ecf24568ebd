"""app-server mcp: MCP servers of a home, and of the app-server that runs with it."""

import argparse
import asyncio
import json
import re
import sys
import webbrowser
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from app_server.clients.chosen_server import NoOneServer, server_address
from app_server.clients.command_line import command_parser
from app_server.config.config_toml import parse_override, profile_file
from app_server.config.editing.file import ConfigFile
from app_server.config.effective import ConfigSources, Configuration, lets_others_in
from app_server.config.home import default_home, resolve_home
from app_server.config.values import Config, ConfigError, NotRecorded, has
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.extensions.plugins.contributor import Plugins
from app_server.extensions.plugins.store import PluginStore
from app_server.mcp.catalog.catalog import ServerCatalog
from app_server.mcp.catalog.config import (
    DEFAULT_IDLE_S,
    LOCAL,
    VALID_NAME,
    HttpTransport,
    ServerConfig,
    ServerUnavailable,
    StdioTransport,
)
from app_server.mcp.catalog.tables import broken_servers, read_mcp_settings, without_servers
from app_server.mcp.errors import OAuthFailed
from app_server.mcp.oauth.credentials import CredentialStore
from app_server.mcp.oauth.target import SignInTarget
from app_server.peer.connection import Client, open_client
from app_server.runtime.http.peer_user import others_are_let_in
from app_server.runtime.loader import LoadFailed
from app_server.runtime.standard_streams import one_line
from app_server.server.home import HomeUnusable, prepare_home
from app_server.threads.opening.servers import running_servers
from protocol.jsonrpc.errors import RpcError

EPILOG = """\
examples:
  app-server mcp list                                  what is configured, and what plugins bring
  app-server mcp add files -- npx -y some-mcp-server /data
  app-server mcp add docs --url https://mcp.example.com/mcp --bearer-token-env-var DOCS_TOKEN
  app-server mcp get docs --json
  app-server mcp login docs                            in the browser; the token goes into the home
  app-server mcp disable docs                          and `enable`: for all threads, until changed
  app-server mcp restart files                         in the app-server that runs
  app-server mcp logs files                            what it wrote to stderr and logged
  app-server mcp remove files

`add`, `remove`, `enable` and `disable` write config.toml in the home folder: --home, else
APP_SERVER_HOME, else CODEX_HOME, else {home}. Comments stay. A server that runs with this home
takes changes over between two requests to a model; calls that run end first. `restart` and `logs`
ask the server that runs; `app-server status` lists those of a home. Secrets are not written: name
the variable that has one. The exit status is 0, 1 for a failure, 2 for a wrong call."""


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
    reaching = argparse.ArgumentParser(add_help=False, parents=[named])
    reaching.add_argument(
        "--server", metavar="URL", help="the app-server to ask, where several run with the home"
    )
    reaching.add_argument("--token-file", metavar="FILE", type=Path, help="the token that it wants")
    commands.add_parser(
        "enable",
        parents=[reaching],
        help="switch a server on",
        description="Switch an MCP server on, in config.toml; one of a plugin in the plugin's "
        "table. What no file sets up (a server of an extension, an app or a thread's plugin) is "
        "switched in [mcp_switches], with an app-server that runs or without.",
    )
    commands.add_parser(
        "disable",
        parents=[reaching],
        help="switch a server off",
        description="Switch an MCP server off, in config.toml; one of a plugin in the plugin's "
        "table. What no file sets up (a server of an extension, an app or a thread's plugin) is "
        "switched in [mcp_switches], with an app-server that runs or without. Its settings stay. "
        "Calls that run end first.",
    )
    asking = argparse.ArgumentParser(add_help=False, parents=[reaching])
    asking.add_argument("--thread", metavar="ID", help="in this thread alone, not in all")
    commands.add_parser(
        "restart",
        parents=[asking],
        help="start a server afresh",
        description="Start an MCP server afresh in the loaded threads of the app-server that runs "
        "with this home, one that is lazy or shared with its next call. Calls that run end on the "
        "old process.",
    )
    commands.add_parser(
        "logs",
        parents=[asking],
        help="show what a server wrote",
        description="Show what an MCP server wrote to stderr and logged, in the app-server "
        "that runs with this home: the newest lines, without secrets.",
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


TABLE = "mcp_servers"
SWITCHES = "mcp_switches"
USUAL_LIFE = {"protocol": "auto", "share": None, "lazy": False, "idle_seconds": DEFAULT_IDLE_S}
"""Settings that are shown where they differ from these."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Failed(Exception):
    """The command failed; the text is for the user."""


class WrongCall(Exception):
    """The command line makes no sense; the text is for the user."""


FAILURES = (
    Failed,
    ConfigError,
    HomeUnusable,
    LoadFailed,
    NotRecorded,
    OAuthFailed,
    ServerUnavailable,
)


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
    home = options.home_folder = resolve_home(options.home)
    try:
        overrides = dict(parse_override(text) for text in options.config or [])
        if options.profile is not None:
            profile_file(home, options.profile)
    except ConfigError as exc:
        parser.error(str(exc))
    sources = ConfigSources(home, Path.cwd(), overrides=overrides, profile=options.profile)
    try:
        return asyncio.run(_run(options, sources))
    except WrongCall as exc:
        parser.error(str(exc))
    except FAILURES as exc:
        print(f"app-server mcp: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


async def _run(options: argparse.Namespace, sources: ConfigSources) -> int:
    home = sources.home
    config = await Configuration(sources).read()
    match options.command:
        case "list":
            broken = broken_servers(config)
            servers = [_shown(server) for server in (await _servers(config, home)).values()]
            print(json.dumps(servers, indent=2) if options.json else _list(servers, broken))
            for name, problem in broken.items():
                text = one_line(f"MCP server `{name}`: {str(problem).strip()}")
                print(f"app-server mcp: {text}", file=sys.stderr)
            return 1 if broken else 0
        case "get":
            shown = _shown(await _server(config, home, options.name))
            print(json.dumps(shown, indent=2) if options.json else _details(shown))
        case "add":
            # It may be the first that is done with a home.
            await anyio.to_thread.run_sync(prepare_home, home)
            await _add(options, config, ConfigFile(home))
            await _refresh_running(home)
        case "remove":
            await _remove(options.name, config, ConfigFile(home))
            await _refresh_running(home)
        case "enable" | "disable":
            await _switch(options, config)
        case "restart":
            await _restart(options, home)
        case "logs":
            await _show_logs(options, config)
        case "login":
            others_are_let_in.set(await lets_others_in(sources))
            await _login(options, await _server(config, home, options.name))
        case "logout":
            await _logout(await _server(config, home, options.name))
    return 0


async def _servers(config: Config, home: Path) -> Mapping[str, ServerConfig]:
    """Return the servers whose tables can be used."""
    config = without_servers(config, broken_servers(config))
    plugins = Plugins(PluginStore(home), lambda environment_id: True)
    await plugins.load()
    catalog = ServerCatalog(ExtensionRegistry([plugins]))
    return catalog.resolve(read_mcp_settings(config), config, "current").servers


async def _server(config: Config, home: Path, name: str) -> ServerConfig:
    servers = await _servers(config, home)
    if (problem := broken_servers(config).get(name)) is not None:
        raise problem
    if name not in servers:
        known = ", ".join(servers) or "none"
        raise Failed(f"no MCP server named `{name}`; there are: {known}")
    return servers[name]


async def _add(options: argparse.Namespace, config: Config, file: ConfigFile) -> None:
    name = options.name
    _check_name(name)
    table: dict[str, Any] = {}
    if options.url is not None:
        if options.env:
            raise WrongCall("--env is for servers that are started, not for those behind a URL")
        if not _is_web(options.url):
            raise WrongCall(
                f"`{options.url}` is no URL of a server: it begins with https:// or http://"
            )
        table["url"] = options.url
        if options.bearer_token_env_var is not None:
            table["bearer_token_env_var"] = options.bearer_token_env_var
    else:
        if options.bearer_token_env_var is not None:
            raise WrongCall("--bearer-token-env-var is for servers behind a URL")
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
        raise WrongCall(f"cannot read --env {name}: use KEY=VALUE")
    return name, value


async def _remove(name: str, config: Config, file: ConfigFile) -> None:
    def changed(edit: Any, found: Config) -> str:
        table = found.document.get(TABLE)
        if not isinstance(table, dict) or name not in table:
            raise Failed(f"{file.path} has no MCP server named `{name}`")
        return str(edit.remove(found.text, (TABLE, name)))

    await file.change(changed)
    print(f"Removed MCP server `{name}` from {file.path}.")


async def _switch(options: argparse.Namespace, config: Config) -> None:
    enabled, name, file = options.command == "enable", options.name, ConfigFile(options.home_folder)
    word = "enabled" if enabled else "disabled"
    known = {*await _servers(config, options.home_folder), *broken_servers(config)}
    if name not in known and await _can_be_asked(options):
        # Only a server that runs knows what its extensions and its threads bring.
        params = {"name": name, "enabled": enabled}
        written = await _ask(options, options.home_folder, "mcpServer/set", params)
        print(f"MCP server `{name}` is {word} in {written['filePath']}.")
        return
    if name not in known:
        await _switch_unknown(options, config, sorted(known))
        return
    server = await _server(config, options.home_folder, name)
    plugin_id = server.metadata.plugin_id
    if not server.allowed and enabled:
        raise Failed(f"the administrator of this machine does not allow MCP server `{name}`")
    path = (TABLE, name) if plugin_id is None else ("plugins", plugin_id, TABLE, name)
    switch = (*path, "enabled")
    if plugin_id is not None and has(config.document, (SWITCHES, name)):
        path = switch = (SWITCHES, name)

    def changed(edit: Any, found: Config) -> str:
        if not has(found.document, path[:2]):
            raise Failed(
                f"{file.path} has no MCP server named `{name}`; it is switched where it is set up"
            )
        return str(edit.set_value(found.text, switch, enabled))

    if server.enabled == enabled:
        print(f"MCP server `{name}` is {word} already.")
        return
    await file.change(changed)
    print(f"MCP server `{name}` is {word} in {file.path}.")
    await _refresh_running(options.home_folder)


async def _switch_unknown(
    options: argparse.Namespace, config: Config, known: Sequence[str]
) -> None:
    """Switch a server that only a running app-server could know, for later ones."""
    enabled, name, file = options.command == "enable", options.name, ConfigFile(options.home_folder)
    word = "enabled" if enabled else "disabled"
    _check_name(name)
    if config.document.get(SWITCHES, {}).get(name) is enabled:
        print(f"MCP server `{name}` is {word} already.")
        return
    await file.change(
        lambda edit, found: str(edit.set_value(found.text, (SWITCHES, name), enabled))
    )
    print(
        f"MCP server `{name}` is {word} in {file.path}, should an extension, an app or a plugin of "
        f"a thread bring it: no file sets it up. Those of this home: {', '.join(known) or 'none'}."
    )
    await _refresh_running(options.home_folder)


def _check_name(name: str) -> None:
    if VALID_NAME.fullmatch(name) is None:
        raise WrongCall(f"`{name}` is no name of a server: use letters, digits and _ : @ / . -")


async def _can_be_asked(options: argparse.Namespace) -> bool:
    """Whether there is an app-server to ask: one that was named, or one of the home."""
    if options.server is not None:
        return True
    found = await anyio.to_thread.run_sync(running_servers(options.home_folder).all)
    return any(server.is_running and server.entry.for_clients is not None for server in found)


async def _refresh_running(home: Path) -> None:
    """Make the running servers of a home read its files; unreachable ones do so later."""
    running = [server.entry for server in running_servers(home).all() if server.is_running]
    for entry in running:
        address = entry.for_clients
        with suppress(Exception):
            if address is not None:
                token_file = None if address[1] is None else Path(address[1])
                async with _opened(address[0], token_file) as client:
                    await client.call("config/read", {})
    if running:
        shown = ", ".join(str(entry.pid) for entry in running)
        print(f"The app-server that runs takes it over (process {shown}).")


async def _ask(options: argparse.Namespace, home: Path, method: str, params: dict[str, Any]) -> Any:
    """Call a method about a server in the app-server that runs."""
    command = f"app-server mcp {options.command} {options.name}"
    choose = partial(
        server_address, options.server, str(home), options.token_file, command, "--server"
    )
    try:
        address = await anyio.to_thread.run_sync(choose)
        async with _opened(address.url, address.token_file) as client:
            return await client.call(method, params)
    except (NoOneServer, ValueError) as exc:
        raise Failed(str(exc)) from exc
    except RpcError as exc:
        hint = "`app-server mcp list` shows the servers of this home"
        if options.command == "restart":
            hint += f", `app-server mcp enable {options.name}` switches it on"
        if params.get("threadId") is not None:
            hint += "; --thread names a loaded thread, and all count without it"
        raise Failed(f"{str(exc).rstrip('.')}; {hint}") from exc
    except (OSError, anyio.EndOfStream, TimeoutError) as exc:
        raise Failed(f"the app-server does not answer: {exc}") from exc


def _opened(url: str, token_file: Path | None) -> AbstractAsyncContextManager[Client]:
    return open_client(url, "app-server-mcp", token_file=token_file, experimentalApi=True)


async def _restart(options: argparse.Namespace, home: Path) -> None:
    params = {"name": options.name, "threadId": options.thread}
    threads = (await _ask(options, home, "mcpServer/restart", params))["threadIds"]
    if not threads:
        print(f"No loaded thread has MCP server `{options.name}`: it starts with the next one.")
    for thread_id in threads:
        print(f"MCP server `{options.name}` starts afresh in thread {thread_id}.")
    if threads:
        print("If it is lazy, or threads share it, it starts with its next call.")


async def _show_logs(options: argparse.Namespace, config: Config) -> None:
    home, name = options.home_folder, options.name
    params = {"name": name, "threadId": options.thread}
    outputs = (await _ask(options, home, "mcpServer/output/read", params))["data"]
    for output in outputs:
        if len(outputs) > 1:
            print(f"== thread {output['threadId']}")
        for line in output["text"].splitlines():
            print(one_line(line))
    if any(output["text"] for output in outputs):
        return
    if (problem := broken_servers(config).get(name)) is not None:
        reason = f"The settings of MCP server `{name}` cannot be used: {str(problem).strip()}"
    elif outputs:
        reason = _explain_empty_output(name, outputs[-1])
    elif (found := (await _servers(config, home)).get(name)) is not None and not found.enabled:
        reason = _explain_empty_output(name, {"runtimeStatus": "disabled"})
    else:
        reason = f"No loaded thread has MCP server `{name}`: it starts with the next thread."
    print(one_line(reason), file=sys.stderr)


def _explain_empty_output(name: str, output: Mapping[str, Any]) -> str:
    """Explain the empty output of a thread's server, with a remedy."""
    server, command = f"MCP server `{name}`", "`app-server mcp"
    match output.get("runtimeStatus"):
        case "disabled":
            return f"{server} is disabled: {command} enable {name}` switches it on."
        case "authenticationRequired":
            return f"{server} wants a sign-in: {command} login {name}`."
        case "failed" | "cancelled":
            error = f": {output['lastError']}" if output.get("lastError") else ""
            return f"{server} has failed{error}. {command} restart {name}` tries again."
        case "starting":
            return f"{server} starts now, and has written nothing yet."
    if output.get("runtimeStatus") is not None and output.get("startedAtMs") is None:
        return f"{server} has not started: it starts with its first call."
    return f"{server} has written nothing to stderr, and logged nothing."


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

    # It brings an HTTP client, which no other command needs.
    from app_server.mcp.oauth.login import Login, LoginWishes

    login = Login(SignInTarget(server.name, transport), store, LoginWishes(scopes=scopes))
    await login.run(show)
    print(f"Signed in to MCP server `{server.name}`.")


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
    """Show a server with masked values of variables and headers."""
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
    life = {
        "protocol": server.protocol,
        "share": server.share,
        "lazy": server.lazy,
        "idle_seconds": server.idle_s,
    }
    shown |= {key: value for key, value in life.items() if value != USUAL_LIFE[key]}
    if not server.allowed:
        shown["disabled_reason"] = "the administrator of this machine does not allow it"
    return shown


def _list(servers: Sequence[Mapping[str, Any]], broken: Collection[str]) -> str:
    if not servers and not broken:
        return "No MCP servers are configured. Add one: app-server mcp add NAME -- COMMAND"
    rows = [("NAME", "STATE", "WHERE")]
    for server in servers:
        transport = server["transport"]
        where = transport.get("url") or " ".join([transport["command"], *transport["args"]])
        state = "enabled" if server["enabled"] else "disabled"
        rows.append((one_line(server["name"]), state, one_line(where)))
    rows += [(one_line(name), "broken", "") for name in broken]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    lines = (f"{name:<{first}}  {state:<{second}}  {where}" for name, state, where in rows)
    return "\n".join(map(str.rstrip, lines))


def _details(server: Mapping[str, Any]) -> str:
    members = {key: value for key, value in server.items() if key != "transport"}
    ordered = {"name": members.pop("name")} | server["transport"] | members
    return "\n".join(
        one_line(f"{key}: {' '.join(value) if isinstance(value, list) else value}")
        for key, value in ordered.items()
        if value not in (None, [], {})
    )
