"""Which apps a turn named and used. Nothing leaves: there is a sink only if somebody gives one.

Source: docs/apps.md, "Turns".
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app_server.apps.inventory.inventory import Connector
from protocol.items import UserInput

MAX_TURNS = 1024
"""Remembered at a time; the oldest is forgotten."""

MAX_IDS = 256
"""Apps named in one turn."""

_LINK = re.compile(r"\]\(app://([^)\s]+)\)")
_PATH = "app://"


@dataclass(frozen=True, slots=True)
class AppEvent:
    """An app was named by the user, or used by the model."""

    event: Literal["mentioned", "used"]
    app_id: str
    name: str | None
    kind: Literal["explicit", "implicit"]
    """Whether the user had named it in this turn."""


Sink: TypeAlias = Callable[[AppEvent], None]


class Analytics:
    """The apps of the turns that run."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._named: dict[str, set[str]] = {}

    def input_taken(
        self, turn_id: str, content: Sequence[UserInput], connectors: Sequence[Connector]
    ) -> None:
        """Note the apps that a user names, and tell of those that are new to the turn."""
        known = self._named.setdefault(turn_id, set())
        while len(self._named) > MAX_TURNS:
            del self._named[next(iter(self._named))]
        names = {connector.id: connector.name for connector in connectors}
        new = sorted(set(_named_in(content)) - known)[: MAX_IDS - len(known)]
        for app_id in new:
            self._sink(AppEvent("mentioned", app_id, names.get(app_id), "explicit"))
        known.update(new)

    def used(self, turn_id: str, connector: Connector) -> None:
        """Tell that a tool of an app was called."""
        is_named = connector.id in self._named.get(turn_id, ())
        kind: Literal["explicit", "implicit"] = "explicit" if is_named else "implicit"
        self._sink(AppEvent("used", connector.id, connector.name, kind))

    def forget(self, turn_id: str) -> None:
        """Drop what is known of a turn."""
        self._named.pop(turn_id, None)


def _named_in(content: Sequence[UserInput]) -> Iterator[str]:
    for part in content:
        if part.type == "text":
            yield from _LINK.findall(part.text)
        elif part.type == "mention" and part.path.startswith(_PATH):
            yield part.path.removeprefix(_PATH)
