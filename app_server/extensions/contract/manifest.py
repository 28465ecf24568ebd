"""What a server says of itself, given by whoever registers it: it need not be asked.

Source: docs/extensions.md, "Manifests".
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from pydantic_core import to_json

from protocol.model import JsonObject


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Manifest:
    """The answers of one server to `initialize` and `tools/list`. Equal by value."""

    hello: JsonObject = field(repr=False)
    """The result of `initialize`."""
    tools: Sequence[JsonObject] = field(repr=False)
    """All tools, in the server's order."""
    size: int
    """Bytes of the tools as a compact JSON array."""
    digest: str
    """64 hexadecimal digits of both."""

    @classmethod
    def of(cls, hello: JsonObject, tools: Sequence[JsonObject]) -> Self:
        """Measure the answers; some ms for a thousand tools, so a matter for worker threads."""
        # One tool at a time: whoever encodes all at once lets no other thread run meanwhile.
        digest = hashlib.sha256(to_json(hello))
        size = len("[]")
        for tool in tools:
            encoded = to_json(tool)
            digest.update(b",%b" % encoded)
            size += len(encoded) + 1
        return cls(hello, tuple(tools), size, digest.hexdigest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Manifest) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)
