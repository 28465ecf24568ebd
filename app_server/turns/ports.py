"""What turns need from the packages above them; app_server/server joins them."""

from collections.abc import Sequence
from typing import Protocol

from protocol.model import WireModel


class ClientPort(Protocol):
    """The clients of all threads."""

    def emit(self, thread_id: str, event: WireModel, method: str | None = None) -> None:
        """Send the listeners of a thread an event; `method` is for types that serve several."""

    def emit_run(self, thread_id: str, first: WireModel, more: Sequence[str]) -> None:
        """Send the listeners a delta, and the pieces of its text that came with it."""

    def broadcast(self, event: WireModel) -> None:
        """Send every client an event; never waits."""

    async def ask(
        self, thread_id: str, method: str, params: WireModel
    ) -> tuple[WireModel | None, str | None]:
        """Send a request to the listeners of a thread; return the first answer and its client.

        The answer is None where a client refused; the client is known by its name. Cancelling
        withdraws the request.
        """

    def can_ask(self, thread_id: str, method: str, params: WireModel) -> bool:
        """Whether any listener of a thread could be asked this."""

    def has_subscribers(self, thread_id: str) -> bool:
        """Whether any client is subscribed to the thread."""

    @property
    def is_crowded(self) -> bool:
        """Whether so many messages were queued that the sender should `yield_to_loop`."""

    async def yield_to_loop(self) -> None:
        """Let other tasks run, first those that send the queued messages."""

    def open_stream(self, thread_id: str) -> None:
        """Begin to number and keep what the listeners of a thread are sent."""

    def close_stream(self, thread_id: str) -> None:
        """Stop to number and keep, as the thread leaves memory."""
