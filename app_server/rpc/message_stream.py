"""What a stream of messages raises where it knows that nobody is at the other end."""

import anyio


class ClientGone(anyio.EndOfStream):
    """The client has not only finished sending: nothing reaches it any more."""
