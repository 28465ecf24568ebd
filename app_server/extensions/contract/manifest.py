"""Manifest of an MCP server: its answers, given at its registration in place of requests.

Source: docs/extensions.md, "Manifests".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.model import JsonObject


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Manifest:
    """The answers of one server to `initialize` and `tools/list`. Equal by value.

    One that has not changed is best given as the very same object: nothing of it is read again.
    """

    hello: JsonObject = field(repr=False)
    """The result of `initialize`."""
    tools: Sequence[JsonObject] = field(repr=False)
    """All tools, in the server's order."""

    def __hash__(self) -> int:
        # The tools are left out: thousands of them take some ms.
        return hash(repr(self.hello))
