"""The files of the page, and the header fields that confine it.

The page loads nothing from elsewhere, runs no script that is not a file of its own, and makes no
HTML from text: its Content-Security-Policy says so, and the browser enforces it.
Source: docs/inspector.md, "Access"; W3C Content Security Policy Level 3; W3C Trusted Types.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic_core import to_json

from protocol.contract.methods import METHODS

PAGE = Path(__file__).parent / "page"

INDEX = "index.html"

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""What is served, by the ending of its name; other files are not."""

METHOD_NAMES = "/methods.json"
"""A list of the methods of servers, to complete what the user types."""

HEADER = (
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)


@dataclass(frozen=True, slots=True)
class File:
    """One file of the page."""

    media_type: str
    content: bytes


def read_site() -> Mapping[str, File]:
    """Read all files of the page, by the path in their address.

    They are part of this package, some hundred kilobytes. It reads files: call it before serving.
    """
    paths = sorted(path for path in PAGE.rglob("*") if path.suffix in TYPES)
    site = {
        f"/{path.relative_to(PAGE).as_posix()}": File(TYPES[path.suffix], path.read_bytes())
        for path in paths
    }
    methods = File("application/json", to_json(sorted(METHODS)))
    return {"/": site[f"/{INDEX}"], METHOD_NAMES: methods, **site}


def content_security_policy(port: int) -> str:
    """Return the policy of a page that is served on this port of the loopback address."""
    sockets = f"ws://127.0.0.1:{port} ws://localhost:{port}"
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            # Browsers differ in whether 'self' has WebSockets of the same host.
            f"connect-src 'self' {sockets}",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
