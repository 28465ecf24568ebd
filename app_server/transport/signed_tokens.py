"""Tokens that somebody else issues: JSON Web Tokens, signed with a secret that is shared with them.

Source: RFC 7519; docs/listeners.md, "Signed tokens".
"""

import logging
import re

import jwt

from app_server.transport.guards import SignedAuth

logger = logging.getLogger(__name__)

ALGORITHM = "HS256"
"""The only one; what a token says of its own algorithm chooses nothing."""

COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
"""RFC 7515, sections 2 and 3.1: base64url without padding."""


class SignedToken:
    """Accepts the tokens of one issuer."""

    def __init__(self, settings: SignedAuth) -> None:
        self._settings = settings

    def accepts(self, token: str) -> bool:
        """Whether the signature is right, and the claims hold now."""
        settings = self._settings
        if COMPACT.fullmatch(token) is None:
            # The library would pass over padding and other characters: many texts, one token.
            logger.info("a signed token was refused: not three parts in base64url")
            return False
        try:
            jwt.decode(
                token,
                settings.secret,
                algorithms=[ALGORITHM],
                issuer=settings.issuer,
                audience=settings.audience,
                leeway=settings.clock_skew_s,
                options={
                    "require": ["exp"],
                    "verify_aud": settings.audience is not None,
                    # It may say when a token was made elsewhere; `nbf` says from when it holds.
                    "verify_iat": False,
                },
            )
        except jwt.PyJWTError as exc:
            logger.info("a signed token was refused: %s", type(exc).__name__)
            return False
        except (TypeError, ValueError, OverflowError):
            # The library reads claims of a wrong type, such as a null, without a check.
            logger.info("a signed token was refused: a claim of a wrong type")
            return False
        return True
