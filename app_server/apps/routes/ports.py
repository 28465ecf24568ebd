"""The ports of the local routes: the upstream pool, and the check of credentials.

Source: docs/apps.md, "Local routes".
"""

from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias

from app_server.mcp_wire.errors import ProgressCallback
from protocol.model import JsonObject

ElicitationMode: TypeAlias = Literal["form", "url", "openai/form"]


class DownstreamPeer(Protocol):
    """The client of one local session, as the endpoint's questions reach it."""

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Ask the client and return its answer: `action`, perhaps `content` and `_meta`.

        `params` go down as they are; with `mode` `openai/form` they are those of the method of
        that name, and `mode` stays behind. The answer is `cancel` without a call that runs, for a
        client that cannot be asked so, and once the call has ended.
        """


class UpstreamSession(Protocol):
    """One session with the endpoint."""

    async def request(
        self, method: str, params: JsonObject, *, on_progress: ProgressCallback | None = None
    ) -> JsonObject:
        """Call a method and return the result as it came; without a time limit.

        Cancelling tells the endpoint.

        Raises:
            PeerError: the endpoint answered with an error, or did not answer.
        """


class UpstreamPool(Protocol):
    """Sessions with the endpoint, one for each local session that makes calls."""

    def session_of(
        self, key: Hashable, peer: DownstreamPeer
    ) -> AbstractAsyncContextManager[UpstreamSession]:
        """Get or open the session of a key; it is kept when the context ends.

        Raises:
            PeerError: there is none to be had.
        """

    async def close(self, key: Hashable) -> None:
        """End the session of a key, if there is one."""

    def shut_down(self) -> None:
        """Begin to close everything."""


class AuthGuard(Protocol):
    """The credentials that something was built with."""

    def holds(self) -> bool:
        """Whether they are still the current ones."""

    async def settle(self) -> None:
        """Find out whether they are; `holds` says it from then on."""
