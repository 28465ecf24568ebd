"""Files of the user that have a token, or the secret that an issuer signs tokens with.

What blocks here takes milliseconds.
Source: docs/listeners.md, "Tokens", "Signed tokens".
"""

import hashlib
from pathlib import Path

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
    token = _read(path)
    if not (token.isascii() and token.isprintable()):
        raise ValueError("a token is printable ASCII characters on one line")
    return hashlib.sha256(token.encode()).digest()


def read_shared_secret(path: Path) -> bytes:
    """Read the secret of an issuer: at least MIN_SHARED_SECRET_BYTES bytes of UTF-8.

    Raises:
        ValueError: the file holds none; the text is the rule, without what is in the file.
        OSError: it cannot be read.
    """
    secret = _read(path).encode()
    if len(secret) < MIN_SHARED_SECRET_BYTES:
        raise ValueError(f"a secret has at least {MIN_SHARED_SECRET_BYTES} bytes")
    return secret


def _read(path: Path) -> str:
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
