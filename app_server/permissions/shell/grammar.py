"""The grammar of shell scripts, loaded when the first script is read.

Source: https://tree-sitter.github.io/tree-sitter/.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from app_server.runtime.loader import Lazy, load

if TYPE_CHECKING:
    from tree_sitter import Parser


class ShellGrammar:
    """Makes parsers of bash; one for a server."""

    def __init__(self) -> None:
        """Load nothing yet."""
        self._new_parser: Lazy[Callable[[], Parser]] = Lazy("the grammar of shell scripts", _load)

    async def parser(self) -> Parser:
        """Make a parser, for one task at a time.

        Raises:
            LoadFailed: the grammar cannot be loaded now.
        """
        return (await self._new_parser.get())()


def _bash() -> Callable[[], Parser]:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return partial(Parser, Language(tree_sitter_bash.language()))


async def _load() -> Callable[[], Parser]:
    return await load(_bash)
