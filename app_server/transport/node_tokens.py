"""Tokens that the nodes of a group show one another: signed, for one node, once, for a minute.

Source: docs/scale.md, "How nodes reach one another"; RFC 7519.
"""

import logging
import secrets
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

import jwt

from app_server.runtime.counted_warnings import warn_counted
from app_server.transport.signed_tokens import ALGORITHM, COMPACT
from app_server.transport.tokens import Headers, presented_token

logger = logging.getLogger(__name__)

ISSUER = "app-server node"
"""A token that the same secret signs for clients has another one."""
LIFE_S = 60
"""Seconds."""
LEEWAY_S = 10
"""Seconds by which two nodes may differ in what they take for the time of the database."""


class Node(Protocol):
    """A node, as the others of its group know it."""

    @property
    def id(self) -> str | None:
        """None: it is none yet, and lets nobody in."""

    def now_s(self) -> float:
        """Return seconds that all nodes count alike, whatever their own clocks say."""


class NodeTokens:
    """Makes tokens for other nodes, and accepts those that are for this one."""

    def __init__(self, secret: bytes, node: Node, max_remembered: int = 65_536) -> None:
        """`secret` has at least 32 bytes, and all nodes of the group have the same.

        `max_remembered` tokens of the last minute are not accepted again; beyond it none is
        accepted.
        """
        self._secret = secret
        self._node = node
        self._max_remembered = max_remembered
        self._used: dict[str, float] = {}
        """When each token that was accepted ends, by its id, the oldest first."""

    def issue(self, target: str) -> str:
        """Return a token for one connection to the node `target`."""
        claims = {
            "iss": ISSUER,
            "sub": self._node.id,
            "aud": target,
            "exp": int(self._node.now_s()) + LIFE_S,
            "jti": secrets.token_urlsafe(16),
        }
        return jwt.encode(claims, self._secret, algorithm=ALGORITHM)

    def lets_in(self, headers: Headers) -> bool:
        """Whether a request may become the connection of another node."""
        token = presented_token(headers)
        reason = "it has none" if token is None else self._refusal(token)
        if reason is not None:
            warn_counted(logger, "a connection of a node was refused: %s", reason)
        return reason is None

    def _refusal(self, token: str) -> str | None:
        """Say what is wrong with a token; nothing is, once, with a good one."""
        if COMPACT.fullmatch(token) is None:
            return "its token is not three parts in base64url"
        try:
            claims = jwt.decode(
                token,
                self._secret,
                algorithms=[ALGORITHM],
                issuer=ISSUER,
                # The library compares with the clock of this machine, which may be wrong.
                options={
                    "require": ["aud", "exp", "jti", "sub"],
                    "verify_aud": False,
                    "verify_exp": False,
                },
            )
        except jwt.PyJWTError as exc:
            return f"its token is not of this group: {type(exc).__name__}"
        except (TypeError, ValueError, OverflowError):
            return "a claim of its token has a wrong type"
        return self._refusal_of_claims(claims)

    def _refusal_of_claims(self, claims: Mapping[str, Any]) -> str | None:
        me, now_s = self._node.id, self._node.now_s()
        sender, ends_s, number = claims["sub"], claims["exp"], claims["jti"]
        if not isinstance(number, str) or not isinstance(ends_s, int | float):
            return "a claim of its token has a wrong type"
        if me is None:
            return "this node has not started yet"
        if sender == me:
            return "it is this node itself: its address leads here"
        if claims["aud"] != me:
            return f"node {_shown(sender)} looks for another one: the address of that leads here"
        if not now_s < ends_s + LEEWAY_S <= now_s + LIFE_S + 2 * LEEWAY_S:
            return "its token is over"
        while self._used and (oldest := next(iter(self._used.items())))[1] <= now_s:
            del self._used[oldest[0]]
        if number in self._used:
            return "its token was shown before"
        if len(self._used) >= self._max_remembered:
            return f"{self._max_remembered} tokens were shown in the last minute"
        self._used[number] = ends_s + LEEWAY_S
        return None


def _shown(sender: object) -> str:
    try:
        return str(uuid.UUID(str(sender)))
    except ValueError:
        return "of an unknown id"
