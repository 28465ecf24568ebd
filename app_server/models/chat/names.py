"""Flat names of tools, as functions of Chat Completions have no namespaces.

A namespace and a name are joined with two underscores. What is too long, or taken, is cut and gets
a hash, as the names of MCP tools do. Only the table made here leads back.
Source: docs/mcp.md, "Names"; the public Chat Completions reference, "tools" (64 characters).
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

MAX_LENGTH = 64
_HASH_LENGTH = 13
"""An underscore and twelve hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class CalledTool:
    """A tool as the Responses API names it."""

    kind: Literal["function", "custom", "search"]
    namespace: str | None
    name: str

    @property
    def identity(self) -> str:
        """Text that is hashed."""
        return f"{self.kind}\0{self.namespace or ''}\0{self.name}"

    @property
    def flat(self) -> str:
        """Its flat name, unless another tool has the same."""
        joined = self.name if self.namespace is None else f"{self.namespace}__{self.name}"
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", joined) or "_"
        return plain if len(plain) <= MAX_LENGTH else self.hashed(plain)

    def hashed(self, plain: str) -> str:
        """Cut a name and make it this tool's own."""
        digest = hashlib.sha1(self.identity.encode(), usedforsecurity=False).hexdigest()
        return f"{plain[: MAX_LENGTH - _HASH_LENGTH]}_{digest[:12]}"


class ToolNames:
    """The flat names of one request's tools, and the way back."""

    def __init__(self, tools: Iterable[CalledTool]) -> None:
        """Give every tool a name of its own, whatever the order of `tools`."""
        distinct = set(tools)
        count = Counter(tool.flat for tool in distinct)
        self._flat = {
            tool: tool.flat if count[tool.flat] == 1 else tool.hashed(tool.flat)
            for tool in distinct
        }
        self._tools = {flat: tool for tool, flat in self._flat.items()}

    def flat(self, tool: CalledTool) -> str:
        """Return a tool's flat name; also of one that is not offered any more."""
        return self._flat.get(tool) or tool.flat

    def tool(self, flat: str) -> CalledTool:
        """Return the tool that is called by a flat name; what is none is a function."""
        return self._tools.get(flat) or CalledTool("function", None, flat)
