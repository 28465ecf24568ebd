"""What the local routes need from others: the endpoint's side, and whether credentials still hold.

Source: docs/apps.md, "Local routes".
"""

from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias

from protocol.model import Json, JsonObject

ElicitationMode: TypeAlias = Literal["form", "url", "openai/form"]

Progress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
"""Progress so far, its total if known, a message if there is one."""


class UpstreamError(Exception):
    """The endpoint answered with a JSON-RPC error, or did not answer."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class DownstreamPeer(Protocol):
    """The client of one local session, as the endpoint's questions reach it."""

    def supports(self, mode: ElicitationMode) -> bool:
        """Whether the client said that it can be asked in this mode."""

    async def elicit(self, params: JsonObject) -> JsonObject:
        """Ask the client and return its answer: `action`, perhaps `content` and `_meta`.

        `params` go down as they are; with `mode` `openai/form` they are those of the method of
        that name, and `mode` stays behind. Without a call that runs the answer is `cancel`.
        """


class UpstreamSession(Protocol):
    """One session with the endpoint."""

    async def request(
        self, method: str, params: JsonObject, *, on_progress: Progress | None = None
    ) -> JsonObject:
        """Call a method and return the result as it came; without a time limit.

        Cancelling tells the endpoint.

        Raises:
            UpstreamError
        """


class UpstreamPool(Protocol):
    """Sessions with the endpoint, one for each local session that makes calls."""

    def session_of(
        self, key: Hashable, peer: DownstreamPeer
    ) -> AbstractAsyncContextManager[UpstreamSession]:
        """Get or open the session of a key; it is kept when the context ends.

        Raises:
            UpstreamError: there is none to be had.
        """

    async def close(self, key: Hashable) -> None:
        """End the session of a key, if there is one."""


class AuthGuard(Protocol):
    """The credentials that something was built with."""

    def holds(self) -> bool:
        """Whether they are still the current ones."""

    async def settle(self) -> None:
        """Find out whether they are; `holds` says it from then on."""
