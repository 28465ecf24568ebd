"""A token that stands for the right to connect.

Source: docs/listeners.md, "Tokens".
"""

import hashlib
import hmac


class CapabilityToken:
    """One token, of which the server keeps only the SHA-256."""

    def __init__(self, sha256: bytes) -> None:
        self._sha256 = sha256

    def accepts(self, token: str) -> bool:
        """Whether this is the token; takes as long for every other one."""
        return hmac.compare_digest(digest_of(token), self._sha256)


def digest_of(token: str) -> bytes:
    """Return the SHA-256 of a token: 32 bytes.

    A header that is not ASCII has surrogates, which no token has.
    """
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
