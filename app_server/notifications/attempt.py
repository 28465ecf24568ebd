"""The outcome of an attempt to reach a receiver."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attempt:
    """Outcome of one attempt."""

    error: str | None = None
    """The failure; None: it was delivered."""
    is_gone: bool = False
    """The receiver wants nothing more."""
    after_s: float = 0.0
    """Seconds after which the receiver wants to be tried again."""
