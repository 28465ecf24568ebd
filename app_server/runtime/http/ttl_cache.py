"""Answers that are kept in memory for a while, within a bound."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Values by key; the oldest ones make room for new ones."""

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        """Keep at most `limit` values; `now` gives seconds."""
        self._limit = limit
        self._now = now
        self._values: dict[K, tuple[float, V]] = {}

    def get(self, key: K | None) -> V | None:
        """Return a value that has not expired; None has no value."""
        if key is None or (kept := self._values.get(key)) is None:
            return None
        until, value = kept
        return value if self._now() < until else None

    def last(self, key: K) -> V | None:
        """Return the last value, expired or not."""
        return self._values[key][1] if key in self._values else None

    def put(self, key: K | None, value: V, ttl_s: float) -> None:
        """Keep a value for `ttl_s` seconds."""
        if key is None:
            return
        self._values.pop(key, None)
        while len(self._values) >= self._limit:
            del self._values[next(iter(self._values))]
        self._values[key] = (self._now() + ttl_s, value)
