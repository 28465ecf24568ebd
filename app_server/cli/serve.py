"""From a command line to a running server."""

import argparse
import asyncio
import importlib
import logging
import os
import re
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from app_server import VERSION
from app_server.config.config_toml import parse_override, profile_file
from app_server.config.home import HOME_VARIABLE, resolve_home
from app_server.config.store_url import STORE_VARIABLE, chosen_store
from app_server.config.values import ConfigError
from app_server.observability.log import add_log_options, read_log_settings, set_up_logs
from app_server.runtime.loader import LoadFailed
from app_server.runtime.open_files import raise_limit
from app_server.runtime.standard_streams import print_to_stderr
from app_server.runtime.user_paths import expand_user
from app_server.server.app import serve
from app_server.server.settings import DRAIN_S, Settings
from app_server.transport.address import Address, TcpAddress, parse_address, require_protection
from app_server.transport.guards import (
    CLOCK_SKEW_S,
    CapabilityAuth,
    ListenerGuards,
    SignedAuth,
    WebSocketAuth,
    read_shared_secret,
    read_token_digest,
)

CAPABILITY, SIGNED = "capability-token", "signed-bearer-token"

MAX_CLOCK_SKEW_S = 86_400

SHA256 = re.compile(r"[0-9a-fA-F]{64}")
ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?P<port>:\d{1,5})?"
)
DEFAULT_PORTS = {"http": ":80", "https": ":443", "ws": ":80", "wss": ":443"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument(
        "--listen",
        action="append",
        metavar="URL",
        help="where to listen: ws://127.0.0.1:PORT (0: any free port), unix://PATH, stdio:// or "
        "off; may be given several times (default: stdio://)",
    )
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one setting of config.toml; KEY may be a dotted path, VALUE is TOML or a "
        "plain string; may be given several times",
    )
    parser.add_argument(
        "-p",
        "--profile",
        metavar="NAME",
        help="put the settings of NAME.config.toml in the home folder over those of config.toml",
    )
    parser.add_argument(
        "--strict-config",
        action="store_true",
        help="end with a message and exit status 1 if a file of settings has a key that is not "
        "known, or a value that does not fit; without it clients are warned",
    )
    parser.add_argument("--home", metavar="DIR", help="where settings and threads are kept")
    parser.add_argument(
        "--store",
        metavar="URL",
        help="keep threads in this database instead of files: postgresql://USER@HOST/DATABASE, "
        f"without a password (default: {STORE_VARIABLE}, then `store` of config.toml)",
    )
    parser.add_argument(
        "--drain-seconds",
        type=_seconds,
        default=DRAIN_S,
        metavar="N",
        help="how long running turns may go on after SIGTERM (default: %(default)g)",
    )
    add_log_options(parser)
    parser.add_argument("--version", action="version", version=f"app-server {VERSION}")
    _add_listen_options(parser)
    demos = parser.add_argument_group("what demo shows instead")
    demos.add_argument(
        "--apps",
        action="store_true",
        help="apps of a hosted endpoint that this package ships",
    )
    demos.add_argument(
        "--fleet",
        action="store_true",
        help="two nodes on one database, and the death of one; needs PostgreSQL",
    )
    demos.add_argument(
        "--signals",
        action="store_true",
        help="two agents, one asks and the other is woken; then a crash in between",
    )
    demos.add_argument(
        "--tools",
        action="store_true",
        help="commands and patches in a scratch repository, questions, and what the sandbox stops",
    )
    demos.add_argument(
        "--unattended",
        action="store_true",
        help="a thread that nobody watches: woken, asking by webhook, held by a budget",
    )


def _add_listen_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "who may connect to ws:// addresses",
        "Without these options: every program of this user, and no page in a browser.",
    )
    group.add_argument(
        "--token-file",
        metavar="PATH",
        help="write a new token to this file, for this user alone, and let nobody in without it; "
        "it is removed when the server stops",
    )
    group.add_argument(
        "--ws-auth",
        choices=[CAPABILITY, SIGNED],
        help="let nobody in without a token: one that you made, or JSON Web Tokens (HS256) of an "
        "issuer; needed for addresses that other machines can reach",
    )
    group.add_argument(
        "--ws-token-file", metavar="PATH", help=f"with {CAPABILITY}: a file with the token"
    )
    group.add_argument(
        "--ws-token-sha256", metavar="HEX", help=f"with {CAPABILITY}: SHA-256 of the token instead"
    )
    group.add_argument(
        "--ws-shared-secret-file",
        metavar="PATH",
        help=f"with {SIGNED}: a file with the secret, of at least 32 bytes",
    )
    group.add_argument("--ws-issuer", metavar="ISSUER", help=f"with {SIGNED}: what `iss` must be")
    group.add_argument(
        "--ws-audience", metavar="AUDIENCE", help=f"with {SIGNED}: what `aud` must be or contain"
    )
    group.add_argument(
        "--ws-max-clock-skew-seconds",
        type=_skew,
        metavar="SECONDS",
        help=f"with {SIGNED}: by how much clocks may differ (default: {CLOCK_SKEW_S})",
    )
    group.add_argument(
        "--ws-allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="let pages of this origin in if they show a token, as https://tools.example.com; may "
        "be given several times",
    )


