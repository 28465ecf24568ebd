"""Thread that an answer shows, read from its text in steps, between which others run.

An answer to `thread/resume` has 64 Mi characters at most. Parsing it at once would hold the event
loop for as long as that takes, also in a worker thread, as the parser does not let go of Python's
lock. Nothing else of such an answer is parsed.
Source: docs/scale.md, "Requests for other nodes".
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from protocol.model import JsonObject

STEP_CHARS = 64 * 1024
"""Of a text that is read before others run; one turn without items, or one item, more."""

_DECODE = json.JSONDecoder().raw_decode
_OF_ITEM = ("id", "type", "status")


class _Place:
    """Place in a JSON text without spaces between tokens, as app-servers write it."""

    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._at = at
        self._yielded_at = at

    def value(self) -> Any:
        """Read the value that begins here."""
        value, self._at = _DECODE(self._text, self._at)
        return value

    def members(self) -> Iterator[str]:
        """Give the names of an object's members; each value is to be read before the next."""
        for _ in self._parts("{", "}"):
            name: str = self.value()
            self._skip(":")
            yield name

    def elements(self) -> Iterator[None]:
        """Give once for each element of an array, which is to be read before the next."""
        yield from self._parts("[", "]")

    def _parts(self, first: str, last: str) -> Iterator[None]:
        self._skip(first)
        is_over = self._is_at(last)
        while not is_over:
            yield
            is_over = not self._is_at(",")
            if not is_over:
                self._skip(",")
        self._skip(last)

    def _is_at(self, token: str) -> bool:
        return self._text.startswith(token, self._at)

    def _skip(self, token: str) -> None:
        if not self._is_at(token):
            raise ValueError(f"no {token} at character {self._at}")
        self._at += 1

    async def let_others_run(self) -> None:
        """Yield to the event loop if a step was read since the last time."""
        if self._at - self._yielded_at >= STEP_CHARS:
            self._yielded_at = self._at
            await asyncio.sleep(0)


async def read_shown_thread(text: str, at: int) -> tuple[str, list[JsonObject]]:
    """Read the id of the thread in an answer, and its newest turn, if turns are shown.

    The result begins at the character `at`. Of the items of the turn there are id, type and status.

    Raises:
        ValueError: this is no such answer.
    """
    place = _Place(text, at)
    thread_id, turns = None, list[JsonObject]()
    try:
        for name in place.members():
            if name != "thread":
                place.value()
                continue
            for member in place.members():
                if member == "turns":
                    turns = await _newest(place)
                elif member == "id":
                    thread_id = place.value()
                else:
                    place.value()
            # Nothing behind the thread is needed.
            break
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    if not isinstance(thread_id, str):
        raise ValueError("an answer without a thread")
    return thread_id, turns


async def _newest(place: _Place) -> list[JsonObject]:
    """Read an array of turns; the last one alone is kept."""
    turns: list[JsonObject] = []
    for _ in place.elements():
        turn: JsonObject = {}
        for name in place.members():
            turn[name] = await _heads(place) if name == "items" else place.value()
        turns = [turn]
        await place.let_others_run()
    return turns


async def _heads(place: _Place) -> list[JsonObject]:
    heads: list[JsonObject] = []
    for _ in place.elements():
        item = place.value()
        heads.append({name: item[name] for name in _OF_ITEM if name in item})
        await place.let_others_run()
    return heads
