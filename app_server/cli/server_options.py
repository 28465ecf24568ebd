"""Options of a server; the guards of WebSocket listeners are checked against each other.

Their names and rules are those of Codex, but for `--token-file` and `--ws-allow-origin`, which are
ours.
Source: docs/listeners.md, "Tokens".
"""

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from app_server import VERSION
from app_server.observability.log import add_log_options
from app_server.runtime.user_paths import expand_user
from app_server.server.settings import DRAIN_S
from app_server.transport.address import Address, TcpAddress, require_protection
from app_server.transport.guards import (
    CLOCK_SKEW_S,
    CapabilityAuth,
    ListenerGuards,
    SignedAuth,
    WebSocketAuth,
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
        "--signals",
        action="store_true",
        help="two agents, one asks and the other is woken; then a crash in between",
    )
    demos.add_argument(
        "--tools",
        action="store_true",
        help="commands and patches in a scratch repository, questions, and what the sandbox stops",
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
        # Most servers read no such file.
        from app_server.transport.guards import read_token_digest

        path = _path(file)
        return CapabilityAuth(_read("--ws-token-file", read_token_digest, path), path)
    if not SHA256.fullmatch(digest.strip()):
        raise ValueError("--ws-token-sha256 must be a SHA-256 as 64 hexadecimal digits")
    return CapabilityAuth(bytes.fromhex(digest.strip()))


def _signed(options: argparse.Namespace) -> SignedAuth:
    if options.ws_shared_secret_file is None:
        raise ValueError(f"--ws-auth {SIGNED} needs --ws-shared-secret-file")
    # Most servers read no such file.
    from app_server.transport.guards import read_shared_secret

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
