"""What guards the WebSocket listeners of a server besides their addresses. No I/O.

Source: docs/listeners.md, "Tokens", "Pages in a browser".
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

CLOCK_SKEW_S = 30
"""By how much the clocks of an issuer and of this machine may differ, unless it is set."""


@dataclass(frozen=True, slots=True)
class CapabilityAuth:
    """One token, known by its digest."""

    sha256: bytes = field(repr=False)
    """32 bytes."""
    file: Path | None = None
    """Where the token was read from, if it was."""


@dataclass(frozen=True, slots=True)
class SignedAuth:
    """JSON Web Tokens signed with HMAC-SHA256."""

    secret: bytes = field(repr=False)
    """Of at least 32 bytes."""
    issuer: str | None = None
    """What `iss` must be; None: anything."""
    audience: str | None = None
    """What `aud` must be or have; None: anything."""
    clock_skew_s: int = CLOCK_SKEW_S
    file: Path | None = None
    """Where the secret was read from, if it was."""


WebSocketAuth: TypeAlias = CapabilityAuth | SignedAuth


@dataclass(frozen=True, slots=True)
class ListenerGuards:
    """What the clients of `ws://` addresses must show. A client needs one of the tokens."""

    auth: WebSocketAuth | None = None
    token_file: Path | None = None
    """Where a token for clients of this user is written while the server runs."""
    origins: frozenset[str] = frozenset()
    """Of pages that may connect with a token, as browsers write them."""

    @property
    def wants_token(self) -> bool:
        """Whether a client must show a token."""
        return self.auth is not None or self.token_file is not None

    @property
    def hidden_files(self) -> tuple[Path, ...]:
        """What confined commands must not read: who can read it can be a client."""
        files = (None if self.auth is None else self.auth.file, self.token_file)
        return tuple(file for file in files if file is not None)