def read_guards(options: argparse.Namespace, addresses: Sequence[Address]) -> ListenerGuards:
    """Read the options, and the files that they name.

    Raises:
        ValueError: with a sentence that names the option and its rule.
    """
    guards = ListenerGuards(
        auth=_auth(options),
        token_file=None if options.token_file is None else _path(options.token_file),
        origins=frozenset(_origin(text) for text in options.ws_allow_origin),
    )
    has_tcp = any(isinstance(address, TcpAddress) for address in addresses)
    if guards.token_file is not None and not has_tcp:
        raise ValueError("--token-file is for ws:// addresses, and there is none")
    if guards.origins and not guards.wants_token:
        raise ValueError(
            "--ws-allow-origin needs --ws-auth or --token-file: without a token every page of that "
            "origin could run agents here"
        )
    for address in addresses:
        require_protection(address, wants_token=guards.wants_token)
    return guards


def _auth(options: argparse.Namespace) -> WebSocketAuth | None:
    of_capability = ("--ws-token-file", "--ws-token-sha256")
    of_signed = (
        "--ws-shared-secret-file", "--ws-issuer", "--ws-audience", "--ws-max-clock-skew-seconds",
    )  # fmt: skip
    match options.ws_auth:
        case "capability-token":
            _refuse(options, of_signed, f"--ws-auth {SIGNED}")
            return _capability(options)
        case "signed-bearer-token":
            _refuse(options, of_capability, f"--ws-auth {CAPABILITY}")
            return _signed(options)
        case _:
            _refuse(options, of_capability, f"--ws-auth {CAPABILITY}")
            _refuse(options, of_signed, f"--ws-auth {SIGNED}")
            return None


def _capability(options: argparse.Namespace) -> CapabilityAuth:
    file, digest = options.ws_token_file, options.ws_token_sha256
    if (file is None) == (digest is None):
        raise ValueError(
            f"--ws-auth {CAPABILITY} needs either --ws-token-file or --ws-token-sha256"
        )
    if file is not None:
        path = _path(file)
        return CapabilityAuth(_read("--ws-token-file", read_token_digest, path), path)
    if not SHA256.fullmatch(digest.strip()):
        raise ValueError("--ws-token-sha256 must be a SHA-256 as 64 hexadecimal digits")
    return CapabilityAuth(bytes.fromhex(digest.strip()))


def _signed(options: argparse.Namespace) -> SignedAuth:
    if options.ws_shared_secret_file is None:
        raise ValueError(f"--ws-auth {SIGNED} needs --ws-shared-secret-file")
    path = _path(options.ws_shared_secret_file)
    skew = options.ws_max_clock_skew_seconds
    return SignedAuth(
        secret=_read("--ws-shared-secret-file", read_shared_secret, path),
        issuer=(options.ws_issuer or "").strip() or None,
        audience=(options.ws_audience or "").strip() or None,
        clock_skew_s=CLOCK_SKEW_S if skew is None else skew,
        file=path,
    )


def _refuse(options: argparse.Namespace, names: Sequence[str], needed: str) -> None:
    for name in names:
        if getattr(options, name.removeprefix("--").replace("-", "_")) is not None:
            raise ValueError(f"{name} needs {needed}")


def _read(option: str, read: Callable[[Path], bytes], path: Path) -> bytes:
    try:
        return read(path)
    except ValueError as exc:
        raise ValueError(f"{option}: {exc}") from None
    except OSError as exc:
        raise ValueError(f"{option}: {path} cannot be read: {exc.strerror}") from None


def _path(text: str) -> Path:
    return expand_user(text).absolute()


def _origin(text: str) -> str:
    """Write an origin as browsers do: small letters, no default port (RFC 6454, section 6.2)."""
    found = ORIGIN.fullmatch(text.lower())
    if found is None:
        raise ValueError(
            f"--ws-allow-origin {text!r}: an origin is a scheme, a host and perhaps a port, as "
            "https://tools.example.com or http://localhost:8080"
        )
    is_default = found["port"] == DEFAULT_PORTS.get(found["scheme"])
    return f"{found['scheme']}://{found['host']}{'' if is_default else found['port'] or ''}"


