"""A connection, as the hub sees it, and what is sent on it."""

from typing import Protocol

from app_server.rpc.context import ClientSession
from app_server.rpc.outgoing import Delta, Message
from protocol.contract.methods import NOTIFICATIONS


class PeerLoad(Protocol):
    """Load of a connection, as far as the hub needs it."""

    @property
    def chars(self) -> int:
        """Characters of the messages that wait to be sent."""


class Peer(Protocol):
    """One connection."""

    session: ClientSession | None
    """None before its client has initialized."""

    @property
    def is_behind(self) -> bool:
        """Whether so much waits that pieces of one text are joined."""

    def post(self, text: str, delta: Delta | None = None) -> None:
        """Queue a message; never waits."""

    def give_up(self) -> None:
        """Close the connection: it has missed something that cannot be sent again."""

    @property
    def load(self) -> PeerLoad:
        """Load of the connection."""


def post(peer: Peer, *messages: Message, as_subscriber: bool) -> None:
    """Queue messages of one method, unless the client does not want them or may not have them.

    `as_subscriber`: they are about a thread of its subscriptions, and carry their numbers.
    """
    session = peer.session
    if session is None or messages[0].method in session.opted_out:
        return
    spec = NOTIFICATIONS[messages[0].method]
    if (spec.experimental or spec.opt_in) and not session.experimental:
        return
    form = session.experimental, session.jsonrpc, as_subscriber and session.experimental
    for message in messages:
        # The form that can be joined is needed by who falls behind alone.
        peer.post(message.text(form), message.delta(form) if peer.is_behind else None)
