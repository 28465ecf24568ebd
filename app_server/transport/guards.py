"""Guards of WebSocket listeners: tokens, secrets and their files, and origins of pages.

Reading a file blocks for milliseconds; nothing else does I/O.
Source: docs/listeners.md, "Tokens", "Signed tokens", "Pages in a browser".
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

MAX_SECRET_BYTES = 4096
"""Of a file with a token or a secret."""

MIN_SHARED_SECRET_BYTES = 32
"""As many as the signature has (RFC 7518, section 3.2)."""


def read_token_digest(path: Path) -> bytes:
    """Read a token and return its SHA-256: 32 bytes.

    Raises:
        ValueError: the file holds no token; the text is the rule, without what is in the file.
        OSError: it cannot be read.
    """
    token = _read_secret(path)
    if not (token.isascii() and token.isprintable()):
        raise ValueError("a token is printable ASCII characters on one line")
    return hashlib.sha256(token.encode()).digest()


def read_shared_secret(path: Path) -> bytes:
    """Read the secret of an issuer: at least MIN_SHARED_SECRET_BYTES bytes of UTF-8.

    Raises:
        ValueError: the file holds none; the text is the rule, without what is in the file.
        OSError: it cannot be read.
    """
    secret = _read_secret(path).encode()
    if len(secret) < MIN_SHARED_SECRET_BYTES:
        raise ValueError(f"a secret has at least {MIN_SHARED_SECRET_BYTES} bytes")
    return secret


def _read_secret(path: Path) -> str:
    """Read a text; white space around it is left out."""
    with path.open("rb") as file:
        content = file.read(MAX_SECRET_BYTES + 1)
    try:
        text = content.decode().strip()
    except UnicodeDecodeError:
        text = ""
    if not text or len(content) > MAX_SECRET_BYTES:
        raise ValueError(f"the file must hold 1 to {MAX_SECRET_BYTES} bytes of UTF-8 text")
    return text


CLOCK_SKEW_S = 30
"""By how much the clocks of an issuer and of this machine may differ, unless it is set."""


@dataclass(frozen=True, slots=True)
class CapabilityAuth:
    """One token, known by its digest."""

    sha256: bytes = field(repr=False)
    """32 bytes."""
    file: Path | None = None
    """File that the token was read from, if any."""


@dataclass(frozen=True, slots=True)
class SignedAuth:
    """JSON Web Tokens signed with HMAC-SHA256."""

    secret: bytes = field(repr=False)
    """Of at least 32 bytes."""
    issuer: str | None = None
    """Required `iss`; None accepts any."""
    audience: str | None = None
    """Required `aud`, or a member of it; None accepts any."""
    clock_skew_s: int = CLOCK_SKEW_S
    file: Path | None = None
    """File that the secret was read from, if any."""


WebSocketAuth: TypeAlias = CapabilityAuth | SignedAuth


@dataclass(frozen=True, slots=True)
class ListenerGuards:
    """Requirements for clients of `ws://` addresses. One of the tokens is enough."""

    auth: WebSocketAuth | None = None
    token_file: Path | None = None
    """File to write a token to, for clients of this user, while the server runs."""
    origins: frozenset[str] = frozenset()
    """Of pages that may connect with a token, as browsers write them."""

    @property
    def wants_token(self) -> bool:
        """Whether a client must show a token."""
        return self.auth is not None or self.token_file is not None

    @property
    def hidden_files(self) -> tuple[Path, ...]:
        """Files that sandboxed commands must not read: a reader can become a client."""
        files = (None if self.auth is None else self.auth.file, self.token_file)
        return tuple(file for file in files if file is not None)