def _skew(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_CLOCK_SKEW_S:
        raise argparse.ArgumentTypeError(f"must be 0 to {MAX_CLOCK_SKEW_S} seconds")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("must be a number of seconds of at least 0")
    return value


DEFAULT_LISTEN = "stdio://"
LAZY_COMMANDS = (
    "acp",
    "bench",
    "completion",
    "config",
    "doctor",
    "exec",
    "exec-server",
    "inspect",
    "mcp",
    "signal",
    "status",
    "store",
    "usage",
)
"""Commands of their own, each in its module, imported late: a server has no use for them."""
SYSTEMD_STATES = {"serving": "READY=1", "stopping": "STOPPING=1"}
GENERATE_COMMANDS = ("generate-json-schema", "generate-ts", "schema")
"""Commands of app_server/cli/schema.py, which launchers put behind options."""
MCP_SERVER = "mcp-server"
DEMOS = ("apps", "fleet", "signals", "tools", "unattended")
PROGRAM = "app-server"
COMMANDS = (PROGRAM, "serve", MCP_SERVER, "demo")

USAGE = """\
app-server [options]
       app-server COMMAND [options]"""

SWITCH_S = 0.001
"""After which a worker thread hands the interpreter to the event loop, which waits for it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0, 1 for a failure, 2 for a wrong call."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if (status := _lazy_command(words)) is not None:
        return status
    parser = make_parser()
    if (status := _command_among_options(parser, words)) is not None:
        return status
    options = parser.parse_args(words)
    try:
        set_up_logs(read_log_settings(os.environ, options.log_level, options.log_format))
    except ValueError as exc:
        parser.error(str(exc))
    quiet_libraries()
    home = resolve_home(options.home)
    if options.command == "demo":
        chosen = [kind for kind in DEMOS if getattr(options, kind)]
        if len(chosen) > 1:
            parser.error("demo shows one thing at a time: " + " or ".join(f"--{d}" for d in DEMOS))
        return _demo(f"{chosen[0]}_scenario" if chosen else "scenario")
    is_mcp_server = options.command == MCP_SERVER
    if is_mcp_server and options.listen:
        parser.error("mcp-server speaks MCP on stdio and listens nowhere else: leave out --listen")
    try:
        listen = [] if is_mcp_server else _addresses(options.listen or [DEFAULT_LISTEN], home)
        settings = Settings(
            home=home,
            listen=listen,
            overrides=dict(parse_override(text) for text in options.config),
            profile=_profile(options.profile, home),
            is_strict=options.strict_config,
            drain_s=options.drain_seconds,
            guards=read_guards(options, listen),
        )
    except (ValueError, ConfigError) as exc:
        parser.error(str(exc))
    try:
        settings = replace(
            settings, store=chosen_store(options.store, settings.overrides, os.environ)
        )
    except ConfigError as exc:
        return _failed(exc)
    if options.home is not None:
        # For those of its MCP servers that name the variable: they look for the server there.
        os.environ[HOME_VARIABLE] = str(home)
    raise_limit()
    sys.setswitchinterval(SWITCH_S)
    if is_mcp_server:
        # Other servers have no use for it.
        from app_server.clients.mcp_front.process import serve as serve_mcp

        return _run(lambda: serve_mcp(settings))
    return _run(lambda: _serve(settings), options.listen or [])


def _lazy_command(words: Sequence[str]) -> int | None:
    """Run one of LAZY_COMMANDS, which have options of their own; None for other words."""
    # Launchers put the name of the program in front.
    at = 1 if words[:1] == [PROGRAM] else 0
    if len(words) <= at or words[at] not in LAZY_COMMANDS:
        return None
    quiet_libraries()
    room = "app_server.cli.help" if words[at] == "completion" else "app_server.cli"
    module = f"{room}.{words[at].replace('-', '_')}"
    status: int = importlib.import_module(module).main(words[at + 1 :])
    return status


def _command_among_options(parser: "_Parser", words: list[str]) -> int | None:
    """Run a command whose name stands behind options; None leaves the words to the parser.

    Where two commands are named, the name of the program is taken out of `words`.
    """
    named = parser.places(words)
    if named and words[named[0]] == PROGRAM and len(named) > 1:
        words.pop(named[0])
        named = parser.places(words)
    command = words[named[0]] if named else None
    if command in GENERATE_COMMANDS:
        words.pop(named[0])
        written: int = importlib.import_module("app_server.cli.schema").main(command, words)
        return written
    parser.refuse_unknown(words)
    if command in ("demo", MCP_SERVER) and {"-h", "--help"} & set(words):
        importlib.import_module("app_server.cli.help.command_help").PARSERS[command]().print_help()
        return 0
    return None


def quiet_libraries() -> None:
    """Set libraries to log warnings alone: below that they write headers and whole URLs."""
    for name in ("httpcore", "httpcore2", "httpx", "httpx2", "mcp", "urllib3", "websockets"):
        logging.getLogger(name).setLevel(logging.WARNING)


class _Parser(argparse.ArgumentParser):
    def format_help(self) -> str:
        """Load the help texts and the default home when help is printed."""
        texts = importlib.import_module("app_server.cli.help.command_help")
        self.description, self.epilog = texts.SERVER, texts.server_end()
        return super().format_help()

    def refuse_unknown(self, words: Sequence[str]) -> None:
        """Refuse a long option that is none, before its value is taken for a command."""
        known = [flag for action in self._actions for flag in action.option_strings]
        for word in words:
            flag = word.partition("=")[0]
            if flag.startswith("--") and not any(one.startswith(flag) for one in known):
                like = importlib.import_module("app_server.cli.help.advice").did_you_mean(
                    flag, known
                )
                self.error(f"there is no option {flag}{like}; app-server --help lists them")

    def places(self, words: Sequence[str]) -> list[int]:
        """Say where words stand that are neither options nor values of options."""
        flags = [
            flag for action in self._actions if action.nargs != 0 for flag in action.option_strings
        ]
        found: list[int] = []
        is_value = False
        for place, word in enumerate(words):
            if is_value:
                is_value = False
            elif word.startswith("--"):
                # The parser takes the beginning of a name for it.
                is_value = any(flag.startswith(word) for flag in flags)
            elif word.startswith("-"):
                is_value = word in flags
            else:
                found.append(place)
        return found


def make_parser() -> _Parser:
    """Describe the command line."""
    parser = _Parser(
        prog="app-server",
        usage=USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "command", nargs="?", type=_command, default="serve", help=argparse.SUPPRESS
    )
    add_options(parser)
    return parser


def _command(word: str) -> str:
    if word in COMMANDS:
        return word
    if word in LAZY_COMMANDS:
        raise argparse.ArgumentTypeError(f"options stand behind it: app-server {word} --help")
    advice = importlib.import_module("app_server.cli.help.advice")
    like = advice.did_you_mean(word, (*COMMANDS, *LAZY_COMMANDS, *GENERATE_COMMANDS[:2]))
    raise argparse.ArgumentTypeError(
        f"there is no command {word!r}{like}; app-server --help lists them"
    )


def _addresses(texts: Sequence[str], home: Path) -> list[Address]:
    addresses = [parse_address(text, home / "app-server.sock") for text in texts]
    return [address for address in addresses if address is not None]


def _profile(name: str | None, home: Path) -> str | None:
    if name is not None:
        file = profile_file(home, name)
        # A home that cannot be looked at is named by the start, as without a profile.
        with suppress(OSError):
            if not file.exists():
                logger = logging.getLogger(__name__)
                logger.warning("the profile changes nothing: there is no %s", file)
    return name


async def _serve(settings: Settings) -> None:
    manager = None
    if "NOTIFY_SOCKET" in os.environ:
        # Of most servers nobody wants to be told.
        from app_server.runtime.service_manager import ServiceManager

        manager = ServiceManager.take(os.environ)
    if manager is None:
        await serve(settings, print_addresses)
        return

    def ready(urls: Sequence[str]) -> None:
        print_addresses(urls)
        manager.notify(f"STATUS=listening on {', '.join(urls)}")

    async with manager.watched():
        await serve(settings, ready, lambda phase: manager.notify(SYSTEMD_STATES[phase]))


def print_addresses(urls: Sequence[str]) -> None:
    """Print a line for each address, to stderr."""
    for url in urls:
        print_to_stderr(f"listening on: {url}")


def _demo(scenario: str) -> int:
    # A server has no use for the demos.
    from app_server.clients.demo.transcript import run_demo

    module = importlib.import_module(f"app_server.clients.demo.{scenario}")
    return _run(partial(run_demo, module.run))


def _run(main: Callable[[], Coroutine[Any, Any, int | None]], listen: Sequence[str] = ()) -> int:
    try:
        with asyncio.Runner() as runner:
            return runner.run(main()) or 0
    except KeyboardInterrupt:
        return 130
    except (ConfigError, LoadFailed, OSError) as exc:
        return _failed(exc, listen)


def _failed(problem: Exception, listen: Sequence[str] = ()) -> int:
    advice = importlib.import_module("app_server.cli.help.advice")
    print(f"app-server: {advice.why_not_started(problem, listen)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
